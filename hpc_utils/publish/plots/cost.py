"""Time against cost: which configurations are worth their price."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, LogLocator
from matplotlib.transforms import Bbox

from . import style
from .chart import charted

# Where a point's label may stand (alignment, points to the right and up), nearest first; which is tried first tells its
# number format: points of two formats often lie on top of each other.
PLACES = (("left", 4, 4), ("right", -4, -9), ("left", 4, -9), ("right", -4, 4))
FARTHER = tuple((side, right, up + (9 if up > 0 else -9) * away) for away in (1, 2, 3) for side, right, up in PLACES)
CORNERS = dict(zip(style.COLOURS, PLACES, strict=True))
SPREAD = 3.0  # largest over smallest, from which an axis is logarithmic


@charted("pareto", "Cost against time of equal work: configurations that no other beats in both are joined.")
def pareto(table: pd.DataFrame, unit: str, *, cost: str = "cost", title: str = "") -> Figure:
    """Time to finish (or to the target) against cost, the frontier joined by a line.

    Numbers at the points are devices; filled points are on the frontier, hollow ones are beaten in both.

    Args:
        table: as of `analyze.cost.pareto`. unit, cost: as of `analyze.cost.currency`.
    """
    if table.empty:
        raise ValueError("no configuration has both a time and a cost")
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.9))
    scale, unit_of_time = _time(table.wall_seconds)
    for precision in [name for name in style.COLOURS if name in set(table.precision)]:
        rows = table[table.precision == precision]
        look = {"color": style.COLOURS[precision], "marker": style.MARKERS[precision], "linestyle": "none"}
        for best, face in ((True, style.COLOURS[precision]), (False, "white")):
            chosen = rows[rows.pareto == best]
            axes.errorbar(
                chosen.wall_seconds / scale,
                chosen[cost],
                xerr=_bars(chosen, "wall_seconds", scale),
                yerr=_bars(chosen, cost),
                markerfacecolor=face,
                elinewidth=0.7,
                capsize=1.5,
                zorder=3 if best else 2,
                **look,
            )
        axes.plot([], [], markerfacecolor=style.COLOURS[precision], label=precision, **look)
    frontier = table[table.pareto].sort_values("wall_seconds")
    axes.plot(
        frontier.wall_seconds / scale, frontier[cost], color="0.25", linewidth=1, zorder=1, label="Pareto frontier"
    )
    usual, names = table.global_batch.mode().max(), []
    for row in table.sort_values("pareto", ascending=False, kind="stable").itertuples():
        side, right, up = CORNERS[row.precision]
        name = axes.annotate(
            f"{row.world_size:g}{'*' if row.parallel == 'none' else ''}"
            f"{f' ({row.global_batch:g})' if row.global_batch != usual else ''}",
            (row.wall_seconds / scale, getattr(row, cost)),
            (right, up),
            textcoords="offset points",
            ha=side,
            fontsize=7,
            fontweight="bold" if row.pareto else None,
            color=style.COLOURS[row.precision] if row.pareto else "0.35",
            path_effects=[withStroke(linewidth=1.5, foreground="white")],  # legible on error bars
        )
        names.append((name, (CORNERS[row.precision], *PLACES, *FARTHER)))
    _scale(axes, "x", table.wall_seconds / scale)
    _scale(axes, "y", table[cost])
    axes.set_xlabel(f"time ({unit_of_time}), set-up and evaluation included")
    axes.set_ylabel(f"cost ({unit})")
    axes.set_title(title)
    figure.legend(loc="outside upper center", ncols=len(axes.get_legend_handles_labels()[0]))
    said = ["numbers: devices", *(["* without a group"] if (table.parallel == "none").any() else [])]
    said += [f"(n) global batch, else {usual:g}"] if table.global_batch.nunique() > 1 else []
    figure.supxlabel(f"{', '.join(said)}\n{_interval(table)}", fontsize=7, color="0.35")
    _apart(figure, names)
    return figure


def _apart(figure: Figure, names: Sequence[tuple[Annotation, Sequence[tuple[str, int, int]]]]) -> None:
    """Each name at the first of its places where no other name and no point is, if there is one."""
    figure.draw_without_rendering()  # the layout is known from then on
    point = 3 * figure.dpi / 72  # half a marker, in pixels
    points = [
        Bbox([middle - point, middle + point])
        for middle in (name.axes.transData.transform(name.xy) for name, _ in names)
    ]
    taken: list[Bbox] = []
    for name, places in names:
        for place in (*places, places[0]):
            name.set_horizontalalignment(place[0])
            name.xyann = place[1:]
            box = name.get_window_extent()
            if not box.count_overlaps([*points, *taken]):
                break
        taken.append(box)


def _time(seconds: pd.Series) -> tuple[float, str]:
    """(seconds in the unit, its name) in which the median is a number at a glance."""
    middle = seconds.median()
    return (3600, "h") if middle >= 7200 else (60, "min") if middle >= 120 else (1, "s")


def _scale(axes, which: str, values: pd.Series) -> None:
    """Logarithmic where the values span much, with plain numbers on it."""
    axis = getattr(axes, f"{which}axis")
    if values.max() / values.min() >= SPREAD:
        getattr(axes, f"set_{which}scale")("log")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axis.set_major_formatter(FuncFormatter(lambda value, _: style.number(value)))
    axes.margins(**{which: 0.12})


def _bars(rows: pd.DataFrame, name: str, scale: float = 1):
    """Asymmetric error bars (2, N); nothing where there is no interval."""
    below, above = rows[name] - rows[f"{name}_low"], rows[f"{name}_high"] - rows[name]
    return [below.fillna(0).clip(lower=0) / scale, above.fillna(0).clip(lower=0) / scale]


def _interval(table: pd.DataFrame) -> str:
    repeats = sorted(set(table.repeats))
    if repeats == [1]:
        return "single runs"
    return f"median and 95 % interval of {'-'.join(str(r) for r in dict.fromkeys((repeats[0], repeats[-1])))} repeats"
