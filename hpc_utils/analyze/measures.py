"""What a verdict is judged by: of all devices together what took which share of the time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .timeline import (
    COMMUNICATION,
    COMPUTE,
    MEMORY,
    TO_DEVICE,
    UNKNOWN,
    Timeline,
    collectives,
    idle,
    intervals,
    kernels,
    phases,
)
from .timeline.breakdown import Breakdown, breakdown
from .verdict import COPIES, EFFICIENCY, EXPOSED, LOADER, LOW_INTENSITY, UTILISATION, WAITING, Evidence

# Classes that do few operations a byte on any GPU of the table.
FEW_OPERATIONS = (kernels.ELEMENTWISE, kernels.NORMALISATION, kernels.REDUCTION, kernels.OPTIMIZER, kernels.TRANSFER)
MATRIX = (kernels.CONVOLUTION, kernels.GEMM, kernels.ATTENTION)


@dataclass(frozen=True)
class Counters:
    """Of kernels that Nsight Compute measured, weighted by their time, shares of peaks; NaN: not known.

    Attributes:
        sm, dram, tensor: of the SMs, of the memory's bandwidth, of the tensor pipe. efficiency: of each kernel the peak that
            it is nearest to, be it arithmetic, caches or memory.
    """

    sm: float
    dram: float
    tensor: float
    efficiency: float

    @property
    def moving(self) -> bool | None:
        """Whether the memory's bandwidth is nearer to its peak than the SMs are to theirs; None: not known."""
        return None if math.isnan(self.dram) or math.isnan(self.sm) else self.dram > self.sm

    @classmethod
    def of(cls, measured: Mapping) -> Counters:
        """`measured`: columns as of `ncu.read`."""
        weights = np.asarray(measured["duration_ns"], float)
        sm, memory, dram, tensor = (
            np.asarray(measured[name], float) for name in ("sm_share", "memory_share", "dram_share", "tensor_share")
        )
        best = np.fmax(np.fmax(sm, memory), dram)
        return cls(*(_weighted(values, weights) for values in (sm, dram, tensor, best)))


@dataclass(frozen=True)
class Devices:
    """Shares of the time from each device's first to its last work, summed over the devices; None: not known.

    Attributes:
        parts: a breakdown each. span: ns, in all. matched: their collectives; None if there are none, or one device.
        straggler: whom they wait for; None likewise, or if nobody waits.
        busy: some work. exposed: communication and nothing computed; where collectives are matched that is
            wire: on the wire, sends and receives included, and waiting: for other ranks.
        loader: idle while the host waits for data. outside, remaining, late, short: as of `idle.Idle`.
        copies: copies to the device, and nothing else. moves: other memory operations, and nothing else.
        steps: marked ones, of the device with fewest; 0: none are marked.
        kernels: compute kernels, of the device with fewest. median_kernel: ns, of compute kernels. classes: ns of compute kernels by class.
    """

    timelines: tuple[Timeline, ...]
    parts: tuple[Breakdown, ...]
    span: int
    matched: collectives.Collectives | None
    straggler: collectives.Straggler | None
    busy: float
    exposed: float | None
    wire: float | None
    waiting: float | None
    loader: float | None
    outside: float | None
    remaining: float
    late: float | None
    short: float
    copies: float
    moves: float
    steps: int
    kernels: int
    median_kernel: float
    classes: Mapping[str, int]

    @classmethod
    def of(cls, timelines: Sequence[Timeline]) -> Devices:
        """Of timelines that have work of a device."""
        several = len({one.place for one in timelines}) > 1
        parts = tuple(breakdown(one, several=several) for one in timelines)
        spans = [one.span_ns for one in parts]

        def share(each: Sequence[int | None]) -> float | None:
            """Of the time of those devices where it is known."""
            known = [(ns, span) for ns, span in zip(each, spans, strict=True) if ns is not None]
            return sum(ns for ns, _ in known) / max(sum(span for _, span in known), 1) if known else None

        matched = collectives.match(timelines) if several else None
        if matched is not None and not len(matched):
            matched = None
        shown = [collectives.exposed(one, matched, n) for n, one in enumerate(timelines)] if matched else []
        gaps = [idle.idle(one) for one in timelines]
        inputs = [_alone(one, TO_DEVICE) for one in timelines]
        moves = [_alone(one) - copies for one, copies in zip(timelines, inputs, strict=True)]
        return cls(
            timelines=tuple(timelines),
            parts=parts,
            span=sum(spans),
            matched=matched,
            straggler=collectives.straggler(matched) if matched else None,
            busy=share([one.busy_ns for one in parts]),
            exposed=share([one.exposed_communication_ns for one in parts]),
            wire=share([one.wire_ns + one.other_ns for one in shown]) if shown else None,
            waiting=share([one.waiting_ns for one in shown]) if shown else None,
            loader=share([one.loader_ns for one in gaps]),
            outside=share([one.outside_ns for one in gaps]),
            remaining=share([one.remaining_ns for one in gaps]),
            late=share([one.late_ns for one in gaps]),
            short=share([one.short_ns for one in gaps]),
            copies=share(inputs),
            moves=share(moves),
            steps=min((len(found) for found in map(phases.steps, timelines) if len(found)), default=0),
            kernels=min(int(np.sum(one.ops.kind == COMPUTE)) for one in timelines),
            median_kernel=_median_kernel(timelines),
            classes=_classes(timelines),
        )

    def but(self, **changes: object) -> Devices:
        """The same with other values."""
        return replace(self, **changes)

    @property
    def computing(self) -> float:
        """Compute kernels."""
        return sum(one.compute_ns for one in self.parts) / max(self.span, 1)

    def class_share(self, names: Sequence[str]) -> float:
        """Of the compute kernels' time."""
        total = sum(self.classes.values())
        return sum(self.classes.get(name, 0) for name in names) / total if total else 0.0


def evidence(found: Devices, measured: Counters | None) -> tuple[Evidence, ...]:
    """What is judged by, in the order of the thresholds, then what is good to know."""
    rows = [
        percent("GPU utilisation", found.busy, ">", UTILISATION),
        percent("exposed communication", found.exposed, "<", EXPOSED),
    ]
    if found.wire is not None:
        rows.append(percent("exposed on the wire", found.wire, "<", EXPOSED))
        rows.append(percent("exposed waiting for other ranks", found.waiting, "<", WAITING))
    rows.append(percent("loader idle", found.loader, "<", LOADER))
    if found.outside is not None:
        rows.append(percent("idle between steps, unmarked", found.outside, "<", LOADER))
    rows.append(percent("idle otherwise", found.remaining, "<", 1 - UTILISATION))
    if found.late is not None and found.remaining:
        rows.append(percent("idle otherwise, of it launched late", found.late / found.remaining))
    rows += [
        percent("input copies with nothing beside", found.copies, "<", COPIES),
        Evidence("median kernel", _rounded(found.median_kernel / 1e3), "us"),
        percent("kernels with few operations a byte", found.class_share(FEW_OPERATIONS), "<", LOW_INTENSITY),
    ]
    return (*rows, *_collective(found), *(counted(measured) if measured else ()), *_known(found))


def counted(measured: Counters) -> list[Evidence]:
    """What counters say."""
    return [
        percent("kernel efficiency, of the nearest peak", measured.efficiency, ">", EFFICIENCY),
        percent("kernels' use of the SMs", measured.sm),
        percent("kernels' use of DRAM bandwidth", measured.dram),
        percent("kernels' use of tensor cores", measured.tensor),
    ]


def percent(name: str, share: float | None, sense: str = "", threshold: float | None = None) -> Evidence:
    """In %; a share of None or NaN is not known."""
    value = None if share is None or math.isnan(share) else _rounded(100 * share)
    return Evidence(name, value, "%", sense, None if threshold is None else _rounded(100 * threshold))


def _collective(found: Devices) -> list[Evidence]:
    rows = []
    if found.straggler is not None:
        one = found.straggler
        rows.append(Evidence(f"{one.label} is the last one, of {one.of} {one.per}s", one.last, "times"))
        rows.append(percent(f"waiting that is for {one.label}", one.caused))
    bandwidth = found.matched.bus_bandwidth if found.matched else None
    if bandwidth:
        rows.append(Evidence("bus bandwidth, of the wire time", _rounded(bandwidth / 1e9), "GB/s"))
    return rows


def _known(found: Devices) -> list[Evidence]:
    rows = []
    pageable = sum(one.pageable_copies or 0 for one in found.parts)
    if pageable:
        rows.append(Evidence("pageable copies", pageable, "copies"))
    steps = np.concatenate([phases.steps(one).host_ns for one in found.timelines])
    if len(steps):
        shown = phases.distribution(steps)
        rows.append(Evidence(f"step time, median of {len(steps)}", _rounded(shown["median"] / 1e6), "ms"))
        rows.append(Evidence("step time, 95th percentile", _rounded(shown["p95"] / 1e6), "ms"))
    return rows


def _alone(timeline: Timeline, copy: int | None = None) -> int:
    """ns of memory operations (those of `copy`, or all) beside which there is no other kind of work."""
    ops = timeline.ops
    moves = ops.of_kind(MEMORY)
    if copy is not None:
        moves = moves.where(moves.copy == copy)
    some = intervals.union(moves.start, moves.end)
    beside = intervals.overlap(*some, intervals.union(*ops.intervals(COMPUTE, COMMUNICATION, UNKNOWN)))
    return intervals.length(some) - int(beside.sum())


def _median_kernel(timelines: Sequence[Timeline]) -> float:
    """ns, the median over devices of each one's median compute kernel; 0 without any."""
    each = [np.median(ops.end - ops.start) for ops in (one.ops.of_kind(COMPUTE) for one in timelines) if len(ops)]
    return float(np.median(each)) if each else 0.0


def _classes(timelines: Sequence[Timeline]) -> dict[str, int]:
    """ns of compute kernels by class, whether side by side or not."""
    totals = np.zeros(len(kernels.CLASSES))
    for ops in (one.ops.of_kind(COMPUTE) for one in timelines):
        if len(ops):
            totals += np.bincount(kernels.classes(ops), ops.end - ops.start, minlength=len(kernels.CLASSES))
    return {name: int(ns) for name, ns in zip(kernels.CLASSES, totals.tolist(), strict=True)}


def _weighted(values: np.ndarray, weights: np.ndarray) -> float:
    known = np.isfinite(values) & np.isfinite(weights) & (weights > 0)
    return float(np.average(values[known], weights=weights[known])) if known.any() else math.nan


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
