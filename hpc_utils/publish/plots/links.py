"""All-reduce time and bandwidth over message sizes, with the ring that was fitted to them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from hpc_utils.allreduce_cost import bandwidths
from hpc_utils.analyze.compare import scaled

from . import drawing, style
from .chart import charted

LABELS = {"all": "all ranks", "intra": "inside a node", "inter": "between nodes"}


@charted(
    "allreduce",
    "Time and bus bandwidth of an all-reduce alone against the size of the message, and the link fitted to it.",
)
def allreduce(table: pd.DataFrame) -> Figure:
    """Time with its fit, and bus bandwidth, against message size; a line for each group. `table`: `links.times`."""
    figure, ((times, rates),) = drawing.panels(2)
    table = scaled(table, "allreduce_seconds", "seconds")
    for place, (name, rows) in enumerate(table.groupby("group", sort=False)):
        ranks = int(rows.ranks.iloc[0])
        look = style.series(place)
        line = look | {"marker": None, "linewidth": 1}
        marks = look | {"markerfacecolor": "white", "linestyle": "none"}
        label = f"{LABELS.get(name, name)} ({ranks})"
        drawing.points(times, rows.bytes, rows, "allreduce_seconds", label=label, **marks)
        times.plot(rows.bytes, 1e3 * rows.modelled, **line)
        for seconds, form in ((rows.allreduce_seconds, marks), (rows.modelled, line)):
            rates.plot(rows.bytes, bandwidths(rows.bytes, seconds, ranks)[1] / 1e9, **form)
    for axes in (times, rates):
        drawing.message_axis(axes)
    rates.set_ylabel("bus bandwidth (GB/s)")
    return figure
