"""What a verdict is based on: of all devices together, what took which share of the time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import collectives, intervals, kernels, phases
from .breakdown import Breakdown, breakdown
from .kernels import KernelClass
from .thresholds import EFFICIENCY, EXPOSED, LIMITS, LOW_INTENSITY, UTILISATION
from .timeline import COMMUNICATION, COMPUTE, MEMORY, TO_DEVICE, UNKNOWN, Ops, Timeline
from .verdict import Evidence, percent, rounded

# Classes that do few operations per byte on any GPU in `peaks`.
FEW_OPERATIONS = (kernels.ELEMENTWISE, kernels.NORMALISATION, kernels.REDUCTION, kernels.OPTIMIZER, kernels.TRANSFER)
MATRIX = (kernels.CONVOLUTION, kernels.GEMM, kernels.ATTENTION)

# Attributes of `Devices`: the part of a `Breakdown` that each is.
_PARTS = {
    "busy": "busy_ns", "computing": "compute_ns", "exposed": "exposed_communication_ns", "loader": "loader_wait_ns",
    "outside": "between_steps_ns", "remaining": "otherwise_idle_ns", "late": "launched_late_ns",
    "short": "short_gaps_ns", "unknown": "unknown_ns",
}  # fmt: skip
# Evidence: its text, the attribute, whether it is listed even if unknown.
_EVIDENCE = [
    ("exposed on the wire", "wire", False),
    ("exposed waiting for other ranks", "waiting", False),
    ("loader idle", "loader", True),
    ("idle between steps, unmarked", "outside", False),
]


@dataclass(frozen=True)
class Devices:
    """Shares of the time from each device's first to its last work, summed over the devices; None: not known.

    Attributes:
        parts: a breakdown each. span: ns, in all. matched: their collectives; None without any, or with one device.
        straggler: the rank they wait for; None likewise, or if no rank waits.
        busy: any work. computing: compute kernels. unknown: work of unknown kind.
        exposed: communication and nothing computed; where collectives are matched, it falls into
            wire: on the wire, sends and receives included, and waiting: for other ranks.
        loader: idle while the host waits for data. outside: idle between steps; remaining: idle otherwise, of which late:
            before its work was launched, and short: in short gaps (see `Breakdown`).
        copies: copies to the device, and nothing else. moves: other memory operations, and nothing else.
        steps: marked ones, of the device with fewest; 0: none are marked.
        kernels: compute kernels, of the device with fewest. median_kernel: ns, of compute kernels.
        classes: ns of compute kernels by class.
    """

    timelines: tuple[Timeline, ...]
    parts: tuple[Breakdown, ...]
    span: int
    matched: collectives.Collectives | None
    straggler: collectives.Straggler | None
    busy: float
    computing: float
    exposed: float | None
    wire: float | None
    waiting: float | None
    loader: float | None
    outside: float | None
    remaining: float
    late: float | None
    short: float
    unknown: float
    copies: float
    moves: float
    steps: int
    kernels: int
    median_kernel: float
    classes: Mapping[KernelClass, int]

    @classmethod
    def of(cls, timelines: Sequence[Timeline]) -> Devices:
        """Of timelines that have work of a device."""
        several = len({one.place for one in timelines}) > 1
        parts = tuple(breakdown(one, several=several) for one in timelines)

        def share(each: Sequence[int | None]) -> float | None:
            """Of the time of those devices where it is known."""
            known = [(ns, part.span_ns) for ns, part in zip(each, parts, strict=True) if ns is not None]
            return sum(ns for ns, _ in known) / max(sum(span for _, span in known), 1) if known else None

        matched = collectives.match(timelines) if several else None
        matched = matched if matched is not None and len(matched) else None
        shown = [collectives.exposed(one, matched, n) for n, one in enumerate(timelines)] if matched else []
        inputs = [_alone(one.ops, one.ops.copy == TO_DEVICE) for one in timelines]
        moves = [_alone(one.ops, True) - ns for one, ns in zip(timelines, inputs, strict=True)]
        compute = [one.ops.of_kind(COMPUTE) for one in timelines]
        medians = [np.median(ops.end - ops.start) for ops in compute if len(ops)]
        return cls(
            timelines=tuple(timelines),
            parts=parts,
            span=sum(part.span_ns for part in parts),
            matched=matched,
            straggler=collectives.straggler(matched) if matched else None,
            **{name: share([getattr(part, column) for part in parts]) for name, column in _PARTS.items()},
            wire=share([one.wire_ns + one.other_ns for one in shown]) if shown else None,
            waiting=share([one.waiting_ns for one in shown]) if shown else None,
            copies=share(inputs),
            moves=share(moves),
            steps=min(filter(None, (len(phases.steps(one.ranges)[0]) for one in timelines)), default=0),
            kernels=min(map(len, compute)),
            median_kernel=float(np.median(medians)) if medians else 0.0,
            classes={row.kind: row.total_ns for row in kernels.rows(timelines, "kind", [COMPUTE])},
        )

    @property
    def pageable_copies(self) -> int:
        return sum(part.pageable_copies or 0 for part in self.parts)

    def class_share(self, names: Sequence[KernelClass]) -> float:
        """Of the compute kernels' time."""
        return sum(self.classes.get(name, 0) for name in names) / max(sum(self.classes.values()), 1)


@dataclass(frozen=True)
class Counters:
    """Kernels that Nsight Compute measured, weighted by their time, as shares of peaks; NaN: not known.

    Attributes:
        sm, dram, tensor: of the SMs, of the memory's bandwidth, of the tensor pipe.
        efficiency: of each kernel the peak that it is nearest to: arithmetic, caches or memory.
    """

    sm: float
    dram: float
    tensor: float
    efficiency: float

    @property
    def moving(self) -> bool | None:
        """Whether the memory's bandwidth is nearer to its peak than the SMs are to theirs; None: not known."""
        return None if math.isnan(self.dram + self.sm) else self.dram > self.sm

    @classmethod
    def of(cls, measured: Mapping) -> Counters:
        """`measured`: columns as of `ncu.read`."""
        names = ("sm_share", "dram_share", "tensor_share", "memory_share", "duration_ns")
        sm, dram, tensor, memory, weights = (np.asarray(measured[name], float) for name in names)
        best = np.fmax(np.fmax(sm, memory), dram)
        known = [np.isfinite(values * weights) & (weights > 0) for values in (sm, dram, tensor, best)]
        return cls(*(
            float(np.average(values[there], weights=weights[there])) if there.any() else math.nan
            for values, there in zip((sm, dram, tensor, best), known, strict=True)
        ))  # fmt: skip

    def evidence(self) -> list[Evidence]:
        return [
            percent("kernel efficiency, of the nearest peak", self.efficiency, ">", EFFICIENCY),
            percent("kernels' use of the SMs", self.sm),
            percent("kernels' use of DRAM bandwidth", self.dram),
            percent("kernels' use of tensor cores", self.tensor),
        ]


def evidence(found: Devices, measured: Counters | None) -> list[Evidence]:
    """What decides, in the order of the thresholds, then further measurements."""
    rows = [
        percent("GPU utilisation", found.busy, ">", UTILISATION),
        percent("exposed communication", found.exposed, "<", EXPOSED),
    ]
    for words, name, always in _EVIDENCE:
        if always or getattr(found, name) is not None:
            rows.append(percent(words, getattr(found, name), "<", LIMITS[name]))
    rows.append(percent("idle otherwise", found.remaining, "<", 1 - UTILISATION))
    if found.late is not None and found.remaining:
        rows.append(percent("idle otherwise, of it launched late", found.late / found.remaining))
    rows += [
        percent("input copies with nothing beside", found.copies, "<", LIMITS["copies"]),
        Evidence("median kernel", rounded(found.median_kernel / 1e3), "us"),
        percent("kernels with few operations a byte", found.class_share(FEW_OPERATIONS), "<", LOW_INTENSITY),
    ]
    if (one := found.straggler) is not None:
        rows.append(Evidence(f"{one.label} is the last one, of {one.of} {one.per}s", one.last, "times"))
        rows.append(percent(f"waiting that is for {one.label}", one.caused))
    if found.matched is not None and (bandwidth := found.matched.bus_bandwidth):
        rows.append(Evidence("bus bandwidth, of the wire time", rounded(bandwidth / 1e9), "GB/s"))
    rows += measured.evidence() if measured is not None else []
    if found.pageable_copies:
        rows.append(Evidence("pageable copies", found.pageable_copies, "copies"))
    steps = np.concatenate([np.subtract(*phases.steps(one.ranges)[::-1]) for one in found.timelines])
    if len(steps):
        median, late = np.quantile(steps, [0.5, 0.95])
        rows.append(Evidence(f"step time, median of {len(steps)}", rounded(median / 1e6), "ms"))
        rows.append(Evidence("step time, 95th percentile", rounded(late / 1e6), "ms"))
    return rows


def _alone(ops: Ops, chosen: np.ndarray | bool) -> int:
    """ns of the chosen memory operations in which no other kind of work runs."""
    moves = ops.where((ops.kind == MEMORY) & chosen).union()
    return intervals.outside(moves, ops.union(COMPUTE, COMMUNICATION, UNKNOWN))
