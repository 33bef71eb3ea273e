"""All ranks run the checks in step, each within its time limit; rank 0 collects and judges the facts."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import collectives, cpu, environment, gpu, nccl, network, speed, storage
from .check import (
    SECONDS,
    Check,
    Context,
    Facts,
    Judge,
    Observation,
    Result,
    failed,
    locations,
    not_applicable,
    passed,
    unknown,
    worst,
)
from .process import run_with_timeout

START = 40.0  # s of the usual two minutes that ranks have to start: a shared file system serves Python slowly
GRACE = 2.0  # s that an answer may be late
RESERVE = 3.0  # s kept for the report

DISK = {
    "on_timeout": "the file system does not answer: contact the site's support; until then set HPC_RESULTS and HPC_DATA "
    "elsewhere"
}
GPU = {
    "on_timeout": "the driver does not answer (`nvidia-smi` and `rocm-smi` hang too): exclude the node (`--exclude`) and "
    "contact the site's support"
}
COLLECTIVE = {
    "collective": True,
    "on_timeout": "a collective hangs: some ranks do not reach each other (firewall, several interfaces: set "
    "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME), or a device is faulty (`dmesg`, `nvidia-smi -q`)",
}

# In this order: first what needs one rank, then what needs all of them.
CHECKS = (
    Check(gpu.measure, [gpu.judge_driver, gpu.judge_visible], 25, **GPU),
    Check(environment.measure_software, [environment.judge_software], 15, "node"),
    Check(environment.measure_traps, [environment.judge_traps], 10, "node"),
    Check(
        environment.measure_job,
        [environment.judge_job],
        10,
        "main",
        on_timeout="Slurm does not answer: `scontrol ping`",
    ),
    Check(storage.measure_results, [storage.judge_results], 15, "node", **DISK),
    Check(storage.measure_shared, [storage.judge_shared], 12, "node", several="nodes", **DISK),
    Check(storage.measure_data, [storage.judge_data], 15, "node", **DISK),
    Check(network.measure_names, [network.judge_names], 10, "node", on_timeout="the name service does not answer"),
    Check(collectives.join, [collectives.judge_join], 30, collective=True, on_timeout=collectives.UNREACHABLE),
    Check(cpu.measure_cores, [cpu.judge_cores], 5, collective=True),
    Check(network.measure_interface, [network.judge_interface], 10, several="ranks", **COLLECTIVE),
    Check(nccl.measure, [nccl.judge_transport], 15, several="ranks", **COLLECTIVE),
    Check(collectives.measure_all_reduce, [collectives.judge_all_reduce], 15, several="ranks", **COLLECTIVE),
    Check(collectives.measure_clock, [collectives.judge_clock], 5, several="nodes", **COLLECTIVE),
    Check(
        speed.measure_compute, [speed.judge_compute, speed.judge_clocks, speed.judge_load], 15, collective=True, **GPU
    ),
)


class Runner:
    """The checks as one rank runs them: `lead` on rank 0, `follow` on all others."""

    def __init__(self, context: Context, checks: Sequence[Check] = CHECKS) -> None:
        self.context, self.checks = context, checks
        self._scale = context.options.seconds / SECONDS
        self._end = time.monotonic() + context.options.seconds - RESERVE * self._scale
        self._present: list[int] = []
        self._broken = ""  # the check that shows that collectives do not work
        self.observed: dict[str, dict[str, Facts]] = {}  # {check: {rank: facts}}, on rank 0

    @property
    def complete(self) -> bool:
        """Whether every rank has started."""
        return len(self._present) == self.context.world_size

    def follow(self) -> None:
        """Measure each check that rank 0 starts.

        Raises:
            TimeoutError: rank 0 does not start the next check in time.
        """
        context = self.context
        context.mailbox.put(f"present/{context.rank}", context.host)
        context.hosts = self._next("hosts")
        for check in self.checks:
            self._measure(check, self._next(f"start/{check.name}"))

    def lead(self, progress: Callable[[str], None]) -> Iterator[Result]:
        """Yield each result as it is known; `progress` receives the name of the check under way."""
        progress("ranks")
        yield replace(self._roll_call(), name="ranks", expected="every rank starts")
        for check in self.checks:
            progress(", ".join(judge.name for judge in check.judges))
            skipped = self._skipped(check)
            seconds = 0.0 if skipped else min(check.seconds * self._scale, self._left())
            self.context.mailbox.put(f"start/{check.name}", seconds)
            outcomes = {} if skipped else self._collect(check, seconds)
            for judge in check.judges:
                yield replace(skipped or self._judge(check, judge, outcomes), name=judge.name)

    def _roll_call(self) -> Result:
        context = self.context
        began = time.monotonic()
        everyone = range(context.world_size)
        context.mailbox.put(f"present/{context.rank}", context.host)
        received = context.mailbox.collect("present", everyone, min(START * self._scale, self._left()))
        context.hosts = [received.get(rank, "") for rank in everyone]
        context.mailbox.put("hosts", context.hosts)
        self._present = sorted(received)
        measured = f"{len(received)} of {context.world_size} ranks started within {time.monotonic() - began:.1f} s"
        if self.complete:
            return passed(f"{measured}, on {context.nodes} node(s)")
        missing = [
            f"rank {rank} (node {rank // context.ranks_per_node})" for rank in everyone if rank not in received
        ]
        fix = (
            "read what these ranks printed: does their node have the same Python environment (`srun -N1 -w NODE which "
            "python`), does a rank hang while it starts, is MASTER_ADDR reachable from there?"
        )
        return failed(measured, fix, locations(missing))

    def _skipped(self, check: Check) -> Result | None:
        """The result of a check that does not run; None if it runs."""
        context = self.context
        if {"": 0, "ranks": context.world_size, "nodes": context.nodes}[check.several] == 1:
            return not_applicable(f"needs two {check.several} or more")
        if self._left() < GRACE * self._scale:
            return unknown(f"skipped: no time left of {context.options.seconds:.0f} s")
        if check.collective and not self.complete:
            return unknown("skipped: ranks are missing")
        if check.collective and self._broken:
            return unknown(f"skipped, because of {self._broken} above")
        return None

    def _collect(self, check: Check, seconds: float) -> Mapping[str, list[Observation]]:
        """{"facts", "error" or "timeout": the ranks with that outcome}, as `run_with_timeout`."""
        context = self.context
        ranks = [rank for rank in self._present if check.runs_on(rank, context.ranks_per_node)]
        end = time.monotonic() + seconds + GRACE * self._scale
        self._measure(check, seconds)
        received = context.mailbox.collect(f"outcome/{check.name}", ranks, end - time.monotonic())
        outcomes = defaultdict(list)
        for rank in ranks:
            for kind, value in received.get(rank, {"timeout": seconds}).items():
                outcomes[kind].append(Observation(context.hosts[rank], rank, value))
        facts = self.observed[check.name] = {str(observation): observation.facts for observation in outcomes["facts"]}
        if check.collective and (len(facts) < len(ranks) or any("error" in fact for fact in facts.values())):
            self._broken = check.name
        return outcomes

    def _judge(self, check: Check, judge: Judge, outcomes: Mapping[str, list[Observation]]) -> Result:
        results = []
        if late := outcomes["timeout"]:
            results.append(failed(f"no answer within {late[0].facts:.0f} s", check.on_timeout, locations(late)))
        if errors := outcomes["error"]:
            results.append(unknown(f"the check raised {errors[0].facts}", where=locations(errors)))
        if outcomes["facts"] and not (check.collective and results):  # such a judge needs the facts of all ranks
            try:
                results.append(judge.of(outcomes["facts"]))
            except Exception as error:  # on an unexpected machine the other checks still run
                results.append(unknown(f"the facts (see doctor.json) cannot be judged: {error!r}"))
        return worst(results)

    def _measure(self, check: Check, seconds: float) -> None:
        """Run the check's measurement if it runs on this rank; 0 seconds: skip it."""
        context = self.context
        if seconds and check.runs_on(context.rank, context.ranks_per_node):
            context.timeout = seconds
            outcome = run_with_timeout(lambda: check.measure(context), seconds)
            context.mailbox.put(f"outcome/{check.name}/{context.rank}", outcome)

    def _next(self, key: str) -> Any:
        """A value of rank 0, which may have started later than this rank."""
        return self.context.mailbox.get(key, self._left() + START * self._scale)

    def _left(self) -> float:
        return max(0.0, self._end - time.monotonic())
