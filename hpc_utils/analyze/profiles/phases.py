"""Phases of training: the host's ranges that mark them, and the device's work in them.

A range is recognised by its name, in any case, with any number or arguments behind it and any # around it (`step 12`,
`ProfilerStep#12`, `forward, op_id = 3`, `## forward ##`). The names are those of our trainer, of PyTorch's profiler, and the
most common ones of other programs. Ranges of other names are no phases.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from . import intervals
from .timeline import Events, Timeline

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


@functools.lru_cache(maxsize=65536)
def phase_of(name: str) -> Phase | None:
    """The phase that a range of this name is."""
    name = name.partition(",")[0][:_LONGEST]
    match = _PHASE.fullmatch(_SEPARATORS.sub("_", _NUMBER.sub("", name.strip(" #")).lower()))
    return Phase(match.lastgroup) if match else None


def ranges(start: Sequence[int], end: Sequence[int], names: Sequence[str], threads: Sequence[int | str]) -> Events:
    """Marked ranges of a process. If a thread is in another phase than data, data ranges of threads that are not are dropped:
    they prefetch, and the loop does not wait for them."""
    marks = list(zip(map(phase_of, names), threads, strict=True))
    training = {thread for phase, thread in marks if phase not in (None, Phase.DATA)}
    waited_for = [phase != Phase.DATA or not training or thread in training for phase, thread in marks]
    return Events.ranges(*(list(itertools.compress(column, waited_for)) for column in (start, end, names)))


def of_phases(ranges: Events, *phases: Phase) -> Events:
    """The ranges that mark one of these phases."""
    wanted = np.array([phase_of(name) in phases for name in ranges.names], bool)
    return ranges.where(wanted[ranges.name])


def windows(ranges: Events, *phases: Phase) -> intervals.Set:
    """When at least one thread of the process was in one of these phases."""
    return of_phases(ranges, *phases).union()


def marked(ranges: Events) -> list[Phase]:
    """The phases that occur."""
    return [phase for phase in Phase if len(of_phases(ranges, phase))]


def phase_table(timelines: Iterable[Timeline]) -> pd.DataFrame:
    """The phases that occur in each, in the order of `Phase`: rank, device, phase, count, host_ns, device_ns, ops.

    count: its ranges. host_ns: time in which at least one thread was in it. device_ns: time in which the device ran what any
    thread launched meanwhile (autograd launches the backward pass from a separate thread). ops: how many operations
    these are. NA: no device, or no launch times.
    """
    import pandas as pd

    columns = ["rank", "device", "phase", "count", "host_ns", "device_ns", "ops"]
    rows = []
    for timeline in timelines:
        ops = timeline.ops
        for phase in marked(timeline.ranges):
            window = windows(timeline.ranges, phase)
            count = len(of_phases(timeline.ranges, phase))
            row = [timeline.rank, timeline.device, phase, count, intervals.length(window), None, None]
            if ops is not None and not (len(ops) and np.all(ops.launched < 0)):
                meanwhile = ops.where(intervals.holds(ops.launched, window))  # -1, not known, is before all windows
                row[-2:] = intervals.length(meanwhile.union()), len(meanwhile)
            rows.append(row)
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({name: "Int64" for name in columns if name != "phase"})


def steps(ranges: Events) -> intervals.Set:
    """The steps that the program marked, in order. A step inside a step is the same one, marked by another library. None if they
    cover less than half of the time from the first to the last, as ranges around the optimizer's step do."""
    step_ranges = of_phases(ranges, Phase.STEP)
    order = np.lexsort((-step_ranges.end, step_ranges.start))
    start = step_ranges.start[order]
    end = step_ranges.end[order]
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))[:-1]
    outer = (end > before) & (end > start)
    outer &= 2 * (end - start)[outer].sum() >= end.max(initial=0) - start[:1].sum()
    return start[outer], end[outer]


def specific(host: Events, ranges: Events) -> Events:
    """Those of `host` that hold no step which `ranges` mark: a step, an epoch or a main program's frame says nothing of a moment in it."""
    start, end = steps(ranges)
    ends = np.append(end, np.iinfo(np.int64).max)
    return host.where(ends[np.searchsorted(start, host.start)] > host.end)
