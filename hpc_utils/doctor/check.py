"""A check: a function that measures facts on a rank, functions that judge the facts, and their results."""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from hpc_utils import provenance

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

    from .mailbox import Mailbox

SECONDS = 120.0  # for all checks together
Facts = dict[str, Any]  # JSON-serializable: what one rank measured


class Verdict(StrEnum):
    """Worst first. UNKNOWN: the check cannot decide here."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    PASS = "pass"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Result:
    """One row of the report.

    Attributes:
        measured: the value with its unit. fix: what to do about it. where: hosts and ranks, if not all are alike.
        expected: what passes. name: of the check.
    """

    verdict: Verdict
    measured: str
    fix: str = ""
    where: str = ""
    expected: str = ""
    name: str = ""


passed = partial(Result, Verdict.PASS)
failed = partial(Result, Verdict.FAIL)
unknown = partial(Result, Verdict.UNKNOWN)
not_applicable = partial(Result, Verdict.NOT_APPLICABLE)


@dataclass(frozen=True)
class Observation:
    """The facts of one rank."""

    host: str
    rank: int
    facts: Facts

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    def __str__(self) -> str:
        return f"{self.host} rank {self.rank}"


Observations = Sequence[Observation]


@dataclass(frozen=True)
class Options:
    """Options of the ranks' command line (`process.parse`).

    Attributes:
        seconds: for all checks; each check's time is a share of it.
        torch: the build that the cluster file names, such as cu126. link_gbit: a node's nominal link; 0: unknown.
        inherited: variables of another launcher that `hpc doctor` was started under, separated by commas.
        copy: file to which rank 0 also writes doctor.json, for the launcher.
    """

    seconds: float = SECONDS
    torch: str = ""
    link_gbit: float = 0.0
    inherited: str = ""
    copy: str = ""


@dataclass
class Context:
    """This rank, as checks see it.

    Attributes:
        mailbox: exchanges values between ranks without a process group. timeout: seconds that the check under way has.
        ranks, membership: set by the check that joins the process group; `membership` keeps the group alive.
        nccl_log: the file that NCCL logs to. adapters: adapters or interfaces that NCCL uses between nodes.
        hosts: of all ranks; "" for a missing rank. cores: usable CPUs by core, before ranks are pinned.
        cleanup: removes what checks leave besides the report.
    """

    options: Options
    mailbox: Mailbox
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    ranks_per_node: int = 1
    timeout: float = 10.0
    ranks: Ranks | None = None
    membership: Any = None
    nccl_log: str = ""
    adapters: list[str] = field(default_factory=list)
    host: str = field(default_factory=socket.gethostname)
    hosts: list[str] = field(default_factory=list)
    cores: list[list[int]] = field(default_factory=provenance.core_groups)
    cleanup: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def from_environment(cls, options: Options, mailbox: Mailbox) -> Context:
        """The context from the variables of torchrun; without a launcher, rank 0 of one."""
        defaults = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        return cls(options, mailbox, *(int(os.environ.get(name, value)) for name, value in defaults.items()))

    @property
    def nodes(self) -> int:
        return self.world_size // self.ranks_per_node

    def share(self, part: float, most: float) -> float:
        """Seconds for one measurement: `part` of the timeout, at most `most`."""
        return min(most, self.timeout * part)

    def enter(self) -> Ranks:
        """The ranks of the process group; sets device and number of threads of the calling thread, in which a check runs.

        Raises:
            RuntimeError: the process group was not joined.
        """
        import torch

        if self.ranks is None:
            raise RuntimeError("this rank has not joined the process group")
        torch.set_num_threads(self.ranks.threads)
        if self.ranks.device.type == "cuda":
            torch.cuda.set_device(self.ranks.device)
        return self.ranks


@dataclass(frozen=True)
class Judge:
    """A function that judges the facts of all ranks, or (`each`) of one rank; see `judge`."""

    name: str
    expected: str
    each: bool
    function: Callable[..., Result]

    def __call__(self, facts: Any) -> Result:
        return self.function(facts)

    def of(self, observations: Observations) -> Result:
        """The result of these ranks; of `each`, the worst."""
        result = worst_of(self.function, observations) if self.each else self.function(observations)
        return replace(result, expected=result.expected or self.expected)


def judge(name: str, expected: str = "", *, each: bool = False) -> Callable[[Callable[..., Result]], Judge]:
    """Decorate a judge with the name of its result, and what passes."""
    return partial(Judge, name, expected, each)


@dataclass(frozen=True)
class Check:
    """One measurement and the results that follow from it.

    Attributes:
        measure: runs on the ranks. judges: run on rank 0.
        seconds: of the usual two minutes. scope: every rank, the first rank of each node, or rank 0.
        collective: needs all ranks and their process group. several: does not apply to a single rank, or node.
        on_timeout: the fix if `measure` does not return.
    """

    measure: Callable[[Context], Facts]
    judges: Sequence[Judge]
    seconds: float
    scope: Literal["rank", "node", "main"] = "rank"
    collective: bool = False
    several: Literal["", "ranks", "nodes"] = ""
    on_timeout: str = "run `hpc doctor` again; if it hangs again, contact the site's support about this node"

    @property
    def name(self) -> str:
        return self.judges[0].name

    def runs_on(self, rank: int, ranks_per_node: int) -> bool:
        return {"rank": True, "node": rank % ranks_per_node == 0, "main": rank == 0}[self.scope]


def worst(results: Sequence[Result]) -> Result:
    """The first of the worst."""
    return min(results, key=lambda result: list(Verdict).index(result.verdict))


def worst_of(function: Callable[[Facts], Result], observations: Observations) -> Result:
    """Judge every rank alone: the worst result, with the ranks that have it."""
    results = [function(observation.facts) for observation in observations]
    worst_result = worst(results)
    alike = [
        observation
        for observation, result in zip(observations, results, strict=True)
        if result.verdict == worst_result.verdict
    ]
    return worst_result if len(alike) == len(observations) else replace(worst_result, where=locations(alike))


def worst_or_shared(
    function: Callable[[Facts], Result], observations: Observations, what: str, shared: str, fix: str
) -> Result:
    """`worst_of`; where no rank fails alone, a failure if two ranks of one node have something in common in the list `facts[what]`.
    `shared`: says so, with `{}` for that."""
    result = worst_of(function, observations)
    for node in by_host(observations).values() if result.verdict is not Verdict.FAIL else ():
        for pair in combinations(node, 2):
            if common := sorted({*pair[0][what]} & {*pair[1][what]}):
                return failed(shared.format(", ".join(map(str, common))), fix, locations(pair))
    return result


def locations(observations: Sequence[Observation | str]) -> str:
    """`node1 rank 0, node2 rank 4 and 3 more`."""
    return ", ".join(map(str, observations[:4])) + (
        f" and {len(observations) - 4} more" if len(observations) > 4 else ""
    )


def by_host(observations: Observations) -> dict[str, list[Observation]]:
    """Observations of each host, in the order in which they came."""
    hosts = defaultdict(list)
    for observation in observations:
        hosts[observation.host].append(observation)
    return hosts
