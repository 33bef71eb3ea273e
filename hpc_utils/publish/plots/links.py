"""All-reduce time and bandwidth over message sizes, with the ring that was fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..formatting import number
from . import drawing, style
from .chart import charted

if TYPE_CHECKING:
    from hpc_utils.analyze.model.links import LinkFit

LOOKS = {"all": ("fp32", "all ranks"), "intra": ("tf32", "inside a node"), "inter": ("bf16", "between nodes")}


@charted(
    "allreduce",
    "Time and bus bandwidth of an all-reduce alone against the size of the message, and the link fitted to it.",
)
def allreduce(table: pd.DataFrame, fits: Sequence[LinkFit]) -> Figure:
    """Time with its fit, and bus bandwidth, against message size; a line for each group. `table`: `links.bandwidths`; `fits`:
    `links.fit` of the groups that have one."""
    from hpc_utils.allreduce_cost import bandwidths

    figure, panels = plt.subplots(1, 2, figsize=(style.PAGE, 2.5))
    times, rates = panels
    legend: list[Line2D] = []
    fitted = {fit.group: fit for fit in fits}
    table = table.rename(columns={"low": "seconds_low", "high": "seconds_high"})
    for name, rows in table.groupby("group", sort=False):
        key, label = LOOKS.get(name, ("fp16", name))
        look, ranks = style.precision(key), int(rows.ranks.iloc[0])
        points = look | {"markerfacecolor": "white", "linestyle": "none"}
        line = look | {"marker": None, "linewidth": 1}
        drawing.points(times, rows.bytes, rows, "seconds", scale=1e3, elinewidth=0.8, **points)
        rates.plot(rows.bytes, rows.bus_bandwidth / 1e9, **points)
        words = f"{label} ({ranks})"
        if fit := fitted.get(name):
            sizes = np.geomspace(fit.sizes[0], fit.sizes[-1], 100)
            modelled = np.array([fit.seconds(size) for size in sizes])
            words += f": {number(1e6 * fit.latency.value)} µs, {8e-9 * fit.bandwidth.value:.3g} Gbit/s"
            times.plot(sizes, 1e3 * modelled, **line)
            rates.plot(sizes, bandwidths(sizes, modelled, ranks)[1] / 1e9, **line)
        legend.append(Line2D([], [], **points | {"linestyle": look["linestyle"] if fit else "none"}, label=words))
    exponents = np.log2([table.bytes.min(), table.bytes.max()])
    for axes in panels:
        drawing.log_axis(axes.xaxis, 2.0 ** np.arange(exponents[0], exponents[1] + 1, 6), base=2)
        axes.xaxis.set_major_formatter(_size)
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_xlabel("message")
    times.set_ylabel("time of an all-reduce (ms)")
    rates.set_ylabel("bus bandwidth (GB/s)")
    figure.legend(handles=legend, loc="outside upper center", ncols=2, handlelength=3)
    drawing.note(figure, drawing.interval(table))
    return figure


def _size(size: float, _: object) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:g} {unit}"
        size /= 1024
    return f"{size:g} GiB"
