"""Imported efficiencies: as their authors report them, and as their times and samples give them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from . import drawing, style
from .chart import charted

PANEL = ["foreign", "workload", "dataset", "precision", "device_name", "kind", "batch"]


@charted("foreign", "Other people's efficiencies as they report them, and as their own times and samples give them.")
def efficiency(table: pd.DataFrame) -> Figure:
    """Reported (open, dotted) and recomputed (filled) efficiency against ranks: a panel for each curve's configuration, a line
    for each parallelism. `table`: `analyze.foreign.efficiency`."""
    panels = list(table.groupby(PANEL, dropna=False, sort=False))
    schemes = list(dict.fromkeys(table.parallel[table.world_size > 1]))
    figure, (grid,) = drawing.wrapped(len(panels), most=2)
    for axes, (key, rows) in zip(grid, panels, strict=True):
        axes.axhline(100, **style.IDEAL, label="ideal")
        for number, scheme in enumerate(schemes):
            curve = rows[(rows.parallel == scheme) | ((rows.world_size == 1) & (rows.parallel == rows.baseline))]
            look = style.series(number)
            drawing.points(axes, curve.world_size, curve, "efficiency", label=f"{scheme}: samples / seconds", **look)
            look |= {"markerfacecolor": "none", "markersize": 8, "linewidth": 0.8, "linestyle": ":"}
            axes.plot(curve.world_size, 100 * curve.reported, label=f"{scheme}: as reported", **look)
        drawing.ranks_axis(axes, rows.world_size)
        drawing.log_axis(axes.yaxis)
        *words, kind, batch = key
        title = ", ".join(word for word in words if pd.notna(word))
        axes.set_title(f"{title}\n{drawing.fixed_batch(kind, batch)}")
    return figure
