"""Time against cost: which configurations are worth their price."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import Bbox

from ..formatting import number
from . import drawing, style
from .chart import charted

# Places of a point's label (alignment, points to the right and up), nearest first. The first to be tried depends on the
# precision, as points of two precisions often coincide.
PLACES = (("left", 4, 4), ("right", -4, -9), ("left", 4, -9), ("right", -4, 4))
FARTHER = tuple((side, right, up + (9 if up > 0 else -9) * away) for away in (1, 2, 3) for side, right, up in PLACES)
CORNERS = dict(zip(style.COLOURS, PLACES, strict=True))
SPREAD = 3.0  # largest over smallest value, from which on an axis is logarithmic


@charted("pareto", "Cost against time of equal work: configurations that no other beats in both are joined.")
def pareto(table: pd.DataFrame, unit: str, *, cost: str = "cost", title: str = "") -> Figure:
    """Time to finish (or to the target) against cost; a line joins the Pareto frontier.

    Numbers at the points are devices. Filled points are on the frontier.

    Args:
        table: `analyze.cost.pareto`. unit, cost: `analyze.cost.currency`.
    """
    if table.empty:
        raise ValueError("no configuration has both a time and a cost")
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.9))
    middle = table.wall_seconds.median()
    scale, unit_of_time = (3600, "h") if middle >= 7200 else (60, "min") if middle >= 120 else (1, "s")
    table = table.assign(time=table.wall_seconds / scale, y=table[cost])
    for precision in drawing.precisions(table):
        rows, look = table[table.precision == precision], style.precision(precision) | {"linestyle": "none"}
        for best, face in ((True, look["color"]), (False, "white")):
            own = rows[rows.pareto == best]
            reach = [end / scale for end in drawing.reaches(own, "wall_seconds")]
            more = {"markerfacecolor": face, "elinewidth": 0.7, "capsize": 1.5, "zorder": 3 if best else 2}
            axes.errorbar(own.time, own.y, xerr=reach, yerr=drawing.reaches(own, cost), **look, **more)
        axes.plot([], [], markerfacecolor=look["color"], label=precision, **look)
    frontier = table[table.pareto].sort_values("time")
    axes.plot(frontier.time, frontier.y, color="0.25", linewidth=1, zorder=1, label="Pareto frontier")
    usual, labels = table.global_batch.mode().max(), []
    for row in table.sort_values("pareto", ascending=False, kind="stable").itertuples():
        text = f"{row.world_size:g}{'*' if row.parallel == 'none' else ''}"
        text += f" ({row.global_batch:g})" if row.global_batch != usual else ""
        look = {"fontweight": "bold", "color": style.COLOURS[row.precision]} if row.pareto else {"color": "0.35"}
        look["path_effects"] = [withStroke(linewidth=1.5, foreground="white")]  # legible on error bars
        label = drawing.near(axes, text, (row.time, row.y), va="baseline", **look)
        labels.append((label, (CORNERS[row.precision], *PLACES, *FARTHER)))
    _scale(axes.xaxis, table.time)
    _scale(axes.yaxis, table.y)
    axes.set(xlabel=f"time ({unit_of_time}), set-up and evaluation included", ylabel=f"cost ({unit})", title=title)
    drawing.legend(figure, 5)
    notes = ["numbers: devices", *(["* without a group"] if (table.parallel == "none").any() else [])]
    notes += [f"(n) global batch, else {usual:g}"] if table.global_batch.nunique() > 1 else []
    drawing.note(figure, f"{', '.join(notes)}\n{drawing.interval(table)}")
    _place(figure, labels)
    return figure


def _place(figure: Figure, labels: Iterable[tuple[Annotation, tuple]]) -> None:
    """Move each label to the first of its places that covers no other label and no point, or else to its first."""
    figure.draw_without_rendering()  # computes the layout
    point = 3 * figure.dpi / 72  # half a marker, in pixels
    spots = [label.axes.transData.transform(label.xy) for label, _ in labels]
    taken = [Bbox([spot - point, spot + point]) for spot in spots]
    for label, places in labels:
        for side, *shift in (*places, places[0]):
            label.set_horizontalalignment(side)
            label.xyann = shift
            box = label.get_window_extent()
            if not box.count_overlaps(taken):
                break
        taken.append(box)


def _scale(axis: Axis, values: pd.Series) -> None:
    """Logarithmic where the values span much, with plain numbers."""
    if values.max() / values.min() >= SPREAD:
        drawing.log_axis(axis, subs=(1, 2, 5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.axes.margins(**{axis.axis_name: 0.12})
