"""Where a device's time went: computing, communicating, moving memory, standing still.

Every number is the length of a union of intervals, so what runs side by side counts once. Busy is any work, of memory
operations too; compute is neither communication nor memory. Work of unknown kind (CUDA graphs that were traced whole) is
busy and never idle: where there is some, compute and communication are at least what is said, exposed at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from . import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, Ops, Timeline, intervals, phases

if TYPE_CHECKING:
    import pandas as pd

# What `hpc explain --json` says of each rank and device, in this order.
KEYS = (
    "rank", "device", "span_ns", "busy_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "memory_ns",
    "loader_wait_ns",
)  # fmt: skip

NO_COMMUNICATION = "several devices, but no communication kernel was seen: its time is not known, rather than zero"
PARTLY_UNKNOWN = "work of unknown kind (CUDA graphs traced whole): compute and communication are lower bounds"


@dataclass(frozen=True)
class Breakdown:
    """One rank's device, in ns; None: cannot be known.

    Attributes:
        rank, device: as of the timeline.
        span_ns: from the first start to the last end of the device's work.
        busy_ns: some work of any kind. compute_ns: kernels that are not communication.
        communication_ns: communication kernels, waiting for other ranks inside them included.
        exposed_communication_ns: the part of it beside which nothing was computed.
        memory_ns: copies and fills.
        loader_wait_ns: idle, inside the span, while the host was in a data range.
        idle_ns: span less busy. overlapped_ns: communication beside which something was computed.
        unknown_ns: work of unknown kind.
        pageable_copies, pageable_bytes, pageable_ns: copies from or to host memory that is not pinned: how many, what
            they moved, and the union of their times.
        remarks: the timeline's, and what is to be known of these numbers.
    """

    rank: int | None
    device: int | None
    span_ns: int | None = None
    busy_ns: int | None = None
    compute_ns: int | None = None
    communication_ns: int | None = None
    exposed_communication_ns: int | None = None
    memory_ns: int | None = None
    loader_wait_ns: int | None = None
    idle_ns: int | None = None
    overlapped_ns: int | None = None
    unknown_ns: int | None = None
    pageable_copies: int | None = None
    pageable_bytes: int | None = None
    pageable_ns: int | None = None
    remarks: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, int | None]:
        """`KEYS`."""
        return {name: getattr(self, name) for name in KEYS}


def breakdown(timeline: Timeline, *, several: bool = False) -> Breakdown:
    """Where this device's time went, exact at the resolution of its clock.

    Args:
        several: it is one of several devices that train together, whatever its file says of the world's size: then no
            communication kernels means that they were not seen.
    """
    if timeline.ops is None:
        return Breakdown(timeline.rank, timeline.device, remarks=timeline.remarks)
    ops, remarks = timeline.ops, list(timeline.remarks)
    busy, compute, communication, memory, unknown = (
        intervals.union(*ops.intervals(*kinds)) for kinds in ((), (COMPUTE,), (COMMUNICATION,), (MEMORY,), (UNKNOWN,))
    )
    first, last = (int(ops.start.min()), int(ops.end.max())) if len(ops) else (0, 0)
    span = max(last - first, 0)
    overlapped = int(intervals.overlap(*communication, compute).sum())
    waited = phases.windows(timeline.ranges, "data")
    inside = np.clip(waited[0], first, last), np.clip(waited[1], first, last)
    unseen = (several or (timeline.world_size or 1) > 1) and not np.any(ops.kind == COMMUNICATION)
    if unseen and NO_COMMUNICATION not in remarks:
        remarks.append(NO_COMMUNICATION)
    if len(unknown[0]):
        remarks.append(PARTLY_UNKNOWN)
    communicated = intervals.length(communication)
    return Breakdown(
        timeline.rank,
        timeline.device,
        span_ns=span,
        busy_ns=intervals.length(busy),
        compute_ns=intervals.length(compute),
        communication_ns=None if unseen else communicated,
        exposed_communication_ns=None if unseen else communicated - overlapped,
        memory_ns=intervals.length(memory),
        loader_wait_ns=(intervals.length(inside) - int(intervals.overlap(*inside, busy).sum()))
        if len(waited[0])
        else None,
        idle_ns=span - intervals.length(busy),
        overlapped_ns=None if unseen else overlapped,
        unknown_ns=intervals.length(unknown),
        **_pageable(ops),
        remarks=tuple(remarks),
    )


def breakdowns(timelines: Iterable[Timeline]) -> list[Breakdown]:
    """One each, ordered by rank, then device (not known: last)."""
    timelines = list(timelines)
    several = len({one.place for one in timelines}) > 1
    found = [breakdown(one, several=several) for one in timelines]
    return sorted(found, key=lambda one: (one.rank is None, one.rank or 0, one.device is None, one.device or 0))


def table(timelines: Iterable[Timeline]) -> pd.DataFrame:
    """The same as a frame: a row a rank and device, the columns as the attributes, Int64 with NA for what is not known."""
    import pandas as pd

    frame = pd.DataFrame([asdict(one) for one in breakdowns(timelines)], columns=list(Breakdown.__dataclass_fields__))
    return frame.astype({name: "Int64" for name in frame if name != "remarks"})


def _pageable(ops: Ops) -> dict[str, int | None]:
    """None where no copy tells which memory it used; bytes None where one of them does not tell how many."""
    copies = ops.where(ops.copy > 0)
    if len(copies) and np.all(copies.pageable < 0):
        return {}
    slow = copies.where(copies.pageable == 1)
    moved = None if np.any(slow.moved < 0) else int(slow.moved.sum())
    time = intervals.length(intervals.union(slow.start, slow.end))
    return {"pageable_copies": len(slow), "pageable_bytes": moved, "pageable_ns": time}
