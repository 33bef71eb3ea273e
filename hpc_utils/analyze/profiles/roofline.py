"""The roofline, and how much of a GPU's peak a training run uses.

A kernel reaches at most min(peak, intensity x bandwidth) operations a second, at intensity operations a byte (Williams,
Waterman and Patterson 2009, CACM 52:65). MFU is the share of the peak that the *model's* operations take (Chowdhery et al.
2022, PaLM, appendix B): recomputed activations do not count.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from .. import stats
from ..compare import scaled
from ..points import gather, unprofiled
from ..table import tabled
from . import peaks
from .peaks import Peak

POINTS = [
    "name", "kind", "device", "precision", "flops", "dram_bytes", "intensity", "achieved", "attainable", "share", "duration_ns",
]  # fmt: skip
ATTAINED = ["workload", "dataset", "precision", "device_name", "parallel", "layout", "world_size", "batch_per_device"]


def attainable(peak: Peak, precision: str, intensity: float | np.ndarray) -> float | np.ndarray:
    """Operations/s at most at this intensity (operations a byte)."""
    return np.minimum(peak.flops[precision], np.asarray(intensity) * peak.bandwidth)[()]


@tabled(
    "attained",
    "The model's own operations a second.",
    "workload precision device_name parallel flops_per_sample flops_per_second mfu repeats",
    measure="flops_per_second",
    missing="a run that counted its operations",
)
def attained(runs: pd.DataFrame) -> pd.DataFrame:
    """The model's operations per second of one device, and their share of its peak: one row per configuration (`points`).

    Runs with a profiler and runs without counted operations are omitted. Columns: those of
    `ATTAINED`; flops_per_sample; flops_per_second of one device, with its interval `_low` and `_high`; peak
    (operations/s) and mfu with its interval, NaN where `peaks` does not know the device; repeats, runs.
    """
    runs = unprofiled(runs)
    runs = runs[runs.flops_per_sample.notna()]
    configurations = gather(runs, ["throughput"], ["flops_per_sample"]).astype({"flops_per_sample": float})
    tops = [peaks.find_peak(name) for name in configurations.device_name]
    configurations["peak"] = [
        peak.flops.get(precision, math.nan) if peak else math.nan
        for peak, precision in zip(tops, configurations.precision, strict=True)
    ]
    operations = configurations.flops_per_sample / configurations.world_size
    configurations = scaled(configurations, "flops_per_second", "throughput", operations)
    configurations = scaled(configurations, "mfu", "flops_per_second", 1 / configurations.peak)
    measures = stats.columns("flops_per_second", "mfu")
    return configurations[[*ATTAINED, "flops_per_sample", "peak", *measures, "repeats", "runs"]]


def points(kernels: pd.DataFrame) -> pd.DataFrame:
    """Measured kernels (`ncu.read_kernels`) in the roofline, a row per kernel whose operations and bytes are known.

    Columns: name, kind, device, precision (in which it does most of its operations), flops, dram_bytes, intensity (operations
    per byte of DRAM), achieved (operations/s), attainable and share of it (NaN where `peaks` does not know the GPU or its peak
    in this precision), duration_ns.
    """
    measured = kernels[(kernels.flops > 0) & (kernels.dram_bytes > 0) & (kernels.duration_ns > 0)]
    measured = measured.assign(
        intensity=measured.flops / measured.dram_bytes,
        achieved=measured.flops / measured.duration_ns * 1e9,
    )
    tops = [peaks.find_peak(device) for device in measured.device]
    measured["attainable"] = [
        attainable(peak, row.precision, row.intensity) if peak and row.precision in peak.flops else math.nan
        for peak, row in zip(tops, measured.itertuples(), strict=True)
    ]
    measured["share"] = measured.achieved / measured.attainable
    return measured[POINTS].reset_index(drop=True)


def roofs(points: pd.DataFrame) -> dict[str, float]:
    """Peak operations/s of each GPU in `peaks`, in the fastest precision of its kernels in `points`."""
    rated = points[points.attainable.notna()]
    return {
        device: max(peaks.find_peak(device).flops[precision] for precision in set(device_points.precision))
        for device, device_points in rated.groupby("device")
    }


def bandwidths(kernels: pd.DataFrame) -> dict[str, float]:
    """Byte/s of each GPU's DRAM, by its counters (`ncu.read_kernels`): bytes per second, over the share of the peak.

    Without moved bytes it is that of `peaks`; a GPU with neither is omitted.
    """
    bandwidth_by_device = {}
    for device, launches in kernels.groupby("device"):
        rates = (launches.dram_bytes / launches.duration_ns * 1e9 / launches.dram_share)[launches.dram_share > 0]
        if rates.notna().any():
            bandwidth_by_device[device] = float(rates.median())
        elif peak := peaks.find_peak(device):
            bandwidth_by_device[device] = peak.bandwidth
    return bandwidth_by_device
