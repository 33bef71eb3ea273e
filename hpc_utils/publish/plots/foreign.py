"""Imported efficiencies: as their authors report them, and as their times and samples give them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from hpc_utils.analyze.foreign import SAME
from hpc_utils.records.foreign import Verdict

from . import drawing, style
from .chart import charted


@charted("foreign", "Other people's efficiencies as they report them, and as their own times and samples give them.")
def efficiency(table: pd.DataFrame) -> Figure:
    """Reported (open, dotted) and recomputed (filled) efficiency against ranks. A panel for each fixed batch and configuration, a
    line for each parallelism; a cross cannot be checked. `table`: the curves of `analyze.foreign.efficiency`."""
    table = table.assign(parallel=table.parallel.fillna("parallelism not stated"))
    panels = list(table.groupby([*SAME, "kind", "batch"], dropna=False, sort=False))
    schemes = list(dict.fromkeys(table.parallel[table.world_size > 1]))
    figure, grid = drawing.wrapped(len(panels), most=2)
    for axes, (_, rows) in zip(grid, panels, strict=True):
        axes.axhline(100, **style.IDEAL, label="ideal")
        for number, scheme in enumerate(schemes):
            own = rows[(rows.parallel == scheme) | ((rows.world_size == 1) & (rows.parallel == rows.baseline))]
            own, look = own.sort_values("world_size"), style.series(number)
            drawing.points(axes, own.world_size, own, "efficiency", label=f"{scheme}: samples / seconds", **look)
            look |= {"markerfacecolor": "none", "markersize": 8, "linewidth": 0.8, "linestyle": ":"}
            axes.plot(own.world_size, 100 * own.reported, label=f"{scheme}: as reported", **look)
        unchecked = rows[rows.verdict == Verdict.UNCHECKED]
        axes.plot(unchecked.world_size, 100 * unchecked.efficiency, "kx", label="cannot be checked")
        drawing.ranks_axis(axes, rows.world_size)
        drawing.log_axis(axes.yaxis)
        first = rows.iloc[0]
        words = ", ".join(str(first[name]) for name in SAME if pd.notna(first[name]))
        axes.set_title(
            f"{words}\n{'batch not stated' if first.kind == 'unstated' else drawing.fixed_batch(first.kind, first.batch)}"
        )
    return figure
