"""The roofline, and how much of a GPU's peak a training run uses.

A kernel of so many operations a byte can do at most min(peak, intensity x bandwidth) operations a second (Williams,
Waterman and Patterson 2009, CACM 52:65). MFU is the share of the peak that the *model's* operations take (Chowdhery et al.
2022, PaLM, appendix B): recomputed activations do not count.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from . import peaks
from .peaks import Peak
from .points import gather, unwatched

if TYPE_CHECKING:
    import pandas as pd

ATTAINED = ["workload", "dataset", "precision", "device_name", "parallel", "layout", "world_size", "batch_per_device"]


def intensity(flops: float, moved: float) -> float:
    """Operations a byte; NaN if nothing was moved, or one is not known (NaN)."""
    return flops / moved if moved > 0 else float("nan")


def attainable(peak: Peak, precision: str, intensity: float | np.ndarray) -> float | np.ndarray:
    """Operations/s at most at this intensity (operations a byte)."""
    return np.minimum(peak.of(precision), np.asarray(intensity) * peak.bandwidth)[()]


def share(achieved: float, peak: Peak, precision: str, intensity: float | None = None) -> float:
    """Of `achieved` operations/s in the peak; with an intensity in what is attainable there. May exceed 1 by clocks."""
    return achieved / (peak.of(precision) if intensity is None else attainable(peak, precision, intensity))


def attained(runs: pd.DataFrame) -> pd.DataFrame:
    """What one device does of the model's operations, and the share of its peak: a row a configuration (`points`).

    Not of runs that a profiler watched, nor where the operations were not counted. Columns: those of
    `ATTAINED`; flops_per_sample; flops_per_second of one device, with its interval `_low` and `_high`; peak
    (operations/s) and mfu with its interval, NaN where `peaks` does not know the device; repeats, runs.
    """
    import pandas as pd

    runs = unwatched(runs)
    runs = runs[runs.flops_per_sample.notna()]
    found = gather(runs)
    found["flops_per_sample"] = [float(runs.flops_per_sample.iloc[at[0]]) for at in found["at"]]
    tops = [peaks.find(name) for name in found.device_name]
    found["peak"] = [
        peak.flops.get(precision, math.nan) if peak else math.nan
        for peak, precision in zip(tops, found.precision, strict=True)
    ]
    for end in ("", "_low", "_high"):
        found[f"flops_per_second{end}"] = found.flops_per_sample * found[f"throughput{end}"] / found.world_size
        found[f"mfu{end}"] = found[f"flops_per_second{end}"] / found.peak
    measures = [f"{name}{end}" for name in ("flops_per_second", "mfu") for end in ("", "_low", "_high")]
    return pd.DataFrame(found[[*ATTAINED, "flops_per_sample", "peak", *measures, "repeats", "runs"]])


def points(kernels: pd.DataFrame, device_name: str = "") -> pd.DataFrame:
    """Where measured kernels (`ncu.read`) stand, a row a kernel whose operations and bytes are known.

    Columns: name, kind, device, precision (in which it does most of its operations), flops, dram_bytes, intensity (operations a byte
    of DRAM), achieved (operations/s), attainable and share of it (NaN where `peaks` does not know the GPU:
    `device_name`, or what the report says), duration_ns.
    """
    import pandas as pd

    by = [name for name in ("fp64", "fp32", "fp16", "tensor") if f"flops_{name}" in kernels]
    rows = []
    for one in kernels.to_dict("records"):
        told = {name: one[f"flops_{name}"] for name in by if one[f"flops_{name}"] > 0}
        if not told or not one["flops"] > 0 or not one["dram_bytes"] > 0 or not one["duration_ns"] > 0:
            continue
        kind = max(told, key=told.get)
        precision = "fp16" if kind == "tensor" else kind
        peak = peaks.find(device_name or one["device"])
        achieved, dense = one["flops"] / one["duration_ns"] * 1e9, intensity(one["flops"], one["dram_bytes"])
        most = attainable(peak, precision, dense) if peak and precision in peak.flops else float("nan")
        rows.append(
            {name: one[name] for name in ("name", "kind", "device", "flops", "dram_bytes", "duration_ns")}
            | {
                "precision": precision,
                "intensity": dense,
                "achieved": achieved,
                "attainable": most,
                "share": achieved / most,
            }
        )
    columns = [
        "name", "kind", "device", "precision", "flops", "dram_bytes", "intensity", "achieved", "attainable", "share", "duration_ns",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def roofs(points: pd.DataFrame) -> dict[str, float]:
    """Operations/s at most of each GPU that `peaks` knows, in the fastest precision of its kernels in `points`."""
    known = points[points.attainable.notna()]
    return {
        device: max(peaks.find(device).flops[precision] for precision in set(own.precision))
        for device, own in known.groupby("device")
    }


def bandwidths(kernels: pd.DataFrame) -> dict[str, float]:
    """Byte/s of each GPU's DRAM, as its own counters say (`ncu.read`): what moved, over the share of the peak that it was.

    Where no kernel moved bytes, what `peaks` says; a GPU of which neither is known is left out.
    """
    found = {}
    for device, own in kernels.groupby("device"):
        told = (own.dram_bytes / own.duration_ns * 1e9 / own.dram_share)[own.dram_share > 0].dropna()
        peak = peaks.find(device)
        if len(told) or peak:
            found[device] = float(told.median()) if len(told) else peak.bandwidth
    return found
