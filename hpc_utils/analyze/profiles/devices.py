"""The measurements behind a verdict: shares of the time of all devices together."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import collectives, intervals, kernels, phases
from .kernels import KernelClass
from .phases import Phase
from .timeline import COMMUNICATION, COMPUTE, MEMORY, TO_DEVICE, UNKNOWN, Events, world
from .verdict import (
    BRIEF,
    EFFICIENCY,
    EXPOSED,
    FORWARD,
    LIKE,
    LIMITS,
    LOW_INTENSITY,
    MANY,
    UTILISATION,
    Evidence,
    percent,
    rounded,
)

if TYPE_CHECKING:
    import pandas as pd

    from .readers import Reports

# Classes that do few operations per byte on any GPU in `peaks`.
FUSABLE = (kernels.ELEMENTWISE, kernels.NORMALISATION, kernels.REDUCTION, kernels.OPTIMIZER)
FEW_OPERATIONS = (*FUSABLE, kernels.TRANSFER)
MATRIX = (kernels.CONVOLUTION, kernels.GEMM, kernels.ATTENTION)

# Shares that are the sum of a column of `breakdown`
_SHARES = {
    "busy": "busy_ns", "computing": "compute_ns", "exposed": "exposed_communication_ns",
    "unseparated": "exposed_communication_ns", "loader": "loader_wait_ns",
    "outside": "between_steps_ns", "remaining": "otherwise_idle_ns", "late": "launched_late_ns",
    "short": "short_gaps_ns", "short_late": "short_late_ns", "returned": "returned_ns", "unknown": "unknown_ns",
    "longest": "longest_gap_ns", "updating": "updating_ns", "zeroing": "zeroing_ns", "overlapped": "overlapped_ns",
}  # fmt: skip
_EVIDENCE = [
    ("exposed transfer", "wire"), ("exposed waiting for other ranks", "waiting"), ("loader idle", "loader"),
    ("idle between steps, unmarked", "outside"), ("input copies with nothing beside", "copies"),
]  # fmt: skip

LONGEST = 3  # measured kernels that are named
PEAKS = {"sm_share": "the SMs", "dram_share": "DRAM", "memory_share": "caches and DRAM"}


class Devices:
    """The timelines of `Reports` whose work decides.

    Attributes:
        parts: of each its `breakdown`. span: ns, in all. steps: marked ones each, ns.
        matched: their collectives; None without any, or with one device.
        straggler: the rank they wait for; None likewise, or if no rank waits.
        shares: of each device's span, summed over the devices; None: not known.
            busy: any work. computing: compute kernels. unknown: work of unknown kind.
            exposed: communication and nothing computed; it falls into wire: in transfer, waiting: for other ranks, and unseparated:
                where no collectives are matched, as sends and receives are not.
            loader: idle while the host waits for data. outside: idle between steps; remaining: idle otherwise, of which
                longest: in each device's longest gap, late: before its work was launched, short: in short gaps,
                short_late: both, and returned: both, behind a copy to the host (see `breakdown`).
            overlapped: communication while something is computed.
            updating, zeroing: idle while the host is in the optimizer, and in its zero_grad.
            copies: copies to the device, and nothing else; pageable: of these, from memory that is not known to be pinned.
            moves: other memory operations, and nothing else.
        delays: the share of the time that ranks wait for others, or may.
        replayed: whether CUDA graphs start most of the work: more than `MANY` operations a launch.
        kernels: compute kernels, of the device with fewest. median_kernel: ns, of compute kernels.
        kernel_ns: of compute kernels by name.
        brief: all-reduces shorter than `BRIEF`, of which `brief_ns` are exposed. exposed_ns: of communication where nothing is computed, by kind of collective and whether its name says 16 bits. calls: by kind.
            Kinds are those of `kernels.collective`; "activations": all-reduces that forward passes launch, too (tensor parallelism).
    """

    def __init__(self, reports: Reports) -> None:
        timelines = self.timelines = reports.worked
        all_parts = zip(reports.timelines, reports.parts, strict=True)
        self.parts = [part for timeline, part in all_parts if timeline.worked]
        self.span = max(sum(part["span_ns"] for part in self.parts), 1)
        matched = collectives.match(timelines) if world(timelines)[0] > 1 else ()
        self.matched = matched or None
        self.straggler = collectives.straggler(matched) if matched else None
        all_ops = [timeline.ops for timeline in timelines]
        copies = [_alone(ops, ops.copy == TO_DEVICE) for ops in all_ops]
        moves = [_alone(ops, True) - ns for ops, ns in zip(all_ops, copies, strict=True)]
        pageable = [_alone(ops, (ops.copy == TO_DEVICE) & (ops.pageable != 0)) for ops in all_ops]
        columns = {"copies": copies, "moves": moves, "pageable": pageable}
        columns |= {name: [part[column] for part in self.parts] for name, column in _SHARES.items()}
        if matched:
            separated = [collectives.exposed(timeline, matched, column) for column, timeline in enumerate(timelines)]
            wire, waiting = np.transpose(separated)
            unseparated = [ns or 0 for ns in columns["exposed"]] - wire - waiting
            columns |= {"wire": wire, "waiting": waiting, "unseparated": unseparated}
        self.shares = {"wire": None, "waiting": None}
        self.shares |= {name: self._share(column) for name, column in columns.items()}
        self.delays = self.shares["waiting"] + self.shares["unseparated"] if matched else 0.0
        launches = [timeline.ops.launched[timeline.ops.launched >= 0] for timeline in timelines]
        self.replayed = self.shares["unknown"] > 0 or any(  # traced whole
            len(launched) > MANY * len(np.unique(launched)) for launched in launches
        )
        self.steps = [np.subtract(*phases.steps(timeline.ranges)[::-1]) for timeline in timelines]
        compute = [timeline.ops.of_kind(COMPUTE) for timeline in timelines]
        self.kernels = min(map(len, compute))
        medians = [np.median(ops.end - ops.start) for ops in compute if len(ops)]
        self.median_kernel = float(np.median(medians)) if medians else 0.0
        self.kernel_ns = kernels.kernel_ns(timelines)
        self.exposed_ns, self.calls = Counter(), Counter()
        self.brief, self.brief_ns = 0, 0
        for timeline in timelines:
            sends = timeline.ops.of_kind(COMMUNICATION)
            computing = timeline.ops.union(COMPUTE)
            in_forward = intervals.holds(sends.launched, phases.windows(timeline.ranges, Phase.FORWARD))
            for number in np.unique(sends.name).tolist():
                chosen = sends.name == number
                kind = kernels.collective(sends.names[number])
                if kind == "all_reduce" and np.mean(in_forward[chosen]) > FORWARD:
                    kind = "activations"
                self.calls[kind] += np.count_nonzero(chosen)
                if kind == "all_reduce":
                    is_brief = chosen & (sends.end - sends.start < BRIEF)
                    self.brief += np.count_nonzero(is_brief)
                    self.brief_ns += intervals.outside(sends.where(is_brief).union(), computing)
                narrow = kernels.precision(sends.names[number]) in kernels.HALF
                self.exposed_ns[kind, narrow] += intervals.outside(sends.where(chosen).union(), computing)

    def _share(self, column: Sequence[int | None]) -> float | None:
        """The share of the time of the devices whose value is known."""
        known_times = [(ns, part["span_ns"]) for ns, part in zip(column, self.parts, strict=True) if ns is not None]
        return (
            sum(ns for ns, _ in known_times) / max(sum(span for _, span in known_times), 1) if known_times else None
        )

    @property
    def marked_steps(self) -> int:
        """The fewest steps that any device with marked steps has; 0: none are marked."""
        return min(filter(None, map(len, self.steps)), default=0)

    @property
    def brief_per_step(self) -> int:
        """`brief` all-reduces of a device in a step; 0 where no steps are marked."""
        return self.marked_steps and round(self.brief / self.marked_steps / len(self.timelines))

    def pauses(self, place: int | None = None) -> list[tuple[str, int]]:
        """What the hosts were in during long gaps, as `breakdown` names it, and its ns, the longest first; of one device if given."""
        parts = self.parts if place is None else [self.parts[place]]
        return sum((part["pauses"] for part in parts), Counter()).most_common()

    def of_straggler(self, column: str) -> list[int | None]:
        """A column of `parts`: the straggler's value, then the others'."""
        values = [part[column] for part in self.parts]
        return [values.pop(self.straggler.column), *values]

    @property
    def device_name(self) -> str:
        """The first that is known; ""."""
        return next((timeline.device_name for timeline in self.timelines if timeline.device_name), "")

    def named(self, pattern: str | re.Pattern[str]) -> float:
        """The share of the compute kernels of these names in the time."""
        return sum(ns for name, ns in self.kernel_ns.items() if re.search(pattern, name)) / self.span

    def class_share(self, names: Sequence[KernelClass], precisions: Sequence[str] | None = None) -> float:
        """The share of these classes, in these precisions if given, in the compute kernels' time."""
        ns = (
            ns
            for name, ns in self.kernel_ns.items()
            if kernels.classify(name) in names and (precisions is None or kernels.precision(name) in precisions)
        )
        return sum(ns) / max(sum(self.kernel_ns.values()), 1)

    @property
    def gathered_twice(self) -> bool:
        """Whether parameters are gathered for the backward pass again: more all-gathers than reduce-scatters."""
        return self.calls["all_gather"] * (1 - LIKE) > self.calls["reduce_scatter"] > 0

    @property
    def batches(self) -> int:
        """Whose gradients one all-reduce may add up: forward passes in a marked step, or 2."""
        forwards = sum(len(phases.windows(timeline.ranges, Phase.FORWARD)[0]) for timeline in self.timelines)
        return max(2, round(forwards / (sum(map(len, self.steps)) or forwards or 1)))

    @property
    def autocast(self) -> bool:
        """Whether kernels named as 16 bits (or 8) take most of the time in matrices."""
        return self.class_share(MATRIX, kernels.HALF) > self.class_share(MATRIX) / 2

    @property
    def compiled(self) -> bool:
        """Whether torch.compile wrote some of the kernels."""
        return any(name.startswith(("triton_poi_", "triton_red_", "triton_per_")) for name in self.kernel_ns)

    def evidence(self) -> list[Evidence]:
        """What decides, in the order of the thresholds, then further measurements."""
        shares = self.shares
        straggler = self.straggler
        rows = [
            percent("utilisation", shares["busy"], ">", UTILISATION),
            percent("exposed communication", shares["exposed"], "<", EXPOSED),
            *(percent(words, shares[name], "<", LIMITS[name]) for words, name in _EVIDENCE),
            percent("idle otherwise", shares["remaining"], "<", 1 - UTILISATION),
            percent("idle before late launches", shares["late"] if self.device_name != "CPU" else None),
            Evidence("median kernel", rounded(self.median_kernel / 1e3), "us"),
            percent("kernels with few operations a byte", self.class_share(FEW_OPERATIONS), "<", LOW_INTENSITY),
            Evidence("pageable copies", sum(part["pageable_copies"] or 0 for part in self.parts), "copies"),
        ]
        if self.matched is not None and shares["unseparated"]:
            rows.append(percent("exposed, transfer and waiting not separated", shares["unseparated"], "<", EXPOSED))
        if straggler is not None:
            last = f"{straggler.label} is the last one, of {straggler.of} {straggler.per}s"
            rows.append(Evidence(last, straggler.last, "times"))
            rows.append(percent(f"waiting that is for {straggler.label}", straggler.caused))
        if len(steps := np.concatenate(self.steps)):
            for words, share in (("median", 0.5), ("95th percentile", 0.95)):
                rows.append(Evidence(f"step time, {words}", rounded(np.quantile(steps, share) / 1e6), "ms"))
        return rows


class Counters:
    """Kernels that Nsight Compute measured, weighted by their time, as shares of peaks; NaN: not known.

    Attributes:
        sm, dram, tensor: of the SMs, of the memory's bandwidth, of the tensor pipe.
        efficiency: of each kernel the peak that it is nearest to: arithmetic, caches or memory.
        longest: (name, GPU and time, the nearest peak, the share of it) of the `LONGEST` kernels that take most time.

    Args:
        measured: columns as of `ncu.read_kernels`.
    """

    def __init__(self, measured: pd.DataFrame) -> None:
        times = measured.duration_ns
        shares = measured[[*PEAKS, "tensor_share"]].astype(float)
        means = _mean(shares.assign(nearest=shares[[*PEAKS]].max(axis=1)), times)
        self.sm, self.dram, _, self.tensor, self.efficiency = means.tolist()
        names = measured.name.map(kernels.short) + " on " + measured.device
        self.longest = []
        for name, ns in times.groupby(names).sum().nlargest(LONGEST).items():
            attained = _mean(shares.loc[names == name, [*PEAKS]], times[names == name])
            peak = attained.fillna(-1.0).idxmax()
            self.longest.append((f"{name}, {ns / 1e3:,.4g} us", PEAKS[peak], attained[peak]))

    @property
    def moving(self) -> bool | None:
        """Whether the memory's bandwidth is nearer to its peak than the SMs are to theirs; None: not known."""
        return None if math.isnan(self.dram + self.sm) else self.dram > self.sm

    def evidence(self) -> list[Evidence]:
        return [
            percent("kernel efficiency, of the nearest peak", self.efficiency, ">", EFFICIENCY),
            percent("kernels' use of the SMs", self.sm),
            percent("kernels' use of DRAM bandwidth", self.dram),
            percent("kernels' use of tensor cores", self.tensor),
            *(percent(f"{kernel}, of the peak of {peak}", share) for kernel, peak, share in self.longest),
        ]


def _mean(shares: pd.DataFrame, times: pd.Series) -> pd.Series:
    """Of each column, weighted by `times`; NaN where nothing is known."""
    return shares.mul(times, axis=0).sum() / shares.notna().mul(times, axis=0).sum()


def _alone(ops: Events, chosen: np.ndarray | bool) -> int:
    """ns of the chosen memory operations in which no other kind of work runs."""
    moves = ops.where((ops.kind == MEMORY) & chosen).union()
    return intervals.outside(moves, ops.union(COMPUTE, COMMUNICATION, UNKNOWN))
