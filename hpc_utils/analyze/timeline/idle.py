"""What a device stands still for: the loader, launches that come late, or something between the steps.

Gaps between its busy moments only, inside its span. Launching costs the host microseconds to some hundred of them: a gap
of a millisecond is something else that the host did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import Timeline, intervals, phases

LONG_GAP = 1_000_000  # ns


@dataclass(frozen=True)
class Idle:
    """One device, in ns; None: cannot be known.

    Attributes:
        total_ns: idle inside the span. loader_ns: while the host was in a data range.
        outside_ns: of the rest, in long gaps while the host was in no phase at all; None unless the program marks its
            steps (or forward with backward or optimizer), for else nothing would be inside.
        short_ns: of what then remains, in gaps shorter than `LONG_GAP`.
        late_ns: of what remains, before the host had launched what came next. None without launch times.
        remaining_ns: what remains.
    """

    total_ns: int
    loader_ns: int | None
    outside_ns: int | None
    short_ns: int
    late_ns: int | None
    remaining_ns: int


def idle(timeline: Timeline) -> Idle | None:
    """None without events of a GPU."""
    ops = timeline.ops
    if ops is None:
        return None
    busy = intervals.union(ops.start, ops.end)
    start, end = busy[1][:-1], busy[0][1:]
    data = phases.windows(timeline.ranges, "data")
    in_data = intervals.overlap(start, end, data)
    explained, in_none = data, None
    if _marked(timeline):
        anything = phases.windows(timeline.ranges, *phases.PHASES)
        long = end - start >= LONG_GAP
        nowhere = intervals.difference((start[long], end[long]), anything)
        in_none = intervals.length(nowhere)
        explained = intervals.union(*(np.concatenate(pair) for pair in zip(data, nowhere, strict=True)))
    left = end - start - intervals.overlap(start, end, explained)
    return Idle(
        total_ns=int((end - start).sum()),
        loader_ns=int(in_data.sum()) if len(data[0]) else None,
        outside_ns=in_none,
        short_ns=int(left[end - start < LONG_GAP].sum()),
        late_ns=_late(timeline, start, end, explained),
        remaining_ns=int(left.sum()),
    )


def _marked(timeline: Timeline) -> bool:
    found = {phase.name for phase in phases.phases(timeline.but(ops=None))}
    return "step" in found or ("forward" in found and bool(found & {"backward", "optimizer"}))


def _late(timeline: Timeline, start: np.ndarray, end: np.ndarray, explained: intervals.Set) -> int | None:
    ops = timeline.ops
    if len(ops) and np.all(ops.launched < 0):
        return None
    asked = ops.launched[np.searchsorted(ops.start, end, side="left")] if len(end) else end
    until = np.where(asked < 0, start, np.clip(asked, start, end))
    return int((until - start - intervals.overlap(start, until, explained)).sum())
