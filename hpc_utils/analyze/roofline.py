"""The roofline, and how much of a GPU's peak a training run uses.

A kernel of so many operations a byte can do at most min(peak, intensity x bandwidth) operations a second (Williams,
Waterman and Patterson 2009, CACM 52:65). MFU is the share of the peak that the *model's* operations take (Chowdhery et al.
2022, PaLM, appendix B): recomputed activations do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import peaks
from .peaks import Peak

if TYPE_CHECKING:
    import pandas as pd

BACKWARD = 2.0  # forward passes that a backward pass costs: gradients of weights, and of inputs
MULTIPLY_ADD = 2.0  # operations


def intensity(flops: float, moved: float) -> float:
    """Operations a byte; NaN if nothing was moved, or one is not known (NaN)."""
    return flops / moved if moved > 0 else float("nan")


def attainable(peak: Peak, precision: str, intensity: float | np.ndarray) -> float | np.ndarray:
    """Operations/s at most at this intensity (operations a byte)."""
    return np.minimum(peak.of(precision), np.asarray(intensity) * peak.bandwidth)[()]


def share(achieved: float, peak: Peak, precision: str, intensity: float | None = None) -> float:
    """Of `achieved` operations/s in the peak; with an intensity in what is attainable there. May exceed 1 by clocks."""
    return achieved / (peak.of(precision) if intensity is None else attainable(peak, precision, intensity))


def training_flops(forward_flops: float) -> float:
    """Operations that training takes a sample, from those of its forward pass (not multiply-adds: two each)."""
    return (1 + BACKWARD) * forward_flops


def mfu(flops_per_sample: float, throughput: float, devices: int, peak: Peak, precision: str) -> float:
    """Model FLOPs utilisation, 0 to 1.

    Args:
        flops_per_sample: of forward and backward pass, without recomputation (`training_flops`).
        throughput: samples/s of all devices together.
        precision: the one that the model's multiplications run in: autocast to bf16 is bf16, fp32 with TF32 off is fp32.

    Raises:
        ValueError: no device, or something negative. KeyError: the device has no such precision.
    """
    if devices < 1 or flops_per_sample < 0 or throughput < 0:
        raise ValueError(f"expected devices, operations and samples, got {devices}, {flops_per_sample}, {throughput}")
    return flops_per_sample * throughput / (devices * peak.of(precision))


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
