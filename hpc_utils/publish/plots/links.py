"""The figure of a link: all-reduce over message sizes, with the ring that was fitted to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from . import style
from .chart import charted

if TYPE_CHECKING:
    from hpc_utils.analyze.link import LinkFit

LOOKS = {"all": ("fp32", "all ranks"), "intra": ("tf32", "inside a node"), "inter": ("bf16", "between nodes")}


@charted(
    "allreduce",
    "Time and bus bandwidth of an all-reduce alone against the size of the message, and the link fitted to it.",
)
def allreduce(table: pd.DataFrame, fits: Sequence[LinkFit]) -> Figure:
    """Time against message size with its fit, and bus bandwidth against message size; one line a group.

    `table` as of `link.bandwidths`, `fits` of `link.fit` for those of its groups that have one.
    """
    from hpc_utils.allreduce_cost import bandwidths

    figure, (times, rates) = plt.subplots(1, 2, figsize=(style.PAGE, 2.5))
    legend: list[Line2D] = []
    fitted = {fit.group: fit for fit in fits}
    for name, rows in table.groupby("group", sort=False):
        key, label = LOOKS.get(name, ("fp16", name))
        color, marker, line = style.COLOURS[key], style.MARKERS[key], style.LINES[key]
        ranks = int(rows.ranks.iloc[0])
        ends = rows.seconds - rows.low, rows.high - rows.seconds
        bars = [1e3 * end.fillna(0).clip(lower=0) for end in ends]  # of equal repeats an end is off by a rounding
        points = {"color": color, "marker": marker, "markerfacecolor": "white", "linestyle": "none"}
        times.errorbar(rows.bytes, 1e3 * rows.seconds, yerr=bars, **points, elinewidth=0.8)
        rates.plot(rows.bytes, rows.bus_bandwidth / 1e9, **points)
        words = f"{label} ({ranks})"
        if fit := fitted.get(name):
            sizes = np.geomspace(fit.sizes[0], fit.sizes[-1], 100)
            modelled = np.array([fit.seconds(size) for size in sizes])
            words += f": {style.number(1e6 * fit.latency.value)} µs, {8e-9 * fit.bandwidth.value:.3g} Gbit/s"
            times.plot(sizes, 1e3 * modelled, line, color=color, linewidth=1)
            rates.plot(sizes, bandwidths(sizes, modelled, ranks)[1] / 1e9, line, color=color, linewidth=1)
        legend.append(Line2D([], [], **points | {"linestyle": line if fit else "none"}, label=words))
    for axes in (times, rates):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        exponents = np.log2([table.bytes.min(), table.bytes.max()])
        axes.set_xticks(2.0 ** np.arange(exponents[0], exponents[1] + 1, 6))
        axes.xaxis.set_major_formatter(FuncFormatter(_size))
        axes.minorticks_off()
        axes.set_xlabel("message")
    times.set_ylabel("time of an all-reduce (ms)")
    rates.set_ylabel("bus bandwidth (GB/s)")
    figure.legend(handles=legend, loc="outside upper center", ncols=2, handlelength=3)
    figure.supxlabel(_repeats(table), fontsize=7, color="0.35")
    return figure


def _size(number: float, _: object) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:g} {unit}"
        number /= 1024
    return f"{number:g} GiB"


def _repeats(table: pd.DataFrame) -> str:
    repeats = int(table.repeats.min())
    return "single measurements" if repeats == 1 else f"median and 95 % interval of {repeats} repeats"
