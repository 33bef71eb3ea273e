"""All ranks look in step, each look in its time; rank 0 gathers what they saw and has it judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from .bench import SECONDS, Bench
from .box import boxed
from .check import Check, Facts, Judge, Seen, count, failed, passed, places, unknown, worst

ROLL = 40.0  # s of the usual two minutes that ranks have to appear: a shared file system serves Python slowly
GRACE = 2.0  # s that an answer may be late
RESERVE = 3.0  # s kept for the report


@dataclass(frozen=True)
class Probe:
    """One look and what is judged by it.

    Attributes:
        look: what a rank sees. judges: {check's name: judge}. seconds: of the usual two minutes that a look has.
        who: every rank, the first of each node, or rank 0. together: needs all ranks and their process group.
        stuck: what it means, and what to do, when the look does not come back.
    """

    look: Callable[[Bench], Facts]
    judges: Mapping[str, Judge]
    seconds: float = 10.0
    who: Literal["rank", "node", "main"] = "rank"
    together: bool = False
    stuck: str = "run `hpc doctor` again; if it hangs again, ask the site's support about this node"

    @property
    def name(self) -> str:
        return next(iter(self.judges))

    def is_for(self, rank: int, ranks_per_node: int) -> bool:
        return {"rank": True, "node": rank % ranks_per_node == 0, "main": rank == 0}[self.who]


class Conductor:
    """The examination as one rank goes through it."""

    def __init__(self, bench: Bench, probes: Sequence[Probe]) -> None:
        self.bench, self.probes = bench, probes
        self._scale = bench.options.seconds / SECONDS
        self._end = time.monotonic() + bench.options.seconds - RESERVE * self._scale
        self._broken = ""  # the check that shows that ranks can do nothing together any more
        self._present: list[int] = []
        self.saw: dict[str, dict[str, Facts]] = {}  # {probe: {place: facts}}, on rank 0

    @property
    def complete(self) -> bool:
        """Whether every rank has appeared."""
        return len(self._present) == self.bench.world

    def follow(self) -> None:
        """Any rank but 0: look when told to, until told that all is done.

        Raises:
            Silence: rank 0 is not heard of any more.
        """
        bench = self.bench
        bench.exchange.post("roll", {"host": bench.host})
        bench.hosts = self._hear("hosts")
        for probe in self.probes:
            self._look(probe, self._hear(f"go/{probe.name}"))

    def _hear(self, topic: str) -> Any:
        return self.bench.exchange.hear(topic, self._left() + ROLL * self._scale)  # rank 0 may have begun later

    def lead(self, say: Callable[[str], None]) -> Iterator[Check]:
        """Rank 0: yields the checks one by one; `say` hears what is being looked at."""
        say("ranks")
        yield replace(self._call_roll(), name="ranks")
        for probe in self.probes:
            say(", ".join(probe.judges))
            why_not = self._why_not(probe)
            seconds = 0.0 if why_not else min(probe.seconds * self._scale, self._left())
            self.bench.exchange.announce(f"go/{probe.name}", seconds)
            if why_not:
                yield from (replace(unknown(why_not), name=name) for name in probe.judges)
            else:
                yield from self._judge(probe, self._gather(probe, seconds), seconds)

    def _call_roll(self) -> Check:
        bench, began = self.bench, time.monotonic()
        bench.exchange.post("roll", {"host": bench.host})
        heard = bench.exchange.collect("roll", range(bench.world), min(ROLL * self._scale, self._left()))
        took = time.monotonic() - began
        bench.hosts = [heard[rank]["host"] if rank in heard else "" for rank in range(bench.world)]
        bench.exchange.announce("hosts", bench.hosts)
        self._present = sorted(heard)
        silent = [rank for rank in range(bench.world) if rank not in heard]
        layout = f"{count(bench.world, 'rank')} on {count(bench.nodes, 'node')}"
        if not silent:
            return passed(f"{layout}, all here after {took:.1f} s")
        named = ", ".join(f"rank {rank} (node {rank // bench.ranks_per_node})" for rank in silent[:4])
        return failed(
            f"{len(heard)} of {layout} answered within {took:.0f} s",
            "every rank",
            "read what these ranks printed: does their node see the same Python environment (`srun -N1 -w NODE which "
            "python`), does a rank hang in starting, is MASTER_ADDR reachable from there?",
            named + (f" and {len(silent) - 4} more" if len(silent) > 4 else ""),
        )

    def _why_not(self, probe: Probe) -> str:
        """Why a probe is left out; empty if it is not."""
        if self._left() < GRACE * self._scale:
            return f"no time left of {self.bench.options.seconds:.0f} s"
        if probe.together and not self.complete:
            return "not asked: ranks are missing"
        if probe.together and self._broken:
            return f"not asked, because of {self._broken} above"
        return ""

    def _gather(self, probe: Probe, seconds: float) -> dict[int, dict[str, Any]]:
        asked = [rank for rank in self._present if probe.is_for(rank, self.bench.ranks_per_node)]
        end = time.monotonic() + seconds + GRACE * self._scale
        self._look(probe, seconds)
        words = self.bench.exchange.collect(f"saw/{probe.name}", asked, end - time.monotonic())
        return {rank: words.get(rank, {"stuck": seconds}) for rank in asked}

    def _judge(self, probe: Probe, words: Mapping[int, Mapping[str, Any]], seconds: float) -> Iterator[Check]:
        def those(kind: str) -> list[Seen]:
            return [Seen(self.bench.hosts[rank], rank, word[kind]) for rank, word in words.items() if kind in word]

        seen, faulty, stuck = those("facts"), those("fault"), those("stuck")
        self.saw[probe.name] = {one.place: one.facts for one in seen}
        if probe.together and (stuck or faulty or any("error" in one.facts for one in seen)):
            self._broken = probe.name
        for name, judge in probe.judges.items():
            found = []
            if stuck:
                found.append(failed(f"no answer within {seconds:.0f} s", "an answer", probe.stuck, places(stuck)))
            if faulty:
                found.append(replace(unknown(f"the look failed: {faulty[0].facts}"), where=places(faulty)))
            if seen and not (probe.together and found):  # a judge of all ranks needs all
                found.append(_judged(judge, seen))
            yield replace(worst(found), name=name)

    def _look(self, probe: Probe, seconds: float) -> None:
        """This rank's look, if it is asked for one; 0 seconds stand for none."""
        bench = self.bench
        if seconds and probe.is_for(bench.rank, bench.ranks_per_node):
            bench.patience = seconds
            bench.exchange.post(f"saw/{probe.name}", boxed(lambda: probe.look(bench), seconds))

    def _left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def _judged(judge: Judge, seen: Sequence[Seen]) -> Check:
    """A machine so strange that it upsets a judge must not cost the other checks."""
    try:
        return judge(seen)
    except Exception as error:
        return unknown(f"what was seen (doctor.json holds it) could not be judged: {type(error).__name__}: {error}")
