"""Phases of training: which of the host's ranges they are, what they cost the host, what they had the device do.

A range is known by its name, whatever case it is written in and whatever number or arguments follow it (`step 12`,
`ProfilerStep#12`, `forward, op_id = 3`). The names are those of our own trainer, what PyTorch's profiler writes by itself
and the commonest that people write: `_NAMES`. Another name is no phase: guessing would make times out of anything.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from . import Ranges, Timeline, intervals

if TYPE_CHECKING:
    import pandas as pd

PHASES = ("step", "data", "forward", "backward", "optimizer")

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
_LONGEST = 100  # characters of a name that is looked at


@dataclass(frozen=True)
class Phase:
    """One phase of one rank.

    Attributes:
        name: one of `PHASES`. count: its ranges.
        host_ns: when at least one thread was in it. device_ns: when the device worked at what was launched meanwhile, by
            whatever thread (autograd launches the backward pass from its own); None if it is not known when the work
            was launched, or there is no device.
        ops: operations launched meanwhile; None likewise. unplaced: operations of the device that do not tell when they
            were launched: `device_ns` may miss their time.
    """

    name: str
    count: int
    host_ns: int
    device_ns: int | None
    ops: int | None
    unplaced: int


@dataclass(frozen=True)
class Steps:
    """The steps of one rank, in order.

    Attributes:
        start, end: int64 ns, of the host's step ranges; those inside others are left out.
        device_ns: int64, from the first start to the last end of what was launched in each step; -1: nothing was. None
            if launch times are not known.
    """

    start: np.ndarray
    end: np.ndarray
    device_ns: np.ndarray | None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def host_ns(self) -> np.ndarray:
        """int64: how long each took the host."""
        return self.end - self.start


def phase_of(name: str) -> str | None:
    """The phase that a range of this name is; None: none."""
    return _phase_of(name.partition(",")[0])


def windows(ranges: Ranges, *phases: str) -> intervals.Set:
    """When at least one thread of the process was in one of these phases."""
    chosen = _chosen(ranges, *phases)
    return intervals.union(ranges.start[chosen], ranges.end[chosen])


def phases(timeline: Timeline) -> list[Phase]:
    """Those that occur, in the order of `PHASES`."""
    return [_phase(timeline, name) for name in PHASES if _chosen(timeline.ranges, name).any()]


def steps(timeline: Timeline) -> Steps:
    """The steps that the program marked; none if it marked none."""
    ranges = timeline.ranges
    chosen = _chosen(ranges, "step")
    start, end = ranges.start[chosen], ranges.end[chosen]
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    outer = (end > reached) & (end > start)  # a step inside a step is the same one, told by somebody else
    start, end = start[outer], end[outer]
    return Steps(start, end, _device_steps(timeline, start, end))


def distribution(ns: Sequence[int] | np.ndarray) -> dict[str, float]:
    """count, and median, p95, p99 and max in ns (quantiles linear between neighbours); NaN without any."""
    ns = np.asarray(ns, float)
    values = np.quantile(ns, [0.5, 0.95, 0.99, 1.0]).tolist() if len(ns) else [float("nan")] * 4
    return {"count": len(ns)} | dict(zip(("median", "p95", "p99", "max"), values, strict=True))


def table(timelines: Iterable[Timeline]) -> pd.DataFrame:
    """A row a rank, device and phase: rank, device, phase, count, host_ns, device_ns, ops, unplaced; NA: not known."""
    import pandas as pd

    columns = ["rank", "device", "phase", *list(Phase.__dataclass_fields__)[1:]]
    rows = [
        {"rank": one.rank, "device": one.device, "phase": phase.name} | {k: getattr(phase, k) for k in columns[3:]}
        for one in timelines
        for phase in phases(one)
    ]
    return pd.DataFrame(rows, columns=columns).astype({name: "Int64" for name in columns if name != "phase"})


@functools.lru_cache(maxsize=65536)
def _phase_of(name: str) -> str | None:
    if len(name) > _LONGEST:
        return None
    plain = _SEPARATORS.sub("_", _NUMBER.sub("", name.strip()).lower())
    found = _PHASE.fullmatch(plain)
    return found.lastgroup if found else None


@functools.lru_cache(maxsize=32)
def _phases_of(names: tuple[str, ...]) -> np.ndarray:
    """(len(names),) where in `PHASES`, or -1."""
    place = {phase: number for number, phase in enumerate(PHASES)} | {None: -1}
    return np.array([place[phase_of(name)] for name in names], np.int8)


def _chosen(ranges: Ranges, *phases: str) -> np.ndarray:
    """(len(ranges),) bool."""
    wanted = np.isin(_phases_of(tuple(ranges.names)), [PHASES.index(phase) for phase in phases])
    return wanted[ranges.name] if len(wanted) else np.zeros(len(ranges), bool)


def _phase(timeline: Timeline, name: str) -> Phase:
    window = windows(timeline.ranges, name)
    count, host_ns = int(_chosen(timeline.ranges, name).sum()), intervals.length(window)
    ops = timeline.ops
    if ops is None:
        return Phase(name, count, host_ns, None, None, 0)
    unplaced = int(np.sum(ops.launched < 0))
    if len(ops) and unplaced == len(ops):
        return Phase(name, count, host_ns, None, None, unplaced)
    # A moment of launch is 1 ns long: it lies in the window or does not. What is not known (-1) is before all windows.
    inside = intervals.overlap(ops.launched, ops.launched + 1, window) > 0
    device_ns = intervals.length(intervals.union(ops.start[inside], ops.end[inside]))
    return Phase(name, count, host_ns, device_ns, int(inside.sum()), unplaced)


def _device_steps(timeline: Timeline, start: np.ndarray, end: np.ndarray) -> np.ndarray | None:
    ops = timeline.ops
    if ops is None or (len(ops) and np.all(ops.launched < 0)):
        return None
    first = np.full(len(start), np.iinfo(np.int64).max)
    last = np.full(len(start), np.iinfo(np.int64).min)
    if len(start):
        place = np.searchsorted(start, ops.launched, side="right") - 1
        inside = (ops.launched >= 0) & (place >= 0) & (ops.launched < end[place])
        np.minimum.at(first, place[inside], ops.start[inside])
        np.maximum.at(last, place[inside], ops.end[inside])
    return np.where(last > first, last - first, -1)
