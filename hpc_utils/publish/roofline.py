"""The roofline (Williams, Waterman, Patterson 2009): kernels under what their GPU's memory and arithmetic allow."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from . import style


def roofline(
    points: pd.DataFrame, bandwidths: Mapping[str, float], peaks: Mapping[str, float] | None = None
) -> Figure:
    """Operations a second against operations a byte of DRAM, a marker a GPU, a point a kernel.

    `points` as of `analyze.roofline.points`. bandwidths: byte/s of each GPU's DRAM (`analyze.roofline.bandwidths`), its
    slope; peaks: operations/s of each, its flat part, where it is known.
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.7))
    low, high = points.intensity.min() / 4, points.intensity.max() * 8
    dense = np.geomspace(low, high, 100)
    for number, (device, own) in enumerate(points.groupby("device")):
        colour, line, marker = style.series(number)
        flat = (peaks or {}).get(device, np.inf)
        if device in bandwidths:
            axes.plot(dense, np.minimum(dense * bandwidths[device], flat), linestyle=line, color=colour, linewidth=1)
        axes.plot(own.intensity, own.achieved, marker, color=colour, linestyle="none", label=device)
        for row in own.itertuples():
            text = f"{row.name}, {row.precision}"
            axes.annotate(
                text, (row.intensity, row.achieved), (5, -3), textcoords="offset points", va="top", fontsize=6.5
            )
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    axes.set(xlabel="operations a byte of DRAM", ylabel="operations/s")
    axes.legend(loc="lower right", fontsize=7)
    return figure
