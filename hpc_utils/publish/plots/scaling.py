"""Strong and weak scaling against the number of ranks: a panel for each kind and batch.

A line joins the points of one configuration: of each rank count the layout with the fewest nodes. Other layouts are next to it;
layouts of several nodes are labelled (2x4: two nodes of four ranks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.analyze.scaling import headline
from hpc_utils.records.study import Targets

from . import drawing, style
from .chart import charted

MIB = 2**20
BESIDE = 0.06  # distance of other layouts from their point, as a part of the ranks
STATISTICS = {"peak": ("^", "-", -0.02), "mean": ("o", "--", 0), "mode": ("s", ":", 0.02)}


@charted("throughput-ranks", "Training throughput against the number of ranks.")
def throughput(table: pd.DataFrame) -> Figure:
    """Samples per second against ranks, and N times the throughput of one rank. `table`: `scaling.efficiency`."""
    labels = {"throughput": "throughput (samples/s)"}
    return _curves(headline(table), labels, lambda _, name, row, ranks: getattr(row, name) * ranks)


@charted("times", "Time of a step and of an epoch against the number of ranks.")
def times(table: pd.DataFrame) -> Figure:
    """Time per step and per epoch against ranks. `table`: `scaling.efficiency`."""
    ends = ("", "_low", "_high")
    table = headline(table).assign(**{f"step_ms{end}": 1e3 * table[f"step_seconds{end}"] for end in ends})

    def ideal(kind: str, name: str, row, ranks: np.ndarray) -> np.ndarray:
        return getattr(row, name) / (ranks if kind == "strong" else np.ones(len(ranks)))

    labels = {"step_ms": "time per step (ms)", "epoch_seconds": "time per epoch (s)"}
    return _curves(table, labels, ideal, linear="weak", above=True)


@charted("speedup", "Speed-up against the number of ranks.")
def speedup(table: pd.DataFrame) -> Figure:
    """Speed-up against ranks, and the ideal N. `table`: `scaling.efficiency`."""
    figure = _curves(headline(table), {"speedup": "speed-up"}, lambda _, name, row, ranks: ranks)
    for axes in figure.axes:
        axes.set_yticks(axes.get_xticks(), [f"{ranks:g}" for ranks in axes.get_xticks()])
    return figure


@charted("efficiency", "Strong and weak scaling efficiency against the number of ranks.")
def efficiency(table: pd.DataFrame, targets: Targets | None = None) -> Figure:
    """Strong and weak scaling efficiency, and a study's `targets`. `table`: `scaling.efficiency`.

    Filled markers: against one process without a process group; half-filled: against the same scheme (DDP) on one rank.
    """
    panels = _panels(table)
    across = min(2, len(panels))
    figure, grid = _grid(across, -(-len(panels) // across), sharey=True)
    for empty in grid.flat[len(panels) :]:
        empty.set_axis_off()
    first = grid[0][0]
    first.set_ylim(0, max(1.15, 1.08 * table.high.fillna(table.efficiency).max()))
    for axes, (kind, title, rows) in zip(grid.flat, panels, strict=False):
        axes.axhline(1, **style.IDEAL)
        drawing.near(axes, "ideal", (max(rows.world_size) ** 0.5, 1), (0, 3), color="0.35", ha="center", va="bottom")
        _lines(axes, rows, "efficiency")
        drawing.head(axes, title, across)
        drawing.ranks_axis(axes, rows.world_size)
        if targets:
            _target(axes, kind, targets)
    first.set_ylabel("efficiency")
    drawing.percent(first.yaxis)
    return _explained(figure, table)


@charted("memory", "Memory of a device against the number of ranks.")
def memory(table: pd.DataFrame) -> Figure:
    """Memory per device against ranks: peak, and mean and mode at the ends of steps. `table`: `scaling.memory`."""
    table = headline(table)
    table = table.assign(**{f"mib{end}": table[f"bytes{end}"] / MIB for end in ("", "_low", "_high")})
    panels = _panels(table)
    figure, (line,) = _grid(len(panels), sharey=True)
    for axes, (_, title, rows) in zip(line, panels, strict=True):
        for statistic, (marker, dashes, shift) in STATISTICS.items():
            look = {"marker": marker, "linestyle": dashes}
            own = rows[rows.statistic == statistic]
            _lines(
                axes,
                own,
                "mib",
                name=f"{statistic}, ",
                look=look,
                shift=shift,
                layouts=statistic == "peak",
                above=True,
            )
        drawing.head(axes, title, len(panels))
        drawing.ranks_axis(axes, rows.world_size)
    what = {"allocated": "tensors on a device", "resident": "resident memory of a rank"}
    line[0].set_ylabel(f"{' or '.join(what[kind] for kind in sorted(set(table.memory)))} (MiB)")
    line[0].set_ylim(0, 1.1 * line[0].get_ylim()[1])
    drawing.thousands(line[0].yaxis)
    return _explained(figure, table)


def _curves(
    table: pd.DataFrame, labels: Mapping[str, str], ideal: Callable, *, linear: str = "", above: bool = False
) -> Figure:
    """A row of panels for each column of `labels`. Logarithmic, so that proportional values form a straight line; from zero for
    the kind `linear`.

    ideal: its arguments are kind, column, row of one rank, and ranks.
    """
    panels = _panels(table)
    figure, grid = _grid(len(panels), len(labels))
    for line, (column, label) in zip(grid, labels.items(), strict=True):
        for axes, (kind, _, rows) in zip(line, panels, strict=True):
            _lines(axes, rows, column, ideal=ideal, above=above)
            drawing.ranks_axis(axes, rows.world_size)
            if kind == linear:
                axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
            else:
                drawing.log_axis(axes.yaxis)
        line[0].set_ylabel(label)
    for axes, (_, title, _) in zip(grid[0], panels, strict=True):
        drawing.head(axes, title, len(panels))
        if len(labels) > 1:
            axes.set_xlabel("")
    return _explained(figure, table)


# -- panels ---------------------------------------------------------------------------------------------------


def _panels(table: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """(kind, title, rows) of each panel; titles name the workload where the panels differ in it."""
    if table.empty:
        raise ValueError("no scaling curve: the runs hold no baseline with a multi-rank run of the same work")
    works = table.groupby(["workload", "dataset"], dropna=False).ngroups
    panels = []
    for (kind, batch), rows in table.groupby(["kind", "batch"]):
        title = f"{kind} scaling, {batch:g} samples a step {'in all' if kind == 'strong' else 'and rank'}"
        if kind == "weak" and rows.steps_per_epoch.isna().all():
            title += ", whole epochs"
        own = rows[["workload", "dataset"]].drop_duplicates()
        if works > 1 and len(own) == 1:  # the legend distinguishes several in one panel
            title += ", " + " on ".join(own.iloc[0].dropna())
        panels.append((kind, title, rows))
    return panels


def _grid(across: int, down: int = 1, **more) -> tuple[Figure, np.ndarray]:
    width = min(style.PAGE, style.COLUMN * across)
    return plt.subplots(down, across, figsize=(width, 0.7 + 2.2 * down), squeeze=False, **more)


def _target(axes: Axes, kind: str, targets: Targets) -> None:
    """A target as a dotted line or a grey band, with its text at the lower left, where no curve is: all begin at 100 %."""
    left = axes.get_xlim()[0] * 1.03
    if kind == "strong":
        at, least = targets.strong_ranks, targets.strong_efficiency
        axes.plot([left, at], [least, least], color="0.35", linewidth=0.9, linestyle=":", marker="|", markevery=[1])
        text = f"target: {least:.0%} on {at} ranks (dotted)"
    else:
        most = targets.weak_variation
        axes.axhspan(1 / (1 + most), 1 / (1 - most), color="0.93", zorder=0)
        text = f"target: step time within {most:.0%} (grey)"
    drawing.near(axes, text, (left, 0), (0, 10), color="0.35", va="top")


def _explained(figure: Figure, table: pd.DataFrame) -> Figure:
    drawing.legend(figure, 2 if figure.get_figwidth() > style.COLUMN else 1, last=["ideal"])
    drawing.note(figure, drawing.interval(table))
    return figure


# -- lines ----------------------------------------------------------------------------------------------------


def _lines(
    axes: Axes, rows: pd.DataFrame, column: str, *, ideal: Callable | None = None, name: str = "", look: dict | None = None,
    shift: float = 0.0, layouts: bool = True, above: bool = False,
) -> None:  # fmt: skip
    """Every configuration's `column` with its interval, side by side; `above`: layouts are named above their points."""
    configurations = list(_configurations(rows))
    both = rows.baseline.nunique() > 1 or column == "efficiency"
    for number, (label, points, series) in enumerate(configurations):
        first = points.iloc[0]
        alone = first.baseline == "none"
        mine = style.precision(first.precision) | {"markerfacecoloralt": "white"} | series | (look or {})
        mine |= {"linewidth": 1.4, "fillstyle": "full"} if alone else {"linewidth": 0.8, "fillstyle": "bottom"}
        if both:
            label += f", T(1) {'without a group' if alone else f'{first.baseline.upper()} on one rank'}"
        aside = 1 + shift + 0.025 * (number - (len(configurations) - 1) / 2)
        other = points.world_size.duplicated().to_numpy()  # another layout of a rank count
        drawing.points(axes, aside * points.world_size[~other], points[~other], column, label=name + label, **mine)
        if other.any():
            places = (aside + BESIDE) * points.world_size[other]
            drawing.points(axes, places, points[other], column, **mine | {"linestyle": "none"})
        if ideal is not None and first.world_size == 1:
            ranks = np.array(sorted(set(points.world_size)), dtype=float)
            axes.plot(ranks, ideal(first.kind, column, first, ranks), label="ideal", **style.IDEAL)
    if layouts:
        _name_layouts(axes, rows, column, above)


def _configurations(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict]]:
    """(label, points, look) of each configuration, the points by ranks and nodes. Configurations that differ in more than the
    precision have looks of their own."""
    names = drawing.apart(rows)
    numbers = rows.groupby(names or ["kind"], dropna=False, sort=False).ngroup()
    for precision in drawing.precisions(rows):
        for baseline in sorted({*rows.baseline}, key=lambda name: (name != "none", name)):
            own = rows[(rows.precision == precision) & (rows.baseline == baseline)]
            for _, points in own.groupby(names or ["precision"], dropna=False):
                points = points.sort_values(["world_size", "nodes"])
                look = style.series(numbers[points.index[0]]) if numbers.any() else {}
                yield precision + drawing.more(points.iloc[0], names), points, look


def _name_layouts(axes: Axes, rows: pd.DataFrame, column: str, above: bool) -> None:
    """Each layout of several nodes once, beyond all points of it."""
    places = rows.drop_duplicates(["world_size", "nodes"]).sort_values(["world_size", "nodes"])
    other = places.world_size.duplicated()
    for place, beside in zip(places.itertuples(), np.where(other, 1 + BESIDE, 1), strict=True):
        if place.nodes > 1:
            same = rows[(rows.world_size == place.world_size) & (rows.nodes == place.nodes)]
            below, beyond = drawing.reaches(same, column)
            low, high = (same[column] - below).min(), (same[column] + beyond).max()
            bottom, top = axes.get_ylim()
            up = above or (bottom == 0 and low < 0.15 * top)  # below, it would overlap the axis
            at, look = (place.world_size * beside, high if up else low), {"va": "bottom" if up else "top"}
            drawing.near(axes, place.layout, at, (0, 3 if up else -3), color="0.35", ha="center", fontsize=6, **look)
