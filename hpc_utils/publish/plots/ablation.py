"""An ablation's charts: from the plain loop to the fastest configuration; the phases of a step; learning curves."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from hpc_utils.analyze import ablation

from ..quantities import quantity
from . import drawing, style
from .chart import charted

FASTEST = "fastest"


@charted(
    "ladder",
    "From the plain loop to the fastest, change by change: bars start at the configuration before, the axis is logarithmic.",
)
def waterfall(gains: pd.DataFrame, best: ablation.Best) -> Figure:
    """A bar for each change, from the configuration before it to the one with it; last the fastest configuration.

    Numbers and intervals are throughput over that of the plain loop; colours are the verdict on the change after those before it.
    """
    last = {"step": best.name, "marginal_verdict": FASTEST} | best.gain.columns("together")
    rows = pd.concat([gains, pd.DataFrame([last])], ignore_index=True)
    begin = rows.together.ffill().shift().fillna(1.0)
    begin.iloc[-1] = 1.0
    figure, ((axes,),) = drawing.panels(1, height=0.4 + 0.2 * len(rows))
    for verdict, changes in rows.dropna(subset="together").groupby("marginal_verdict", sort=False):
        left = begin[changes.index]
        axes.barh(changes.index, changes.together - left, 0.66, left=left, **style.fill(verdict))
    drawing.points(axes, rows.index, rows, "together", horizontal=True, **drawing.BARS)
    missing = rows.why.map({"": "not measured"}).fillna("not applicable here")
    drawing.beside(axes, rows.index, rows.together.map("×{:.2f}".format).where(rows.together.notna(), missing))
    drawing.factor_axis(axes.xaxis, rows[["together"]])
    drawing.named_rows(axes, rows.step)
    return figure


@charted("profile", "Where the time of a mean step goes.")
def profile(parts: pd.DataFrame) -> Figure:
    """Where the time of a mean step goes, for each cumulative configuration. `parts`: `Ladder.phases`."""
    figure, ((axes,),) = drawing.panels(1, height=0.4 + 0.2 * len(parts))
    milliseconds = {quantity(name).label: 1e3 * parts[name] for name in ablation.PARTS if parts[name].notna().any()}
    ends = drawing.stacked(axes, np.arange(len(parts)), pd.DataFrame(milliseconds), milliseconds)
    drawing.beside(axes, range(len(parts)), map("{:.3g}".format, ends))
    drawing.named_rows(axes, parts.step)
    axes.set_xlabel("mean step (ms), split as the sampled steps")
    return figure


@charted("learning", "What is learnt by when, of the plain loop and of the fastest configuration.")
def learning(curves: pd.DataFrame) -> Figure:
    """Loss and accuracy against training time; every run thin, the median marked. `curves`: `Ladder.learning`."""
    columns = ["loss", "accuracy"]
    if curves.accuracy.isna().all():
        columns = ["training_loss"]
        curves = curves.rename(columns={"loss": "training_loss"})
    figure, (grid,) = drawing.panels(len(columns))
    for axes, column in zip(grid, columns, strict=True):
        for place, (label, curve) in enumerate(curves.dropna(subset=column).groupby("label", sort=False)):
            drawing.every_run(axes, curve, "seconds", column, label=label, **style.series(place))
        axes.set(xlabel="training time (s)", ylabel=quantity(column).title)
        axes.set_xlim(left=0)
    return figure
