"""Where a device's time went: computing, communicating, moving memory, idle and why.

Every number is the length of a union of intervals, so concurrent work counts once. Busy is any work, including memory
operations; compute is neither communication nor memory. Work of unknown kind (CUDA graphs that were traced whole) is busy
and never idle: with it, compute and communication are lower bounds, and exposed communication is an upper bound.

Idle time is the gaps in a device's work from the first marked phase on. Launching costs the host up to some hundred microseconds:
a gap of a millisecond has another cause on the host.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import intervals, phases
from .phases import Phase
from .timeline import COMMUNICATION, COMPUTE, MEMORY, NO_MPI, TO_HOST, UNKNOWN, Events, Timeline, world
from .verdict import LATENCY, LONG_GAP

if TYPE_CHECKING:
    import pandas as pd

# What `hpc explain --json` gives for each rank and device, in this order.
KEYS = (
    "rank", "device", "span_ns", "busy_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "memory_ns",
    "loader_wait_ns",
)  # fmt: skip
COLUMNS = (
    *KEYS, "idle_ns", "overlapped_ns", "unknown_ns", "pageable_copies", "between_steps_ns", "otherwise_idle_ns",
    "short_gaps_ns", "longest_gap_ns", "launched_late_ns", "short_late_ns", "returned_ns", "updating_ns", "zeroing_ns",
    "remarks",
)  # fmt: skip

NO_COMMUNICATION = "several devices but no communication kernel: the time of communication is not known"
PARTLY_UNKNOWN = "work of unknown kind (CUDA graphs traced whole): compute and communication are lower bounds"


def breakdown(timeline: Timeline, *, several: bool = False) -> dict[str, Any]:
    """Where this device's time went: `COLUMNS`, in ns, exact at the resolution of its clock; None: not known; and `pauses`.

    span_ns: from the first phase or work, whichever begins earlier, to the last end of the device's work.
    busy_ns: any work. compute_ns: kernels other than communication. memory_ns: copies and fills.
    communication_ns: communication kernels, including the time in which they wait for other ranks.
    exposed_communication_ns: the part of it in which nothing is computed; overlapped_ns: the rest.
    loader_wait_ns: idle while the host was in a data range, before the first work too.
    idle_ns: span less busy. unknown_ns: work of unknown kind.
    pageable_copies: number of copies from or to host memory that is not pinned.
    between_steps_ns: idle outside data ranges, in long gaps in which the host was in no phase, before the end of the last one,
        and in no other range that is shorter than a step. None unless the program marks its steps (or forward with backward or
        optimizer); 0 where PyTorch recorded its DataLoader, whose waits are then measured, not guessed.
    otherwise_idle_ns: the rest of idle. short_gaps_ns: of it, in gaps shorter than `verdict.LONG_GAP`;
        longest_gap_ns: in the longest.
    launched_late_ns: of it, in gaps that the host's launch of what came next ended: it began in the gap, or at most
        `verdict.LATENCY` before their end; short_late_ns: of that, in short gaps; returned_ns: of that, behind a copy to the host, for
        which the host waited. None without launch times.
    updating_ns, zeroing_ns: idle while the host was in the optimizer, and in its zero_grad; 0 if they are not marked.
    pauses: of otherwise_idle_ns in long gaps, by what the host was in: the shortest range, operator, call or frame around half
        of the gap, and the shortest line of the user's, or range, around that; "": nothing was recorded.
    remarks: the timeline's, and what to know about these numbers.

    Args:
        several: it trains together with other devices, whatever the world size in its file. Without communication kernels the
            time of communication is then not known.
    """
    row = dict.fromkeys(COLUMNS) | {"rank": timeline.rank, "device": timeline.device, "remarks": timeline.remarks}
    if (ops := timeline.ops) is None:
        return row
    busy = ops.union()
    compute = ops.union(COMPUTE)
    communication = ops.union(COMMUNICATION)
    first, last = (ops.start[0], busy[1][-1]) if len(busy[0]) else (0, 0)
    first = min(
        [first, *phases.of_phases(timeline.ranges, *Phase).start[:1]]
    )  # the host waits for its first batch, too
    unions = {"busy": busy, "compute": compute, "memory": ops.union(MEMORY), "unknown": ops.union(UNKNOWN)}
    row |= {f"{name}_ns": intervals.length(union) for name, union in unions.items()}
    row |= {"span_ns": int(last - first), "idle_ns": int(last - first) - row["busy_ns"]}
    several = several or (timeline.world_size or 1) > 1 or NO_MPI in timeline.remarks
    if several and not np.any(ops.kind == COMMUNICATION):
        row["remarks"] += (NO_COMMUNICATION,)
    else:
        communication_ns = intervals.length(communication)
        exposed_ns = intervals.outside(communication, compute)
        row |= {
            "communication_ns": communication_ns,
            "exposed_communication_ns": exposed_ns,
            "overlapped_ns": communication_ns - exposed_ns,
        }
    if row["unknown_ns"]:
        row["remarks"] += (PARTLY_UNKNOWN,)
    pageable = ops.pageable[ops.copy > 0]
    if not len(pageable) or np.any(pageable >= 0):
        row["pageable_copies"] = int(np.sum(pageable == 1))
    return row | _idle(timeline, np.append(first, busy[1]), np.append(busy[0], last))


def breakdowns(timelines: Sequence[Timeline]) -> list[dict[str, Any]]:
    """The `breakdown` of each timeline."""
    several = world(timelines)[0] > 1
    return [breakdown(timeline, several=several) for timeline in timelines]


def breakdown_table(timelines: Iterable[Timeline]) -> pd.DataFrame:
    """`breakdowns` as a frame: a row per rank and device, Int64 with NA for what is not known."""
    import pandas as pd

    frame = pd.DataFrame(breakdowns(timelines), columns=COLUMNS)
    return frame.astype({name: "Int64" for name in frame if name != "remarks"})


def _idle(timeline: Timeline, start: np.ndarray, end: np.ndarray) -> dict[str, Any]:
    """`start`, `end`: the gaps, of which the first and the last may be empty."""
    data = phases.windows(timeline.ranges, Phase.DATA)
    loader = int(intervals.overlap(start, end, data).sum()) if len(data[0]) else None
    explained = data
    loader_recorded = any(name.startswith("enumerate(DataLoader)#") for name in timeline.ranges.names)
    between_steps = 0 if loader_recorded else None
    marked = set(phases.marked(timeline.ranges))
    long = end - start >= LONG_GAP
    steps_marked = len(phases.steps(timeline.ranges)[0]) or (
        Phase.FORWARD in marked and marked & {Phase.BACKWARD, Phase.OPTIMIZER}
    )
    if steps_marked and not loader_recorded:
        inside = phases.windows(timeline.ranges, *Phase)
        last = inside[1].max(initial=0)
        gaps = intervals.union(np.minimum(start[long], last), np.minimum(end[long], last))
        named = phases.specific(timeline.ranges, timeline.ranges).union()
        outside_ranges = intervals.difference(intervals.difference(gaps, inside), named)
        between_steps = intervals.length(outside_ranges)
        explained = intervals.union(*map(np.concatenate, zip(data, outside_ranges, strict=True)))
    unexplained = end - start - intervals.overlap(start, end, explained)
    zeroing = timeline.ranges.where(
        np.array(["zero_grad" in name for name in timeline.ranges.names], bool)[timeline.ranges.name]
    ).union()
    updating = intervals.difference(phases.windows(timeline.ranges, Phase.OPTIMIZER), zeroing)
    late = _launched_late(timeline.ops, start, end, unexplained)
    returned = np.isin(start, timeline.ops.end[timeline.ops.copy == TO_HOST])
    chosen = {"launched_late_ns": ..., "short_late_ns": ~long, "returned_ns": ~long & returned}
    return {
        "loader_wait_ns": loader,
        "between_steps_ns": between_steps,
        "otherwise_idle_ns": int(unexplained.sum()),
        "short_gaps_ns": int(unexplained[~long].sum()),
        "longest_gap_ns": int(unexplained.max()),
        **{name: None if late is None else int(late[gaps].sum()) for name, gaps in chosen.items()},
        "updating_ns": int(intervals.overlap(start, end, updating).sum()),
        "zeroing_ns": int(intervals.overlap(start, end, zeroing).sum()),
        "pauses": _pauses(timeline, start[long], end[long], unexplained[long]),
    }


def _pauses(timeline: Timeline, start: np.ndarray, end: np.ndarray, unexplained: np.ndarray) -> Counter[str]:
    """Unexplained ns of these gaps by name, as `breakdown` has them."""
    pauses = Counter()
    marks = {name for name in timeline.ranges.names if "CompiledFxGraph" not in name}  # a hash follows
    host = phases.specific(timeline.host or Events.ranges([], [], []), timeline.ranges)
    for begin, until, ns in zip(start.tolist(), end.tolist(), unexplained.tolist(), strict=True):
        inside = np.minimum(host.end, until) - np.maximum(host.start, begin)
        covering = np.flatnonzero(2 * inside >= until - begin)[::-1]
        inner_first = covering[np.argsort((host.end - host.start)[covering], kind="stable")]
        names = [host.names[number] for number in host.name[inner_first]]
        lines = [name for name in names if _is_users_line(name)] or [name for name in names if name in marks]
        pauses[" in ".join(dict.fromkeys([*names[:1], *lines[:1]]))] += ns
    return +pauses


def _is_users_line(name: str) -> bool:
    """Whether it is Kineto's frame of a Python file, as "train.py(12): step", outside of PyTorch and Python's own modules."""
    module = re.match(r"(?:.*/(?:site|dist)-packages/)?(.*?)[/.].*\(\d+\): ", name)
    return bool(module) and module[1] not in {"torch", "<frozen importlib", *sys.stdlib_module_names}


def _launched_late(ops: Events, start: np.ndarray, end: np.ndarray, unexplained: np.ndarray) -> np.ndarray | None:
    """Unexplained ns of each gap if the launch of the work behind it ended it, else 0."""
    if len(ops) and np.all(ops.launched < 0):
        return None
    launched = np.append(ops.launched, -1)[np.searchsorted(ops.start, end)]
    return np.where((launched >= 0) & (launched >= np.minimum(start, end - LATENCY)), unexplained, 0)
