"""An ablation's charts: from the plain loop to the fastest configuration; gain and cost of each change; learning curves.

Factors are on logarithmic axes, on which a factor has the same length everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.analyze import ablation, stats

from ..formatting import number
from ..quantities import quantity
from . import drawing, style
from .chart import charted

FASTEST = "fastest"
NAMES = {
    "bucket_mb": "bucket (MiB)", "batch_per_device": "batch a device", "comm_hook": "compression", "precision": "number format"
}  # fmt: skip


def _rows(count: int, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Panels with a row for each of `count` steps."""
    figure, grid = drawing.panels(panels, height=0.4 + 0.2 * count, sharey=True)
    return figure, list(grid[0])


@charted("before-after", "Throughput of the plain loop and of the fastest configuration.")
def before_after(speeds: pd.DataFrame, gain: stats.Estimate) -> Figure:
    """Throughput of the plain loop and of the fastest configuration. `speeds`: these rows of `Ladder.speeds`; `gain`: the median
    ratio of the pairs, which is not the ratio of both medians."""
    figure, (axes,) = _rows(len(speeds))
    places = np.arange(len(speeds))
    texts = speeds.throughput.map(number)
    axes.barh(places, speeds.throughput, 0.7, color=style.ROLES["main"])
    drawing.points(axes, places, speeds, "throughput", horizontal=True, **drawing.BARS)
    drawing.beside(axes, places, [*texts[:1], *(f"{text} (×{gain.value:.2f})" for text in texts[1:])])
    drawing.named_rows(axes, speeds.label)
    axes.set_xlim(0, drawing.WIDEST * speeds.throughput.max())
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


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
    figure, (axes,) = _rows(len(rows))
    for verdict, changes in rows.dropna(subset="together").groupby("marginal_verdict", sort=False):
        left = begin[changes.index]
        axes.barh(changes.index, changes.together - left, 0.66, left=left, **style.fill(verdict))
    drawing.points(axes, rows.index, rows, "together", horizontal=True, **drawing.BARS)
    missing = rows.why.map({"": "not measured"}).fillna("not applicable here")
    drawing.beside(axes, rows.index, rows.together.map("×{:.2f}".format).where(rows.together.notna(), missing))
    drawing.factor_axis(axes.xaxis, rows[["together"]])
    drawing.named_rows(axes, rows.step)
    return figure


@charted("alone", "What each change gives the plain loop, and what the configuration before it.")
def alone_and_after(gains: pd.DataFrame) -> Figure:
    """What each change gives the plain loop, and the configuration before it. `gains`: `Ladder.gains`."""
    figure, (axes,) = _rows(len(gains))
    places = np.arange(len(gains))
    look = {"horizontal": True, "color": style.ROLES["main"]}
    drawing.points(
        axes, places - 0.14, gains, "alone", fmt="o", mfc="white", label="alone, on the plain loop", **look
    )
    drawing.points(axes, places + 0.14, gains, "marginal", fmt="s", label="after the steps above it", **look)
    drawing.factor_axis(axes.xaxis, gains[["alone", "marginal"]])
    drawing.named_rows(axes, gains.step)
    return figure


@charted("profile", "Where the time of a mean step goes.")
def profile(parts: pd.DataFrame) -> Figure:
    """Where the time of a mean step goes, for each cumulative configuration. `parts`: `Ladder.phases`."""
    figure, (axes,) = _rows(len(parts))
    milliseconds = {quantity(name).label: 1e3 * parts[name] for name in ablation.PARTS if parts[name].notna().any()}
    ends = drawing.stacked(axes, np.arange(len(parts)), pd.DataFrame(milliseconds), milliseconds)
    drawing.beside(axes, range(len(parts)), map("{:.3g}".format, ends))
    drawing.named_rows(axes, parts.step)
    axes.set_xlabel("mean step (ms), split as the sampled steps")
    return figure


@charted(
    "costs",
    "What each change gives in its place, with its interval, and what it costs there: medians of memory and time.",
)
def costs(gains: pd.DataFrame) -> Figure:
    """What each change gives the configuration before it, and its cost: memory, and time before training starts."""
    figure, (speed, memory, start) = _rows(max(len(gains), 2), 3)
    places = np.arange(len(gains))
    drawing.points(speed, places, gains, "marginal", horizontal=True, fmt="s", color=style.ROLES["main"])
    drawing.factor_axis(speed.xaxis, gains[["marginal"]])
    memory.barh(places, 100 * (gains.memory - 1), 0.5, color=style.ROLES["second"])
    memory.set_xlabel("more peak memory (%)")
    start.barh(places, gains.warmup, 0.5, color=style.ROLES["second"])
    start.set_xlabel("more time before training (s)")
    drawing.named_rows(speed, gains.step)
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
