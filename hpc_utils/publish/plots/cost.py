"""Time against cost: which configurations are worth their price."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from hpc_utils.analyze import stats

from ..formatting import UNITS
from . import drawing, style
from .chart import charted


@charted(
    "pareto",
    "Cost against time of equal work, set-up and evaluation included: configurations that no other beats in both are joined; their numbers are devices.",
)
def pareto(table: pd.DataFrame, unit: str, *, cost: str = "cost", title: str = "") -> Figure:
    """Time to finish (or to the target) against cost; a line joins the Pareto frontier, whose points are filled and have their
    number of devices.

    Args:
        table: `analyze.cost.pareto`. unit, cost: `analyze.cost.currency`.
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.9))
    middle = table.wall_seconds.median()
    _, scale, unit_of_time = next(step for step in UNITS["s"] if middle >= step[0])
    columns = stats.columns("wall_seconds")
    table = table.assign(**(table[columns] / scale))
    frontier = table[table.pareto].sort_values("wall_seconds")
    axes.plot(frontier.wall_seconds, frontier[cost], color="0.25", linewidth=1, label="Pareto frontier")
    for (best, precision), rows in table.groupby(["pareto", "precision"]):
        look = style.precision(precision) | {"linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
        look |= {"label": precision} if best else {"markerfacecolor": "white", "label": f"{precision}, beaten"}
        reach = {f"{axis}err": drawing.reach(rows, column) for axis, column in (("x", "wall_seconds"), ("y", cost))}
        axes.errorbar(rows.wall_seconds, rows[cost], **reach, **look)
    for row in frontier.itertuples():
        drawing.near(axes, f"{row.world_size:g}", (row.wall_seconds, getattr(row, cost)), (5, 5), fontweight="bold")
    for axis in (axes.xaxis, axes.yaxis):
        drawing.log_axis(axis)
    axes.set(xlabel=f"time ({unit_of_time})", ylabel=f"cost ({unit})", title=title)
    return figure
