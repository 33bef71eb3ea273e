"""Collectives matched across ranks: time on the wire, and time that ranks wait for each other.

A rank that comes early to a collective waits inside its kernel until the last rank is there. The last one does not wait:
so the shortest duration of a collective over its ranks approximates its time on the wire, and what another rank's kernel
takes longer is waiting. Durations need no common clock. On each rank waiting comes first: its kernel's last `wire` ns are
the wire's, what is before them is waiting.

Collectives are matched by process group and name, in the order of their occurrence. Sends and receives are left out:
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

from hpc_utils import collective

from . import intervals, phases
from .thresholds import CAUSED, CHANCE
from .timeline import COMMUNICATION, COMPUTE, Ops, Timeline

if TYPE_CHECKING:
    import pandas as pd

OVERLAPPING = 0.5  # of matched collectives; if fewer overlap in time, clocks or matches are wrong
SHIFTS = 1000  # positions tried to align a rank's collectives with those of a rank that has seen fewer

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
        nccl-tests defines it (`collective.traffic`). None without any, or if ranks are missing."""
        carried, wire = 0.0, 0
        for (_, name), moved, members, ns in zip(
            self.keys, self.moved.tolist(), self.taking_part.sum(axis=1).tolist(), self.wire_ns.tolist(), strict=True
        ):
            operation = _OPERATION.search(name)
            if operation and moved > 0 and ns > 0:
                carried += moved * collective.traffic(_OPERATIONS[operation.lastindex - 1], members)
                wire += ns
        return carried / (wire / 1e9) if wire and self.complete else None


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for.

    Attributes:
        column, label: which. last: how often it is the one that waits least, of `of` steps or collectives (`per`).
        behind_ns: median over those of what the others waited on average.
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

    Where ranks have seen different numbers of them, the first are matched or, on aligned clocks, those that end closest
    to each other; `remarks` says so.
    """
    ops = [_collectives(one) for one in timelines]
    grouped = all(np.all(one.group >= 0) for one in ops)
    found = [_by_key(one, grouped) for one in ops]
    aligned = all(one.aligned for one in timelines)
    steps = [phases.steps(one.ranges) for one in timelines]
    keys: list[Key] = []
    blocks, unequal = [_Block.empty(0, len(ops))], []
    for key in dict.fromkeys(key for by_key in found for key in by_key):
        places = {column: by_key[key] for column, by_key in enumerate(found) if key in by_key}
        counts = list(map(len, places.values()))
        if len(places) == 1 or len(set(counts)) > 1:
            unequal.append((key, counts))
        if len(places) == 1:
            continue
        if len(set(counts)) > 1:
            places = _shortened(places, {column: ops[column].end[place] for column, place in places.items()}, aligned)
        blocks.append(_Block.of(places, ops, steps))
        keys += [key] * min(counts)
    whole = _Block(*map(np.concatenate, zip(*(vars(block).values() for block in blocks), strict=True)))
    world = max((one.world_size or 0 for one in timelines), default=0)
    seen = len({one.place for one in timelines})
    remarks = [*_unequal(unequal, aligned)]
    if world > seen:
        remarks.append(f"{seen} of {world} ranks were profiled: wire time is an upper bound")
    if aligned and keys and (together := whole.overlapping()) < OVERLAPPING:
        remarks.append(
            f"only {together:.0%} of matched collectives overlap in time: the ranks' clocks differ, or matches are wrong"
        )
    return Collectives(_labels(timelines), tuple(keys), **vars(whole), complete=world <= seen, remarks=tuple(remarks))


def straggler(found: Collectives) -> Straggler | None:
    """The rank that the others wait for; None if nobody waits.

    Where steps are known they count, as the collectives of a step are late together: the waiting of a rank in a step is
    summed, and the rank that waits least is the last. Otherwise each collective counts. Ties count for no rank.
    """
    whole = found.taking_part.all(axis=1)
    waiting, step = found.waiting_ns[whole], found.step[whole]
    stepped = step >= 0
    if stepped.any():
        _, place = np.unique(step[stepped], return_inverse=True)
        summed = np.zeros((place.max() + 1, waiting.shape[1]), np.int64)
        np.add.at(summed, place, waiting[stepped])
        waiting = summed
    total, ranks = int(waiting.sum()), waiting.shape[1]
    alone = (waiting == waiting.min(axis=1, keepdims=True)).sum(axis=1) == 1
    late = np.where(alone, np.argmin(waiting, axis=1), -1)
    if not total or not alone.any():
        return None
    caused = [int(waiting[late == rank].sum()) for rank in range(ranks)]
    rank = int(np.argmax(caused))
    turns = waiting[late == rank]
    if not len(turns):
        return None
    return Straggler(
        rank,
        found.labels[rank],
        len(turns),
        len(waiting),
        "step" if stepped.any() else "collective",
        float(np.median(turns.sum(axis=1) / (ranks - 1))),
        caused[rank] / total,
        ranks,
    )


def exposed(timeline: Timeline, found: Collectives, column: int) -> Exposed:
    """What of the communication of this rank, which is that column, is exposed.

    Moments that are several of them count as the wire's first, then as waiting.
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
        intervals.length(some) - int(intervals.overlap(*some, compute).sum())
        for some in (wire, waiting, timeline.ops.union(COMMUNICATION))
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
    rows = []
    for column, one in enumerate(timelines):
        shown = exposed(one, found, column)
        rows.append(
            {
                "rank": one.rank,
                "device": one.device,
                "collectives": part[:, column].sum(),
                "wire_ns": found.wire_ns[part[:, column]].sum(),
                "waiting_ns": waiting[:, column].sum(),
                "exposed_wire_ns": shown.wire_ns,
                "exposed_waiting_ns": shown.waiting_ns,
                "exposed_other_ns": shown.other_ns,
                "last": last[:, column].sum(),
            }
        )
    return pd.DataFrame(rows).astype("Int64")


@dataclass(frozen=True)
class _Block:
    """Rows of `Collectives`."""

    start: np.ndarray
    end: np.ndarray
    moved: np.ndarray
    step: np.ndarray

    @classmethod
    def empty(cls, size: int, ranks: int) -> _Block:
        return cls(*(np.full(shape, -1, np.int64) for shape in ((size, ranks), (size, ranks), size, size)))

    @classmethod
    def of(cls, places: dict[int, np.ndarray], ops: list[Ops], steps: list[intervals.Set]) -> _Block:
        """`places`: of each column as many entries of its `ops`. Steps are those of the first column that marks some."""
        found = cls.empty(len(next(iter(places.values()))), len(ops))
        for column, place in places.items():
            found.start[:, column], found.end[:, column] = ops[column].start[place], ops[column].end[place]
            np.maximum(found.moved, ops[column].moved[place], out=found.moved)
        column = next((column for column in places if len(steps[column][0])), None)
        if column is not None:
            begin, end = steps[column]
            own = ops[column].where(places[column])
            launched = np.where(own.launched >= 0, own.launched, own.start)
            step = np.searchsorted(begin, launched, side="right") - 1
            found.step[:] = np.where((step >= 0) & (launched < end[step]), step, -1)
        return found

    def overlapping(self) -> float:
        """Share of the collectives that are in progress on all their ranks at one time."""
        part = self.start >= 0
        begun = np.where(part, self.start, np.iinfo(np.int64).min).max(axis=1)
        ended = np.where(part, self.end, np.iinfo(np.int64).max).min(axis=1)
        return float(np.mean(begun < ended))


def _collectives(timeline: Timeline) -> Ops:
    if timeline.ops is None:
        return Ops.of(*(np.empty(0, np.int64),) * 3)
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


def _unequal(found: Sequence[tuple[Key, list[int]]], aligned: bool) -> Sequence[str]:
    how = "those that end together are matched" if aligned else "the first are matched, which may be wrong"
    remarks = []
    for (group, name), counts in found[:3]:
        many = f"ranks have seen {min(counts)} to {max(counts)}: {how}"
        many = f"one rank only has {counts[0]}, left out" if len(counts) == 1 else many
        remarks.append(f"{name}{f' of group {group}' if group else ''}: {many}")
    if len(found) > 3:
        remarks.append(f"{len(found) - 3} more kinds of collectives are not the same number on all ranks")
    return remarks


def _chance(last: int, of: int, ranks: int) -> float:
    """Upper bound of the probability that some one of `ranks` equal ranks is last in `last` or more of `of` turns
    (Chernoff 1952, and a union bound over the ranks)."""
    share, fair = last / of, 1 / ranks
    if share <= fair:
        return 1.0
    rest = (1 - share) * math.log((1 - share) / (1 - fair)) if share < 1 else 0.0
    return min(1.0, ranks * math.exp(-of * (share * math.log(share / fair) + rest)))
