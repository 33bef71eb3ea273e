"""Loader workers and their throughput."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from hpc_utils.publish.plots import drawing, style
from hpc_utils.publish.plots.chart import charted


@charted("workers", "Throughput by loader workers of a rank; the line marks those that the guides' rule asks for.")
def workers(table: pd.DataFrame, rule: int) -> Figure:
    """`table`: `analysis.loader_workers`. rule: loader workers that are marked."""
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.4))
    counts = sorted(set(table.loader_workers))  # evenly spaced: none of them has no place on a logarithmic axis
    places = table.loader_workers.map(counts.index)
    for number, ((device, cores), rows) in enumerate(table.groupby(["device_name", "threads_per_rank"])):
        look = style.series(number) | {"label": f"{device}, {cores:g} cores"}
        drawing.points(axes, places[rows.index], rows, "throughput", **look)
    if rule in counts:
        axes.axvline(counts.index(rule), label=f"rule of the guides: {rule}", **style.IDEAL)
    axes.set_xticks(range(len(counts)), counts)
    axes.set_xlabel("loader workers")
    axes.set_ylim(0, None)
    return figure
