"""Collectives matched across ranks: time on the wire, and time that ranks wait for each other.

A rank that starts a collective early waits inside its kernel for the last rank, which does not wait. The shortest duration of
a collective over its ranks therefore approximates its time on the wire, and the rest of a longer kernel is waiting. Durations
need no common clock. On each rank waiting comes first: the last `wire` ns of its kernel are the wire's.

Collectives are matched by process group and name, in the order of their occurrence. Sends and receives are omitted:
they are between two ranks, whose waiting belongs to the schedule (pipelines), not to stragglers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from hpc_utils import allreduce_cost

from . import intervals, phases
from .thresholds import CAUSED, CHANCE
from .timeline import COMMUNICATION, COMPUTE, Ops, Timeline

if TYPE_CHECKING:
    import pandas as pd

OVERLAPPING = 0.5  # of matched collectives; if fewer overlap in time, clocks or matches are wrong
SHIFTS = 1000  # positions tried to align a rank's collectives with those of a rank that recorded fewer

_PAIRS = re.compile(r"send|recv|p2p|point_?to_?point", re.I)
# The kernels of RCCL have one name for all operations: theirs is not known.
_OPERATION = re.compile(r"(all_?reduce)|(all_?gather)|(reduce_?scatter)|(broadcast)|(reduce)", re.I)
_OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce")

Key = tuple[str, str]  # process group ("": not known), kernel name


@dataclass(frozen=True)
class Collectives:
    """Matched collectives of several ranks, a row each, ordered by group, name and occurrence.

    Attributes:
        labels: of the columns. keys: process group and kernel name of each row.
        start, end: (rows, ranks) int64 ns, on each rank's clock; -1 where a rank does not take part.
        moved: (rows,) int64 bytes of the message, the largest of any rank; -1: not known.
        step: (rows,) int64, the step it belongs to; -1: none, or the program marked no steps.
        complete: every rank of the job was profiled.
        remarks: what limits these numbers.
    """

    labels: tuple[str, ...]
    keys: tuple[Key, ...]
    start: np.ndarray
    end: np.ndarray
    moved: np.ndarray
    step: np.ndarray
    complete: bool
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def taking_part(self) -> np.ndarray:
        """(rows, ranks) bool."""
        return self.start >= 0

    @property
    def wire_ns(self) -> np.ndarray:
        """(rows,) int64: the shortest duration over the ranks."""
        longest = np.iinfo(np.int64).max
        return np.where(self.taking_part, self.end - self.start, longest).min(axis=1, initial=longest)

    @property
    def waiting_ns(self) -> np.ndarray:
        """(rows, ranks) int64: each rank's duration less the wire's; 0 where it does not take part."""
        return np.where(self.taking_part, self.end - self.start - self.wire_ns[:, None], 0)

    @property
    def bus_bandwidth(self) -> float | None:
        """byte/s that each rank's link carried in the wire time of the collectives whose operation and size are known, as
        nccl-tests defines it (`allreduce_cost.traffic`). None without any, or if ranks are missing."""
        carried, wire = 0.0, 0
        rows = zip(
            self.keys, self.moved.tolist(), self.taking_part.sum(axis=1).tolist(), self.wire_ns.tolist(), strict=True
        )
        for (_, name), moved, members, ns in rows:
            operation = _OPERATION.search(name)
            if operation and moved > 0 and ns > 0:
                carried += moved * allreduce_cost.traffic(_OPERATIONS[operation.lastindex - 1], members)
                wire += ns
        return carried / (wire / 1e9) if wire and self.complete else None


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for.

    Attributes:
        column, label: of the rank. last: how often it waits least, of `of` steps or collectives (`per`).
        behind_ns: the others' mean wait, the median over those steps or collectives.
        caused: share of all waiting that is for this rank. ranks: how many there are.
    """

    column: int
    label: str
    last: int
    of: int
    per: str
    behind_ns: float
    caused: float
    ranks: int

    @property
    def systematic(self) -> bool:
        """Whether it is last more often than chance explains, and causes most of the waiting."""
        return self.caused > CAUSED and _chance(self.last, self.of, self.ranks) < CHANCE


@dataclass(frozen=True)
class Exposed:
    """Time of one rank, in ns, in which it communicates and computes nothing: on the wire, waiting for other ranks, and in
    communication that was not matched (sends and receives, ranks without a profile)."""

    wire_ns: int
    waiting_ns: int
    other_ns: int


def match(timelines: Sequence[Timeline]) -> Collectives:
    """The collectives that at least two of these ranks and devices took part in.

    Where ranks recorded different numbers of them, the first are matched or, on aligned clocks, those that end closest
    to each other, with a remark.
    """
    ops = [_collectives(one) for one in timelines]
    grouped, aligned = all(np.all(one.group >= 0) for one in ops), all(one.aligned for one in timelines)
    found = [_by_key(one, grouped) for one in ops]
    steps = [_steps(one, phases.steps(line.ranges)) for one, line in zip(ops, timelines, strict=True)]
    keys, remarks = [], []
    parts = [(np.empty((0, len(ops)), np.int64),) * 2 + (np.empty(0, np.int64),) * 2]  # start, end, moved, step
    for key in dict.fromkeys(key for own in found for key in own):
        places = {column: own[key] for column, own in enumerate(found) if key in own}
        fewest, most = (bound(map(len, places.values())) for bound in (min, max))
        name = key[1] + (f" of group {key[0]}" if key[0] else "")
        if len(places) == 1:
            remarks.append(f"{name}: one rank only has {most}, left out")
            continue
        if fewest < most:
            how = "those that end together are matched" if aligned else "the first are matched, which may be wrong"
            remarks.append(f"{name}: ranks recorded {fewest} to {most}: {how}")
            places = _shortened(places, {column: ops[column].end[place] for column, place in places.items()}, aligned)
        start, end = np.full((2, fewest, len(ops)), -1)
        for column, place in places.items():
            start[:, column], end[:, column] = ops[column].start[place], ops[column].end[place]
        moved = np.max([ops[column].moved[place] for column, place in places.items()], axis=0)
        marked = [steps[column][place] for column, place in places.items() if steps[column] is not None]
        keys += [key] * fewest
        parts.append((start, end, moved, marked[0] if marked else np.full(fewest, -1)))
    start, end, moved, step = map(np.concatenate, zip(*parts, strict=True))
    if len(remarks) > 3:
        remarks = [*remarks[:3], f"{len(remarks) - 3} more kinds of collectives are not the same number on all ranks"]

    world = max((one.world_size or 0 for one in timelines), default=0)
    seen = len({one.place for one in timelines})
    if world > seen:
        remarks.append(f"{seen} of {world} ranks were profiled: wire time is an upper bound")
    if aligned and keys and (together := _overlapping(start, end)) < OVERLAPPING:
        remarks.append(
            f"only {together:.0%} of matched collectives overlap in time: the ranks' clocks differ, or matches are wrong"
        )
    labels = _labels(timelines)
    return Collectives(labels, tuple(keys), start, end, moved, step, world <= seen, tuple(remarks))


def straggler(found: Collectives) -> Straggler | None:
    """The rank that the others wait for; None if no rank waits.

    Where steps are known they count, as the collectives of a step are late together: the waiting of a rank in a step is
    summed, and the rank that waits least is the last. Otherwise each collective counts. Ties count for no rank.
    """
    whole = found.taking_part.all(axis=1)
    waiting, step = found.waiting_ns[whole], found.step[whole]
    stepped = step >= 0
    if stepped.any():
        numbers, place = np.unique(step[stepped], return_inverse=True)
        summed = np.zeros((len(numbers), waiting.shape[1]), np.int64)
        np.add.at(summed, place, waiting[stepped])
        waiting = summed
    ranks = waiting.shape[1]
    alone = (waiting == waiting.min(axis=1, keepdims=True)).sum(axis=1) == 1
    late = np.where(alone, np.argmin(waiting, axis=1), -1)
    caused = [int(waiting[late == rank].sum()) for rank in range(ranks)]
    rank = int(np.argmax(caused))
    turns = waiting[late == rank]
    if not caused[rank]:
        return None
    behind = float(np.median(turns.sum(axis=1) / (ranks - 1)))
    per, share = "step" if stepped.any() else "collective", caused[rank] / int(waiting.sum())
    return Straggler(rank, found.labels[rank], len(turns), len(waiting), per, behind, share, ranks)


def exposed(timeline: Timeline, found: Collectives, column: int) -> Exposed:
    """The exposed communication of this rank, which is that column of `found`.

    A moment that is several of them counts as the wire's first, then as waiting.
    """
    if timeline.ops is None:
        return Exposed(0, 0, 0)
    part = found.taking_part[:, column]
    start, end = found.start[part, column], found.end[part, column]
    arrived = end - found.wire_ns[part]
    wire = intervals.union(arrived, end)
    waiting = intervals.difference(intervals.union(start, arrived), wire)
    compute = timeline.ops.union(COMPUTE)
    on_wire, waited, total = (
        intervals.outside(some, compute) for some in (wire, waiting, timeline.ops.union(COMMUNICATION))
    )
    return Exposed(on_wire, waited, total - on_wire - waited)


def table(timelines: Sequence[Timeline], found: Collectives | None = None) -> pd.DataFrame:
    """A row per rank and device: rank, device, collectives, wire_ns, waiting_ns (sums over its collectives), exposed_wire_ns,
    exposed_waiting_ns, exposed_other_ns (`exposed`), last (in how many collectives it alone waited least)."""
    import pandas as pd

    found = match(timelines) if found is None else found
    part, waiting = found.taking_part, found.waiting_ns
    last = part & (waiting == 0)
    last &= last.sum(axis=1, keepdims=True) == 1
    shown = [vars(exposed(one, found, column)) for column, one in enumerate(timelines)]
    columns = {
        "rank": [one.rank for one in timelines],
        "device": [one.device for one in timelines],
        "collectives": part.sum(axis=0),
        "wire_ns": (found.wire_ns[:, None] * part).sum(axis=0),
        "waiting_ns": waiting.sum(axis=0),
        **{f"exposed_{name}": [one[name] for one in shown] for name in ("wire_ns", "waiting_ns", "other_ns")},
        "last": last.sum(axis=0),
    }
    return pd.DataFrame(columns).astype("Int64")


def _collectives(timeline: Timeline) -> Ops:
    if timeline.ops is None:
        return Ops.of(start=np.empty(0), end=np.empty(0), kind=np.empty(0))
    ops = timeline.ops.of_kind(COMMUNICATION)
    pairs = [number for number, name in enumerate(ops.names) if _PAIRS.search(name)]
    return ops.where(~np.isin(ops.name, pairs))


def _by_key(ops: Ops, grouped: bool) -> dict[Key, np.ndarray]:
    """The indices of each group's and name's collectives, in order."""
    group = ops.group if grouped else np.full(len(ops), -1)
    return {
        (ops.groups[number] if number >= 0 else "", ops.names[name]): np.flatnonzero(
            (group == number) & (ops.name == name)
        )
        for number, name in sorted(set(zip(group.tolist(), ops.name.tolist(), strict=True)))
    }


def _shortened(places: dict[int, np.ndarray], ends: dict[int, np.ndarray], aligned: bool) -> dict[int, np.ndarray]:
    """Of each rank as many in a row as the rank with fewest has: those that end closest to that rank's, or the first."""
    fewest = ends[min(places, key=lambda column: len(places[column]))]
    size, chosen = len(fewest), {}
    for column, place in places.items():
        shifts = range(min(len(place) - size, SHIFTS) + 1 if aligned else 1)
        apart = [np.median(np.abs(ends[column][shift : shift + size] - fewest)) for shift in shifts]
        shift = int(np.argmin(apart))
        chosen[column] = place[shift : shift + size]
    return chosen


def _labels(timelines: Sequence[Timeline]) -> tuple[str, ...]:
    """Unique: with the file where two have the same."""
    labels = [one.label for one in timelines]
    return tuple(
        label if labels.count(label) == 1 else f"{label} of {PurePath(one.source).name}"
        for label, one in zip(labels, timelines, strict=True)
    )


def _steps(ops: Ops, steps: intervals.Set) -> np.ndarray | None:
    """The step in which each was launched, or ran if that is not known; -1: none. None if no steps are marked."""
    start, end = steps
    if not len(start):
        return None
    moment = np.where(ops.launched >= 0, ops.launched, ops.start)
    step = np.searchsorted(start, moment, side="right") - 1
    return np.where((step >= 0) & (moment < end[step]), step, -1)


def _overlapping(start: np.ndarray, end: np.ndarray) -> float:
    """Share of the collectives that are in progress on all their ranks at one time."""
    part = start >= 0
    begun = np.where(part, start, np.iinfo(np.int64).min).max(axis=1)
    ended = np.where(part, end, np.iinfo(np.int64).max).min(axis=1)
    return float(np.mean(begun < ended))


def _chance(last: int, of: int, ranks: int) -> float:
    """Upper bound of the probability that some one of `ranks` equal ranks is last in `last` or more of `of` turns
    (Chernoff 1952, and a union bound over the ranks)."""
    share, fair = last / of, 1 / ranks
    if share <= fair:
        return 1.0
    rest = (1 - share) * math.log((1 - share) / (1 - fair)) if share < 1 else 0.0
    return min(1.0, ranks * math.exp(-of * (share * math.log(share / fair) + rest)))
