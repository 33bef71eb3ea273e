"""Collectives matched across ranks: time on the wire, and time that ranks wait for each other.

A rank that starts a collective early waits inside its kernel for the last rank, which does not wait. The shortest duration of
a collective over its ranks therefore approximates its time on the wire, and the rest of a longer kernel is waiting. Durations
need no common clock. On each rank waiting comes first: the last `wire` ns of its kernel are the wire's.

Collectives are matched by process group and name, in the order of their occurrence. Sends and receives are omitted, unless a
collective is made of them: they are between two ranks, whose waiting belongs to the schedule (pipelines), not to stragglers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from . import intervals, kernels, phases
from .timeline import COMMUNICATION, COMPUTE, Events, Timeline, world
from .verdict import CAUSED, CHANCE

if TYPE_CHECKING:
    import pandas as pd

SHIFTS = 1000  # positions tried to align a rank's collectives with those of a rank that recorded fewer

Key = tuple[str, str]  # process group ("": not known), kernel name


@dataclass(frozen=True)
class Collectives:
    """Matched collectives of several ranks, a row each, ordered by group, name and occurrence.

    Attributes:
        labels: of the columns. keys: process group and kernel name of each row.
        start, end: (rows, ranks) int64 ns, on each rank's clock; -1 where a rank does not take part.
        step: (rows,) int64, the step it belongs to; -1: none, or the program marked no steps.
        remarks: what limits these numbers.
    """

    labels: tuple[str, ...]
    keys: tuple[Key, ...]
    start: np.ndarray
    end: np.ndarray
    step: np.ndarray
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
    def in_groups(self) -> bool:
        """Whether ranks wait mostly in collectives that some of them do not take part in, as those of several process groups."""
        waiting = self.waiting_ns
        return 2 * waiting[self.taking_part.all(axis=1)].sum() < waiting.sum()

    @property
    def waiting_ns(self) -> np.ndarray:
        """(rows, ranks) int64: each rank's duration less the wire's; 0 where it does not take part."""
        return np.where(self.taking_part, self.end - self.start - self.wire_ns[:, None], 0)


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


def match(timelines: Sequence[Timeline]) -> Collectives:
    """The collectives that at least two of these ranks and devices took part in.

    Where ranks recorded different numbers of them, the first are matched or, on aligned clocks, those that end closest
    to each other, with a remark.
    """
    ops = [_collectives(timeline) for timeline in timelines]
    grouped = all(np.all(events.group >= 0) for events in ops)
    aligned = all(timeline.aligned for timeline in timelines)
    events_by_key = [_by_key(events, grouped) for events in ops]
    steps = [phases.steps(timeline.ranges) for timeline in timelines]
    keys, remarks = [], []
    parts = [(*np.empty((2, 0, len(ops)), np.int64), np.empty(0, np.int64))]  # start, end, step
    for key in dict.fromkeys(key for rank_events in events_by_key for key in rank_events):
        ranks = {column: rank_events[key] for column, rank_events in enumerate(events_by_key) if key in rank_events}
        if len(ranks) == 1:
            remarks.append(f"{kernels.short(key[1])}: recorded by one rank only, and not matched")
            continue
        fewest, most = (bound(map(len, ranks.values())) for bound in (min, max))
        if fewest < most:
            how = "those that end together are matched" if aligned else "the first are matched, which may be wrong"
            remarks.append(f"{kernels.short(key[1])}: ranks recorded {fewest} to {most}: {how}")
            ranks = _shortened(ranks, aligned)
        start, end = np.full((2, fewest, len(ops)), -1)
        for column, events in ranks.items():
            start[:, column] = events.start
            end[:, column] = events.end
        marked = [_step(events, steps[column]) for column, events in ranks.items() if len(steps[column][0])]
        step = marked[0] if marked else np.full(fewest, -1)
        parts.append((start, end, step))
        keys += [key] * fewest
    start, end, step = map(np.concatenate, zip(*parts, strict=True))
    profiled, size = world(timelines)
    if size > profiled:
        remarks.append(f"{profiled} of {size} ranks were profiled: transfer time is an upper bound")
    labels = tuple(timeline.label for timeline in timelines)
    return Collectives(labels, tuple(keys), start, end, step, tuple(remarks))


def straggler(matched: Collectives) -> Straggler | None:
    """The rank that the others wait for; None if no rank waits, or if they wait `in_groups`.

    Where steps are known they count, as the collectives of a step are late together: a rank's waiting in a step is the union of
    that in its collectives, some of which run at the same time, and the rank that waits least is the last. Otherwise each
    collective counts. Ties count for no rank.
    """
    if matched.in_groups:
        return None
    complete_rows = matched.taking_part.all(axis=1)
    start = matched.start[complete_rows]
    waiting = matched.waiting_ns[complete_rows]
    step = matched.step[complete_rows]
    stepped = step >= 0
    if stepped.any():
        rows = [step == number for number in np.unique(step[stepped])]
        waits = [zip(start[chosen].T, (start + waiting)[chosen].T, strict=True) for chosen in rows]
        waiting = np.array([[intervals.length(intervals.union(*wait)) for wait in of_ranks] for of_ranks in waits])
    ranks = waiting.shape[1]
    single_minimum = (waiting == waiting.min(axis=1, keepdims=True)).sum(axis=1) == 1
    late = np.where(single_minimum, np.argmin(waiting, axis=1), -1)
    caused = [int(waiting[late == rank].sum()) for rank in range(ranks)]
    rank = int(np.argmax(caused))
    turns = waiting[late == rank]
    if not caused[rank]:
        return None
    behind = float(np.median(turns.sum(axis=1) / (ranks - 1)))
    per = "step" if stepped.any() else "collective"
    share = caused[rank] / int(waiting.sum())
    return Straggler(rank, matched.labels[rank], len(turns), len(waiting), per, behind, share, ranks)


def exposed(timeline: Timeline, matched: Collectives, column: int) -> tuple[int, int]:
    """Time of the rank in that column of `matched` in which it computes nothing: (ns on the wire, ns waiting for
    other ranks). A moment that is both counts as the wire's."""
    if timeline.ops is None:
        return 0, 0
    part = matched.taking_part[:, column]
    start = matched.start[part, column]
    end = matched.end[part, column]
    arrived = end - matched.wire_ns[part]
    wire = intervals.union(arrived, end)
    waiting = intervals.difference(intervals.union(start, arrived), wire)
    compute = timeline.ops.union(COMPUTE)
    return intervals.outside(wire, compute), intervals.outside(waiting, compute)


def collectives_table(timelines: Sequence[Timeline]) -> pd.DataFrame:
    """A row per rank and device: rank, device, collectives, wire_ns, waiting_ns (sums over its collectives), exposed_wire_ns,
    exposed_waiting_ns (`exposed`), last (in how many collectives it alone waited least)."""
    import pandas as pd

    matched = match(timelines)
    part = matched.taking_part
    waiting = matched.waiting_ns
    least = part & (waiting == 0)
    exposed_ns = np.array([exposed(timeline, matched, column) for column, timeline in enumerate(timelines)]).reshape(
        -1, 2
    )
    columns = {
        "rank": [timeline.rank for timeline in timelines],
        "device": [timeline.device for timeline in timelines],
        "collectives": part.sum(axis=0),
        "wire_ns": matched.wire_ns @ part,
        "waiting_ns": waiting.sum(axis=0),
        "exposed_wire_ns": exposed_ns[:, 0],
        "exposed_waiting_ns": exposed_ns[:, 1],
        "last": least[least.sum(axis=1) == 1].sum(axis=0),
    }
    return pd.DataFrame(columns).astype("Int64")


def _collectives(timeline: Timeline) -> Events:
    ops = (timeline.ops or Events.ranges([], [], [])).of_kind(COMMUNICATION)
    pairs = [number for number, name in enumerate(ops.names) if kernels.PAIRS.search(name)]
    return ops.where(~np.isin(ops.name, pairs))


def _by_key(ops: Events, grouped: bool) -> dict[Key, Events]:
    """Each group's and name's collectives, in order."""
    group = ops.group if grouped else np.full(len(ops), -1)
    return {
        (ops.groups[number] if number >= 0 else "", ops.names[name]): ops.where(
            (group == number) & (ops.name == name)
        )
        for number, name in sorted(set(zip(group.tolist(), ops.name.tolist(), strict=True)))
    }


def _shortened(ranks: dict[int, Events], aligned: bool) -> dict[int, Events]:
    """Each rank's collectives, cut to the count of the rank with fewest: a row that ends closest, or the first."""
    fewest = min(ranks.values(), key=len)
    chosen = {}
    size = len(fewest)
    for column, events in ranks.items():
        shifts = range(min(len(events) - size, SHIFTS) + 1 if aligned else 1)
        apart = [np.median(np.abs(events.end[shift : shift + size] - fewest.end)) for shift in shifts]
        shift = int(np.argmin(apart))
        chosen[column] = events.where(np.arange(shift, shift + size))
    return chosen


def _step(ops: Events, steps: intervals.Set) -> np.ndarray:
    """The step in which each was launched, or ran if that is not known; -1: none."""
    start, end = steps
    moment = np.where(ops.launched >= 0, ops.launched, ops.start)
    step = np.searchsorted(start, moment, side="right") - 1
    return np.where((step >= 0) & (moment < end[step]), step, -1)


def _chance(last: int, turns: int, ranks: int) -> float:
    """Upper bound of the probability that some one of `ranks` equal ranks is last in `last` or more of `turns`
    (Chernoff 1952, and a union bound over the ranks)."""
    share = last / turns
    fair = 1 / ranks
    if share <= fair:
        return 1.0
    complement = (1 - share) * math.log((1 - share) / (1 - fair)) if share < 1 else 0.0
    return min(1.0, ranks * math.exp(-turns * (share * math.log(share / fair) + complement)))
