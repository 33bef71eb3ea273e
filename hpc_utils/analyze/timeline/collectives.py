"""Collectives matched across ranks: what the wire took, and what ranks waited for each other.

A rank that comes early to a collective waits inside its kernel until the last one is there. The last one does not wait:
so the shortest duration of a collective over its ranks approximates its time on the wire, and what another rank's kernel
took longer is waiting. Durations need no common clock. On each rank waiting comes first: its kernel's last `wire` ns are
the wire's, what is before them is waiting.

Collectives are matched by process group and name, in the order of their occurrence. Sends and receives are left out:
they are pairs of ranks, whose waiting belongs to the schedule (pipelines), not to stragglers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from hpc_utils import allreduce_cost

from . import COMMUNICATION, COMPUTE, Ops, Timeline, intervals, phases

if TYPE_CHECKING:
    import pandas as pd

_PAIRS = re.compile(r"send|recv|p2p|point_?to_?point", re.I)
# RCCL's kernels are called the same whatever they do: their operation is not known.
_OPERATION = re.compile(r"(all_?reduce)|(all_?gather)|(reduce_?scatter)|(broadcast)|(reduce)", re.I)
_OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce")

CHANCE = (
    0.01  # a rank that is the last as often or more by chance, with less than this probability, is so systematically
)
CAUSED = 0.5  # ... if the others' waiting for it is more than this share of all waiting
OVERLAPPING = 0.5  # of matched collectives; if fewer overlap in time, clocks or matches are wrong
SHIFTS = 1000  # places that a rank's collectives are moved by at most to match another's that has fewer


@dataclass(frozen=True)
class Collectives:
    """Matched collectives of several ranks, one row each, in order of their group, name and occurrence.

    Attributes:
        ranks, devices: of the columns. labels: what to call them.
        names: kernel names of the rows. groups: process groups, "" if not known.
        start, end: (rows, ranks) int64 ns, each on its rank's clock; -1 where a rank takes no part.
        moved: (rows,) int64 bytes of the message, the largest that a rank tells; -1: not known.
        turn: (rows,) int64, the step it belongs to; -1: in none, or the program marked no steps.
        remarks: what to be careful about.
    """

    ranks: tuple[int | None, ...]
    devices: tuple[int | None, ...]
    labels: tuple[str, ...]
    names: tuple[str, ...]
    groups: tuple[str, ...]
    start: np.ndarray
    end: np.ndarray
    moved: np.ndarray
    turn: np.ndarray
    remarks: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.names)

    @property
    def taking_part(self) -> np.ndarray:
        """(rows, ranks) bool."""
        return self.start >= 0

    @property
    def wire_ns(self) -> np.ndarray:
        """(rows,) int64: the shortest duration over the ranks."""
        durations = np.where(self.taking_part, self.end - self.start, np.iinfo(np.int64).max)
        return durations.min(axis=1) if len(self) else np.empty(0, np.int64)

    @property
    def waiting_ns(self) -> np.ndarray:
        """(rows, ranks) int64: each rank's duration less the wire's; 0 where it takes no part."""
        return np.where(self.taking_part, self.end - self.start - self.wire_ns[:, None], 0)

    @property
    def bus_bandwidth(self) -> float | None:
        """byte/s that each rank's link carried in the wire time of all collectives whose operation and size are known, as
        nccl-tests defines it (`allreduce_cost.traffic`); None if there are none of these, or ranks are missing."""
        if any(remark.startswith(_MISSING) for remark in self.remarks):
            return None
        operations, members, wire = _operations(self.names), self.taking_part.sum(axis=1), self.wire_ns
        known = [row for row in range(len(self)) if operations[row] and self.moved[row] > 0 and wire[row] > 0]
        carried = sum(
            int(self.moved[row]) * allreduce_cost.traffic(operations[row], int(members[row])) for row in known
        )
        return carried / (int(wire[known].sum()) / 1e9) if known else None


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for.

    Attributes:
        rank, device, label: which. last: how often it is the one that waits least, of `of` steps or collectives (`per`).
        behind_ns: what the others waited then on average, the median of those.
        caused: share of all waiting that the others spend on it.
        systematic: it is the last more often than chance explains (Chernoff's bound below 1 %), and for most waiting.
    """

    rank: int | None
    device: int | None
    label: str
    last: int
    of: int
    per: str
    behind_ns: float
    caused: float
    systematic: bool


@dataclass(frozen=True)
class Exposed:
    """Of one rank, in ns, the time beside which nothing was computed: on the wire, waiting for other ranks, and in
    communication that was not matched (sends and receives, ranks that are missing)."""

    wire_ns: int
    waiting_ns: int
    other_ns: int


_MISSING = "of a world of "


def match(timelines: Sequence[Timeline]) -> Collectives:
    """The collectives that at least two of these ranks and devices took part in.

    Where ranks have seen different numbers of them, the first are matched, or on aligned clocks those that end closest
    to each other, and `remarks` says so.
    """
    seen = [(one, _collectives(one)) for one in timelines]
    grouped = all(np.all(ops.group >= 0) for _, ops in seen if len(ops))
    keys = [_keys(ops, grouped) for _, ops in seen]
    aligned = all(one.aligned for one, _ in seen)
    rows, counted = [], []
    for key in dict.fromkeys(key for found in keys for key in found):
        columns = [rank for rank, found in enumerate(keys) if key in found]
        if len(columns) < 2:
            counted.append((key, [len(keys[columns[0]][key])]))
            continue
        places = [keys[rank][key] for rank in columns]
        if len({len(one) for one in places}) > 1:
            counted.append((key, [len(one) for one in places]))
            ends = [seen[rank][1].end[place] for rank, place in zip(columns, places, strict=True)]
            places = _closest(places, ends) if aligned else [one[: min(map(len, places))] for one in places]
        rows.append((key, columns, places))
    found = _filled(timelines, [ops for _, ops in seen], rows)
    return _remarked(found, timelines, counted, aligned)


def straggler(found: Collectives) -> Straggler | None:
    """Whom the ranks wait for; None if nobody waits.

    Steps are counted where they are known, for the collectives of a step are late together: what a rank waits in a step
    is summed, and the one that waits least is the last. Otherwise each collective counts. Ties count for nobody.
    """
    whole = found.taking_part.all(axis=1)
    waiting, turn = found.waiting_ns[whole], found.turn[whole]
    stepped = turn >= 0
    if stepped.any():
        _, place = np.unique(turn[stepped], return_inverse=True)
        summed = np.zeros((place.max() + 1, waiting.shape[1]), np.int64)
        np.add.at(summed, place, waiting[stepped])
        waiting = summed
    total = int(waiting.sum())
    if not total:
        return None
    least = waiting.min(axis=1)
    alone = (waiting == least[:, None]).sum(axis=1) == 1
    late = np.argmin(waiting, axis=1)
    ranks = waiting.shape[1]
    caused = np.array([waiting[alone & (late == rank)].sum() for rank in range(ranks)])
    rank = int(np.argmax(caused))
    turns = alone & (late == rank)
    last, of = int(turns.sum()), len(waiting)
    if not last:
        return None
    behind = waiting[turns].sum(axis=1) / (ranks - 1)
    share = float(caused[rank] / total)
    return Straggler(
        found.ranks[rank],
        found.devices[rank],
        found.labels[rank],
        last,
        of,
        "step" if stepped.any() else "collective",
        float(np.median(behind)),
        share,
        share > CAUSED and _chance(last, of, ranks) < CHANCE,
    )


def exposed(timeline: Timeline, found: Collectives, column: int) -> Exposed:
    """What of the communication of this rank, which is that column, nothing was computed beside.

    Moments that are several of them at once count as the wire's first, then as waiting.
    """
    if timeline.ops is None:
        return Exposed(0, 0, 0)
    part = found.taking_part[:, column]
    start, end = found.start[part, column], found.end[part, column]
    arrived = end - found.wire_ns[part]
    wire = intervals.union(arrived, end)
    waiting = intervals.difference(intervals.union(start, arrived), wire)
    everything = intervals.union(*timeline.ops.intervals(COMMUNICATION))
    compute = intervals.union(*timeline.ops.intervals(COMPUTE))
    on_wire, waited, total = (
        intervals.length(some) - int(intervals.overlap(*some, compute).sum()) for some in (wire, waiting, everything)
    )
    return Exposed(on_wire, waited, total - on_wire - waited)


def table(timelines: Sequence[Timeline], found: Collectives | None = None) -> pd.DataFrame:
    """A row a rank and device: rank, device, collectives, wire_ns, waiting_ns (sums over its collectives), exposed_wire_ns,
    exposed_waiting_ns, exposed_other_ns (`exposed`), last (in how many collectives it alone waited least)."""
    import pandas as pd

    found = match(timelines) if found is None else found
    wire, waiting, part = found.wire_ns, found.waiting_ns, found.taking_part
    least = np.where(part, waiting, np.iinfo(np.int64).max)
    alone = (least == 0).sum(axis=1) == 1
    rows = []
    for column, one in enumerate(timelines):
        shown = exposed(one, found, column)
        rows.append(
            {
                "rank": one.rank,
                "device": one.device,
                "collectives": int(part[:, column].sum()),
                "wire_ns": int(wire[part[:, column]].sum()),
                "waiting_ns": int(waiting[:, column].sum()),
                "exposed_wire_ns": shown.wire_ns,
                "exposed_waiting_ns": shown.waiting_ns,
                "exposed_other_ns": shown.other_ns,
                "last": int(np.sum(alone & (least[:, column] == 0))),
            }
        )
    return pd.DataFrame(rows).astype("Int64")


def _operations(names: Sequence[str]) -> list[str | None]:
    known: dict[str, str | None] = {}
    for name in dict.fromkeys(names):
        found = _OPERATION.search(name)
        known[name] = _OPERATIONS[found.lastindex - 1] if found else None
    return [known[name] for name in names]


def _collectives(timeline: Timeline) -> Ops:
    if timeline.ops is None:
        return Ops.of(np.empty(0), np.empty(0), np.empty(0))
    ops = timeline.ops.of_kind(COMMUNICATION)
    pairs = np.array([bool(_PAIRS.search(name)) for name in ops.names], bool)
    return ops.where(~pairs[ops.name]) if len(ops) else ops


def _keys(ops: Ops, grouped: bool) -> dict[tuple[str, str], np.ndarray]:
    """The places of each group's and name's collectives, in order."""
    group = ops.group.astype(np.int64) if grouped else np.full(len(ops), -1)
    which = (group + 1) * len(ops.names) + ops.name
    found = {}
    for number in np.unique(which).tolist():
        group_number, name = divmod(number, len(ops.names))
        key = (ops.groups[group_number - 1] if group_number else "", ops.names[name])
        found[key] = np.flatnonzero(which == number)
    return found


def _closest(places: list[np.ndarray], ends: list[np.ndarray]) -> list[np.ndarray]:
    """Of each rank as many in a row as the rank with fewest has, where they end closest to that rank's."""
    fewest = min(range(len(places)), key=lambda rank: len(places[rank]))
    size, chosen = len(places[fewest]), []
    for place, end in zip(places, ends, strict=True):
        shifts = range(min(len(place) - size, SHIFTS) + 1)
        apart = [np.median(np.abs(end[shift : shift + size] - ends[fewest])) for shift in shifts]
        shift = int(np.argmin(apart))
        chosen.append(place[shift : shift + size])
    return chosen


def _filled(timelines: Sequence[Timeline], ops: list[Ops], rows: list) -> Collectives:
    sizes = [len(places[0]) for _, _, places in rows]
    start = np.full((sum(sizes), len(ops)), -1, np.int64)
    end, moved = start.copy(), np.full(sum(sizes), -1, np.int64)
    turn = moved.copy()
    marks = [phases.steps(one) for one in timelines]
    first = 0
    for (_, columns, places), size in zip(rows, sizes, strict=True):
        here = slice(first, first + size)
        for rank, place in zip(columns, places, strict=True):
            start[here, rank], end[here, rank] = ops[rank].start[place], ops[rank].end[place]
            moved[here] = np.maximum(moved[here], ops[rank].moved[place])
        told = next((rank for rank in columns if len(marks[rank])), None)
        if told is not None:
            place = places[columns.index(told)]
            asked = np.where(ops[told].launched[place] >= 0, ops[told].launched[place], ops[told].start[place])
            step = np.searchsorted(marks[told].start, asked, side="right") - 1
            turn[here] = np.where((step >= 0) & (asked < marks[told].end[np.maximum(step, 0)]), step, -1)
        first += size
    return Collectives(
        tuple(one.rank for one in timelines),
        tuple(one.device for one in timelines),
        _labels(timelines),
        tuple(key[1] for (key, _, _), size in zip(rows, sizes, strict=True) for _ in range(size)),
        tuple(key[0] for (key, _, _), size in zip(rows, sizes, strict=True) for _ in range(size)),
        start,
        end,
        moved,
        turn,
    )


def _labels(timelines: Sequence[Timeline]) -> tuple[str, ...]:
    """What to call them; with their files where that leaves open which is meant."""
    labels = [one.label for one in timelines]
    unsure = [labels.count(label) > 1 for label in labels]
    files = [PurePath(one.source).name for one in timelines]
    return tuple(
        f"{label} of {file}" if two else label for label, file, two in zip(labels, files, unsure, strict=True)
    )


def _remarked(found: Collectives, timelines: Sequence[Timeline], counted: list, aligned: bool) -> Collectives:
    remarks = []
    for (group, name), counts in counted[:3]:
        which = name + (f" of group {group}" if group else "")
        many = (
            f"one rank only has {counts[0]}, left out"
            if len(counts) == 1
            else f"ranks have seen {min(counts)} to {max(counts)}: "
            + ("those that end together are matched" if aligned else "the first are matched, which may be wrong")
        )
        remarks.append(f"{which}: {many}")
    if len(counted) > 3:
        remarks.append(f"{len(counted) - 3} more kinds of collectives are not the same number on all ranks")
    worlds = {one.world_size for one in timelines if one.world_size}
    seen = len({one.place for one in timelines})
    if worlds and max(worlds) > seen:
        remarks.append(f"{_MISSING}{max(worlds)} ranks {seen} were profiled: wire time is an upper bound")
    if aligned and len(found):
        part = found.taking_part
        begun = np.where(part, found.start, np.iinfo(np.int64).min).max(axis=1)
        ended = np.where(part, found.end, np.iinfo(np.int64).max).min(axis=1)
        together = float(np.mean(begun < ended))
        if together < OVERLAPPING:
            remarks.append(
                f"only {together:.0%} of matched collectives overlap in time: ranks' clocks differ, or they are not the same"
            )
    return Collectives(**{**vars(found), "remarks": tuple(remarks)})


def _chance(last: int, of: int, ranks: int) -> float:
    """At most the probability that some one of `ranks` equal ranks is the last in `last` or more of `of` turns (Chernoff
    1952, and a union bound over the ranks)."""
    share, fair = last / of, 1 / ranks
    if share <= fair:
        return 1.0
    rest = (1 - share) * math.log((1 - share) / (1 - fair)) if share < 1 else 0.0
    return min(1.0, ranks * math.exp(-of * (share * math.log(share / fair) + rest)))
