"""All-reduce time and bandwidth over message sizes, with the ring that was fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator

from hpc_utils.allreduce_cost import bandwidths

from ..formatting import number
from . import drawing, style
from .chart import charted

if TYPE_CHECKING:
    from hpc_utils.analyze.model.links import LinkFit

LABELS = {"all": "all ranks", "intra": "inside a node", "inter": "between nodes"}


@charted(
    "allreduce",
    "Time and bus bandwidth of an all-reduce alone against the size of the message, and the link fitted to it.",
)
def allreduce(table: pd.DataFrame, fits: Sequence[LinkFit]) -> Figure:
    """Time with its fit, and bus bandwidth, against message size; a line for each group. `table`: `links.bandwidths`; `fits`:
    `links.fit` of the groups that have one."""
    figure, ((times, rates),) = drawing.panels(2)
    fitted = {fit.group: fit for fit in fits}
    table = table.rename(columns={"seconds": "allreduce_seconds"})
    for place, (name, rows) in enumerate(table.groupby("group", sort=False)):
        ranks = int(rows.ranks.iloc[0])
        look = style.series(place)
        label = f"{LABELS.get(name, name)} ({ranks})"
        line = look | {"marker": None, "linewidth": 1}
        marks = look | {"markerfacecolor": "white", "linestyle": "none"}
        if fit := fitted.get(name):
            sizes = np.geomspace(fit.sizes[0], fit.sizes[-1], 100)
            modelled = np.array([fit.seconds(size) for size in sizes])
            label += f": {number(1e6 * fit.latency.value)} µs, {8e-9 * fit.bandwidth.value:.3g} Gbit/s"
            times.plot(sizes, 1e3 * modelled, **line)
            rates.plot(sizes, bandwidths(sizes, modelled, ranks)[1] / 1e9, **line)
        drawing.points(times, rows.bytes, rows, "allreduce_seconds", label=label, **marks)
        rates.plot(rows.bytes, rows.bus_bandwidth / 1e9, **marks)
    for axes in (times, rates):
        axes.set(xscale="log", yscale="log", xlabel="message")
        axes.xaxis.set_major_locator(LogLocator(base=100))
        axes.xaxis.set_major_formatter(EngFormatter("B"))
        axes.minorticks_off()
    rates.set_ylabel("bus bandwidth (GB/s)")
    return figure
