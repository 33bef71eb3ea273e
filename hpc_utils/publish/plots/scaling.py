"""Strong and weak scaling against the number of ranks: a panel for each kind and batch, or several if there are many curves.

A line joins the points of one configuration: of each rank count the layout with the fewest nodes. Other layouts are next to it;
layouts of several nodes are named at the axis (2x4: two nodes of four ranks).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.analyze import stats
from hpc_utils.analyze.scaling import headline
from hpc_utils.records.identity import task
from hpc_utils.records.study import Targets

from ..formatting import scheme
from ..quantities import quantity
from . import drawing, style
from .chart import charted

Curve = tuple[str, dict[str, Any], pd.DataFrame]  # label, look, points

BESIDE = 0.06  # distance of other layouts from their point, as a part of the ranks
# Ideally, a column on N ranks is that on one rank times N to the power of this, in strong and in weak scaling.
IDEAL = {
    "throughput": (1, 1),
    "speedup": (1, 1),
    "step_seconds": (-1, 0),
    "epoch_seconds": (-1, 0),
    "efficiency": (0, 0),
}


@charted("throughput-ranks", "Training throughput against the number of ranks.")
def throughput(table: pd.DataFrame) -> Figure:
    """Samples per second against ranks, and N times the throughput of one rank. `table`: `scaling.efficiency`."""
    return _curves(headline(table), "throughput")


@charted("times", "Time of a step and of an epoch against the number of ranks.")
def times(table: pd.DataFrame) -> Figure:
    """Time per step and per epoch against ranks. `table`: `scaling.efficiency`."""
    return _curves(headline(table), "step_seconds", "epoch_seconds")


@charted("speedup", "Speed-up against the number of ranks.", ratios=True)
def speedup(table: pd.DataFrame) -> Figure:
    """Speed-up against ranks, and the ideal N. `table`: `scaling.efficiency`."""
    return _curves(headline(table), "speedup")


@charted(
    "efficiency",
    "Strong and weak scaling efficiency against the number of ranks; over no group: over one process without a process group.",
    ratios=True,
)
def efficiency(table: pd.DataFrame, targets: Targets | None = None) -> Figure:
    """Strong and weak scaling efficiency, and a study's `targets`. `table`: `scaling.efficiency`.

    Filled markers: over one process without a process group; half-filled: over the same scheme (DDP) on one rank.
    """
    return _curves(table, "efficiency", targets=targets)


@charted(
    "ceiling",
    "Efficiency of strong scaling, and its ceiling: what small batches lose, and what communication and waiting do.",
    ratios=True,
)
def ceiling(table: pd.DataFrame, targets: Targets | None = None) -> Figure:
    """Strong scaling efficiency and its ceiling, and a study's `targets`; the areas are what is lost. `table`: `ceiling.losses`
    of points that have a ceiling."""
    rows, names = drawing.apart(table)
    groups = rows.groupby(["batch", "precision", *names], dropna=False)
    figure, panels = drawing.panel_of_each(groups, height=1.8)
    for axes, (batch, precision, *_), points in panels:
        points = points.sort_values(["world_size", "nodes"]).drop_duplicates("world_size")
        further = drawing.more(points.iloc[0], names)
        single_rank = pd.DataFrame({"world_size": 1, "efficiency": 1.0, "ceiling": 1.0}, [0])
        points = pd.concat([single_rank, points])[["world_size", *stats.columns("efficiency", "ceiling")]]
        worlds, measured, most = (points[name].to_numpy(float) for name in ("world_size", "efficiency", "ceiling"))
        for name, below, above in (("small batches", most, 1.0), ("communication and waiting", measured, most)):
            axes.fill_between(worlds, 100 * below, 100 * above, below < above, interpolate=True, **style.fill(name))
        drawing.points(axes, worlds, points, "ceiling", label="ceiling: computing alone", **style.series(4))
        drawing.points(axes, worlds, points, "efficiency", label="measured", **style.series(0))
        if targets:
            _target(axes, "strong", targets)
        drawing.ranks_axis(axes, worlds)
        axes.set_ylim(0, min(axes.get_ylim()[1], 100 * drawing.WIDEST))  # intervals of few repeats may be endless
        axes.set_title(textwrap.fill(f"{batch:g} samples a step, {precision}{further}", 36))
    return figure


@charted("memory", "Memory of a device against the number of ranks: on a CPU the resident memory of a rank.")
def memory(table: pd.DataFrame) -> Figure:
    """Memory per device against ranks: peak, and mean and mode at the ends of steps. `table`: `scaling.efficiency`."""
    return _curves(headline(table), "peak_bytes", "mean_bytes", "mode_bytes")


def _curves(table: pd.DataFrame, *columns: str, targets: Targets | None = None) -> Figure:
    """A row of panels for each of `columns`. Logarithmic where proportional values form a straight line, else from zero."""
    panels = []
    for (kind, batch), rows in table.groupby(["kind", "batch"]):
        curves = list(_configurations(rows, "efficiency" in columns))
        parts = [curves[first : first + style.CURVES] for first in range(0, len(curves), style.CURVES)]
        for number, part in enumerate(parts, 1):
            title = drawing.fixed_batch(kind, batch)
            panels.append((kind, f"{title} ({number} of {len(parts)})" if len(parts) > 1 else title, part))
    works = table.groupby(["workload", "dataset"], dropna=False).ngroups
    figure, grid = drawing.wrapped(len(panels), len(columns), height=1.75)
    for line, column in zip(grid, columns, strict=True):
        for axes, (kind, title, curves) in zip(line, panels, strict=True):
            rows = pd.concat([points for *_, points in curves])
            power = IDEAL.get(column, (None, None))[kind == "weak"]
            _lines(axes, curves, column, power)
            if targets:
                _target(axes, kind, targets)
            _ranks(axes, rows)
            if power:
                drawing.log_axis(axes.yaxis)
            else:
                largest = rows[column].max() / quantity(column).divisor  # intervals of few repeats may be endless
                axes.set_ylim(0, min(1.1 * axes.get_ylim()[1], drawing.WIDEST * largest))
            if kind == "weak" and rows.steps_per_epoch.isna().all():
                title += "\nwhole epochs"
            tasks = rows[["workload", "dataset"]].drop_duplicates()
            if works > 1 and len(tasks) == 1:  # the legend distinguishes several in one panel
                title += "\n" + task(tasks.iloc[0])
            axes.set_title(title)
    return figure


def _ranks(axes: Axes, rows: pd.DataFrame) -> None:
    """The ranks along x, with the layouts of several nodes."""
    drawing.ranks_axis(axes, rows.world_size)
    places = rows[rows.nodes > 1].sort_values("nodes")
    is_mixed = len(places) < (rows.world_size > 1).sum()
    if places.empty or ((places.ranks_per_node == 1).all() and not is_mixed):
        axes.set_xlabel("ranks" if places.empty else "ranks, one a node")
        return
    layouts = {
        world: "".join(f"\n{layout}" for layout in group.layout.unique())
        for world, group in places.groupby("world_size")
    }
    ticks = axes.get_xticks()
    axes.set_xticks(ticks, [f"{world:g}{layouts.get(world, '')}" for world in ticks])
    axes.set_xlabel("ranks, nodes x ranks")


def _target(axes: Axes, kind: str, targets: Targets) -> None:
    colour = style.ROLES["quiet"]
    if kind == "strong" and targets.strong_ranks:
        least = 100 * targets.strong_efficiency
        label = f"target: {least:g} % on {targets.strong_ranks}"
        axes.plot([1, targets.strong_ranks], [least, least], ":|", color=colour, markevery=[1], label=label)
    if kind == "weak" and targets.weak_ranks:
        most = targets.weak_variation
        label = f"target: within {100 * most:g} %"
        axes.axhspan(100 / (1 + most), 100 / (1 - most), color=colour, alpha=0.15, linewidth=0, label=label)


def _lines(axes: Axes, configurations: list[Curve], column: str, power: float | None) -> None:
    """Every configuration's `column` with its interval, side by side, and the ideal."""
    for number, (label, look, points) in enumerate(configurations):
        first = points.iloc[0]
        aside = 1 + min(0.06, 0.25 / len(configurations)) * (number - (len(configurations) - 1) / 2)
        turns = points.groupby("world_size").cumcount()  # a rank count's other layouts are not on the line
        places = points.world_size * (aside + BESIDE * turns)
        for on_line, options in ((turns == 0, {"label": label}), (turns > 0, {"linestyle": "none"})):
            drawing.points(axes, places[on_line], points[on_line], column, **look | options)
        if power is not None and first.world_size == 1:
            axes.plot(
                points.world_size,
                first[column] / quantity(column).divisor * points.world_size ** float(power),
                label="ideal",
                **style.IDEAL,
            )


def _configurations(rows: pd.DataFrame, names_baseline: bool) -> Iterator[Curve]:
    """(label, look, points) of each configuration, the points by ranks and nodes. Configurations that differ in more than the
    precision have looks of their own."""
    names_baseline |= (rows.baseline != "none").any()
    rows, names = drawing.apart(rows)
    order = rows.precision.map(style.PRECISIONS.index)
    rows = rows.assign(order=order).sort_values(
        ["order", "baseline", "world_size", "nodes"], ascending=[True, False, True, True]
    )
    numbers = rows.groupby(["precision", *names], dropna=False, sort=False).ngroup()
    for (precision, base, *_), points in rows.groupby(["precision", "baseline", *names], dropna=False, sort=False):
        look = style.series(numbers[points.index[0]]) if names else style.precision(precision)
        look |= {"markerfacecoloralt": "white"}
        look |= {"linewidth": 1.4} if base == "none" else {"linewidth": 0.8, "fillstyle": "bottom"}
        over = f" over {scheme(base)}" if names_baseline else ""
        yield precision + drawing.more(points.iloc[0], names) + over, look, points
