"""Phases of training: the host's ranges that mark them, and the device's work in them.

A range is recognised by its name, in any case and with any number or arguments behind it (`step 12`, `ProfilerStep#12`,
`forward, op_id = 3`). The names are those of our trainer, of PyTorch's profiler, and the most common ones of other
programs. Ranges of other names are no phases.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from . import intervals
from .timeline import Ranges, Timeline

if TYPE_CHECKING:
    import pandas as pd


class Phase(StrEnum):
    STEP = "step"
    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


PARTS = tuple(Phase)[1:]  # of a step

# After lowering, with spaces, dots and hyphens as `_`.
_NAMES = {
    "step": r"profilerstep|(?:train_|training_)?(?:step|iteration|iter)",
    # `data copy in`: of NERSC's and NVIDIA's courses, where the host copies the batch to the device.
    "data": r"data|data_?loader|data_?load(?:ing)?|data_wait|load_(?:data|batch)|(?:get|next|fetch)_batch|data_copy_in"
    r"|enumerate\(dataloader\)#\w+",
    "forward": r"(?:distributeddataparallel_|fullyshardeddataparallel_)?forward(?:_pass)?|fwd(?:_pass)?",
    "backward": r"backward(?:_pass)?|bwd(?:_pass)?",
    "optimizer": r"(?:optimizer|optim|opt)(?:_step)?|optimizer_(?:step|zero_grad)#\w+",
}
_PHASE = re.compile("|".join(f"(?P<{phase}>{names})" for phase, names in _NAMES.items()))
_NUMBER = re.compile(r"[ _#:=]*\d+$")
_SEPARATORS = re.compile(r"[ .-]+")
_LONGEST = 100  # characters of a phase's name


@dataclass(frozen=True)
class Spent:
    """One phase of one rank.

    Attributes:
        count: its ranges. host_ns: time in which at least one thread was in it.
        device_ns: time in which the device ran what any thread launched meanwhile (autograd launches the backward pass
            from a separate thread). ops: how many operations these are. None: no device, or no launch times.
    """

    phase: Phase
    count: int
    host_ns: int
    device_ns: int | None = None
    ops: int | None = None


def phase_of(name: str) -> Phase | None:
    """The phase that a range of this name is."""
    return _phase_of(name.partition(",")[0])


def windows(ranges: Ranges, *phases: Phase) -> intervals.Set:
    """When at least one thread of the process was in one of these phases."""
    chosen = _chosen(ranges, *phases)
    return intervals.union(ranges.start[chosen], ranges.end[chosen])


def marked(ranges: Ranges) -> list[Phase]:
    """The phases that occur."""
    return [phase for phase in Phase if _chosen(ranges, phase).any()]


def spent(timeline: Timeline) -> list[Spent]:
    """The phases that occur, in the order of `Phase`."""
    return [_spent(timeline, phase) for phase in marked(timeline.ranges)]


def steps(ranges: Ranges) -> intervals.Set:
    """The steps that the program marked, in order. A step inside a step is the same one, marked by another library."""
    chosen = _chosen(ranges, Phase.STEP)
    start, end = ranges.start[chosen], ranges.end[chosen]
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))[:-1]
    outer = (end > before) & (end > start)
    return start[outer], end[outer]


def table(timelines: Iterable[Timeline]) -> pd.DataFrame:
    """A row per rank, device and phase: rank, device, phase, count, host_ns, device_ns, ops; NA: not known."""
    import pandas as pd

    rows = [{"rank": one.rank, "device": one.device} | vars(phase) for one in timelines for phase in spent(one)]
    columns = ["rank", "device", *Spent.__dataclass_fields__]
    return pd.DataFrame(rows, columns=columns).astype({name: "Int64" for name in columns if name != "phase"})


@functools.lru_cache(maxsize=65536)
def _phase_of(name: str) -> Phase | None:
    if len(name) > _LONGEST:
        return None
    plain = _SEPARATORS.sub("_", _NUMBER.sub("", name.strip()).lower())
    found = _PHASE.fullmatch(plain)
    return Phase(found.lastgroup) if found else None


def _chosen(ranges: Ranges, *phases: Phase) -> np.ndarray:
    """(len(ranges),) bool."""
    wanted = np.array([phase_of(name) in phases for name in ranges.names], bool)
    return wanted[ranges.name] if len(wanted) else np.zeros(len(ranges), bool)


def _spent(timeline: Timeline, phase: Phase) -> Spent:
    window = windows(timeline.ranges, phase)
    host = Spent(phase, int(_chosen(timeline.ranges, phase).sum()), intervals.length(window))
    ops = timeline.ops
    if ops is None or (len(ops) and np.all(ops.launched < 0)):
        return host
    meanwhile = ops.where(intervals.holds(ops.launched, window))  # -1, not known, is before all windows
    return replace(host, device_ns=intervals.length(meanwhile.union()), ops=len(meanwhile))
