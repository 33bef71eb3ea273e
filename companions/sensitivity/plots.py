"""A factorial's charts: what the values of each option give, and which options depend on each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.publish.plots import drawing, style
from hpc_utils.publish.plots.chart import charted

NAMES = {
    "bucket_mb": "bucket (MiB)", "batch_per_device": "batch a device", "comm_hook": "compression", "precision": "number format"
}  # fmt: skip


@charted("main-effects", "What the values of each option give, all others averaged.")
def main_effects(table: pd.DataFrame) -> Figure:
    """Throughput at the values of each option, averaged over all others. `table`: `factorial.main_effects`."""
    figure, panels = drawing.panel_of_each(table.groupby("factor", sort=False), sharey=True)
    for axes, factor, effects in panels:
        drawing.points(axes, range(len(effects)), effects, "gain", **style.series(0))
        _levels(axes, effects.level, factor)
    for axes, *_ in panels:
        drawing.factor_axis(axes.yaxis, table[["gain"]])
    figure.axes[0].set_ylabel("throughput over\nthe first value's")
    return figure


@charted("interactions", "Throughput at the values of every two options: parallel lines do not interact.")
def interactions(table: pd.DataFrame) -> Figure:
    """Throughput at the values of two options, a panel for each pair. `table`: `factorial.interactions`."""
    pairs = table.groupby(["first", "second"], sort=False)
    figure, panels = drawing.panel_of_each(pairs, height=2.6, sharey=True)
    for axes, (first, second), cells in panels:
        levels = list(dict.fromkeys(cells.first_level))
        cells = cells.assign(place=cells.first_level.map(levels.index))
        drawing.lines(axes, cells, "place", "throughput", "second_level", label=_level)
        _levels(axes, levels, first)
        drawing.legend_above(axes, title=_name(second), ncols=3, columnspacing=0.8, handlelength=1.6)
    drawing.log_axis(figure.axes[0].yaxis)
    return figure


def _levels(axes: Axes, levels: Iterable[Any], name: str) -> None:
    axes.set_xticks(range(len(levels)), map(_level, levels))
    axes.set_xlabel(_name(name))


def _name(factor: str) -> str:
    return NAMES.get(factor, factor.replace("_", " "))


def _level(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
