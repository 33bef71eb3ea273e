"""Strong and weak scaling against the number of ranks: one panel a curve's kind and batch.

A line joins the points of one configuration, of each rank count the layout with the fewest nodes; other layouts stand
beside it as points, and what lies on several nodes says how (2x4: two nodes with four ranks each).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from hpc_utils.analyze.targets import headline
from hpc_utils.records.study import Targets

from . import drawing, style
from .chart import charted

MIB = 2**20
OTHER = 0.06  # how far beside a point, in parts of its ranks, those of other layouts stand
STATISTICS = {"peak": ("^", "-"), "mean": ("o", "--"), "mode": ("s", ":")}


@charted("throughput-ranks", "Training throughput against the number of ranks.")
def throughput(table: pd.DataFrame) -> Figure:
    """Samples a second against ranks, with the line that N times one rank's would follow. `table`: `scaling.efficiency`."""
    return _curves(headline(table), "throughput", "throughput (samples/s)", ideal=lambda row, n: row.throughput * n)


@charted("times", "Time of a step and of an epoch against the number of ranks.")
def times(table: pd.DataFrame) -> Figure:
    """Time of a step and of an epoch against ranks, above each other. `table` as of `scaling.efficiency`."""
    table = headline(table).assign(step_ms=lambda t: 1e3 * t.step_seconds)
    table = table.assign(step_ms_low=1e3 * table.step_seconds_low, step_ms_high=1e3 * table.step_seconds_high)
    quantities = (("step_ms", "time per step (ms)"), ("epoch_seconds", "time per epoch (s)"))
    panels = _panels(table)
    figure, grid = _grid(len(panels), down=2)
    for line, (name, label) in zip(grid, quantities, strict=True):
        for axes, (kind, title, rows) in zip(line, panels, strict=True):

            def ideal(row, ranks, kind=kind, name=name):
                return getattr(row, name) / ranks if kind == "strong" else np.full(len(ranks), getattr(row, name))

            _lines(axes, rows, name, ideal=ideal, layouts="above")
            _ranks(axes, rows)
            if kind == "strong":
                _logarithmic(axes)
            else:
                axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
            if name == "step_ms":
                axes.set(xlabel=None)
                _head(axes, title, len(panels))
        line[0].set_ylabel(label)
    return _explained(figure, table)


@charted("speedup", "Speed-up against the number of ranks.")
def speedup(table: pd.DataFrame) -> Figure:
    """Speed-up against ranks and its ideal, N. `table` as of `scaling.efficiency`."""
    figure = _curves(headline(table), "speedup", "speed-up", ideal=lambda _, ranks: ranks)
    for axes in figure.axes:
        axes.set_yticks(axes.get_xticks(), [f"{ranks:g}" for ranks in axes.get_xticks()])
    return figure


@charted("efficiency", "Strong and weak scaling efficiency against the number of ranks.")
def efficiency(table: pd.DataFrame, targets: Targets | None = None) -> Figure:
    """Strong and weak scaling efficiency against ideal, and a study's `targets`. `table` as of `scaling.efficiency`.

    Filled markers: against one process without a process group; half-filled ones: against the same scheme (DDP) on one rank.
    """
    table = table.assign(efficiency_low=table.low, efficiency_high=table.high)
    panels = _panels(table)
    across = min(2, len(panels))
    figure, grid = _grid(across, down=-(-len(panels) // across), sharey=True)
    for empty in grid.flat[len(panels) :]:
        empty.set_axis_off()
    grid[0][0].set_ylim(0, max(1.15, 1.08 * table.high.fillna(table.efficiency).max()))
    for axes, (kind, title, rows) in zip(grid.flat, panels, strict=False):
        axes.axhline(1, **style.IDEAL)
        middle = max(rows.world_size) ** 0.5
        axes.annotate("ideal", (middle, 1), (0, 3), textcoords="offset points", fontsize=7, color="0.35", ha="center")
        _lines(axes, rows, "efficiency")
        _head(axes, title, across)
        _ranks(axes, rows)
        if targets:
            _target(axes, kind, targets)
    first = grid[0][0]
    first.set_ylabel("efficiency")
    first.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return _explained(figure, table)


@charted("memory", "Memory of a device against the number of ranks.")
def memory(table: pd.DataFrame) -> Figure:
    """Memory a device against ranks: peak, and mean and mode at the ends of steps. `table` as of `scaling.memory`."""
    table = headline(table)
    table = table.assign(**{f"mib{end}": table[f"bytes{end}"] / MIB for end in ("", "_low", "_high")})
    panels = _panels(table)
    figure, (line,) = _grid(len(panels), sharey=True)
    for axes, (_, title, rows) in zip(line, panels, strict=True):
        for (statistic, (marker, dashes)), shift in zip(STATISTICS.items(), (-0.02, 0, 0.02), strict=True):
            look = {"marker": marker, "linestyle": dashes}
            own = rows[rows.statistic == statistic]
            _lines(
                axes,
                own,
                "mib",
                name=f"{statistic}, ",
                look=look,
                shift=shift,
                layouts="above" if statistic == "peak" else "",
            )
        _head(axes, title, len(panels))
        _ranks(axes, rows)
    what = {"allocated": "tensors on a device", "resident": "resident memory of a rank"}
    line[0].set_ylabel(f"{' or '.join(what[kind] for kind in sorted(set(table.memory)))} (MiB)")
    line[0].set_ylim(0, 1.1 * line[0].get_ylim()[1])
    line[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return _explained(figure, table)


def _curves(table: pd.DataFrame, name: str, label: str, ideal: Callable) -> Figure:
    """One quantity, logarithmic like the ranks, so that in proportion to them is a straight line."""
    panels = _panels(table)
    figure, (line,) = _grid(len(panels))
    for axes, (_, title, rows) in zip(line, panels, strict=True):
        _lines(axes, rows, name, ideal=ideal)
        _head(axes, title, len(panels))
        _ranks(axes, rows)
        _logarithmic(axes)
    line[0].set_ylabel(label)
    return _explained(figure, table)


# -- panels ---------------------------------------------------------------------------------------------------


def _panels(table: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """(kind, title, rows) of each panel; where the panels' workloads differ, titles say theirs."""
    if table.empty:
        raise ValueError("no scaling curve: the runs hold no baseline with a multi-rank run of the same work")
    works = table.groupby(["workload", "dataset"], dropna=False).ngroups
    panels = []
    for (kind, batch), rows in table.groupby(["kind", "batch"]):
        title = f"{kind} scaling, {batch:g} samples a step {'in all' if kind == 'strong' else 'and rank'}"
        if kind == "weak" and rows.steps_per_epoch.isna().all():
            title += ", whole epochs"
        own = rows[["workload", "dataset"]].drop_duplicates()
        if works > 1 and len(own) == 1:  # of several in one panel the legend tells
            title += ", " + " on ".join(own.iloc[0].dropna())
        panels.append((kind, title, rows))
    return panels


def _grid(across: int, down: int = 1, **more) -> tuple[Figure, np.ndarray]:
    width = min(style.PAGE, style.COLUMN * across)
    return plt.subplots(down, across, figsize=(width, 0.7 + 2.2 * down), squeeze=False, **more)


def _head(axes: Axes, title: str, across: int) -> None:
    """The panel's title, on as many lines as the panel's width takes."""
    size = 7.5 if across > 2 else 9
    inches = min(style.PAGE / across, style.COLUMN) - 0.45  # less what stands left of the axis
    axes.set_title(textwrap.fill(title, int(inches * 72 / (0.55 * size))), fontsize=size)


def _ranks(axes: Axes, rows: pd.DataFrame) -> None:
    worlds = sorted(set(rows.world_size))
    axes.set_xscale("log", base=2)
    axes.set_xticks(worlds, [str(world) for world in worlds])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(worlds[0] * 0.88, worlds[-1] * 1.14)
    axes.set_xlabel("ranks")


def _logarithmic(axes: Axes) -> None:
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 7)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.number(value)))
    axes.yaxis.set_minor_locator(NullLocator())


def _target(axes: Axes, kind: str, targets: Targets) -> None:
    """A target as a dotted line or a grey band, and its sentence at the lower left, where no curve comes: each begins at 100 %."""
    left = axes.get_xlim()[0] * 1.03
    if kind == "strong":
        at, least = targets.strong_ranks, targets.strong_efficiency
        axes.plot([left, at], [least, least], color="0.35", linewidth=0.9, linestyle=":", marker="|", markevery=[1])
        text = f"target: {least:.0%} on {at} ranks (dotted)"
    else:
        most = targets.weak_variation
        axes.axhspan(1 / (1 + most), 1 / (1 - most), color="0.93", zorder=0)
        text = f"target: step time within {most:.0%} (grey)"
    axes.annotate(text, (left, 0), (0, 10), textcoords="offset points", fontsize=7, color="0.35", va="top")


def _explained(figure: Figure, table: pd.DataFrame) -> Figure:
    """With one legend for all panels, above them, and what the bars mean, below."""
    known = {}
    for axes in figure.axes:
        known |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = sorted(known, key=lambda label: label == "ideal")
    across = min(len(names), 2 if figure.get_figwidth() > style.COLUMN else 1)
    figure.legend([known[name] for name in names], names, loc="outside upper center", ncols=across)
    figure.supxlabel(drawing.interval(table), fontsize=7, color="0.35")
    return figure


# -- lines ----------------------------------------------------------------------------------------------------


def _lines(
    axes: Axes,
    rows: pd.DataFrame,
    column: str,
    *,
    ideal: Callable | None = None,
    name: str = "",
    look: dict | None = None,
    shift: float = 0.0,
    layouts: str = "below",
) -> None:
    """Every configuration's `column` with its interval, side by side, not on top of each other.

    `ideal(row of one rank, ranks)` gives the values that a perfect machine would reach; `layouts` says where those on
    several nodes are named ("below", "above", "": nowhere).
    """
    configurations = list(_configurations(rows))
    both = rows.baseline.nunique() > 1 or column == "efficiency"
    for number, (label, points, series) in enumerate(configurations):
        first = points.iloc[0]
        mine = _look(first, series | (look or {}))
        if both:
            label += (
                f", T(1) {'without a group' if first.baseline == 'none' else f'{first.baseline.upper()} on one rank'}"
            )
        aside = 1 + shift + 0.025 * (number - (len(configurations) - 1) / 2)
        other = points.world_size.duplicated().to_numpy()  # another layout of a rank count
        for chosen, dashes, beside in ((points[~other], mine["linestyle"], 0), (points[other], "none", OTHER)):
            if len(chosen):
                axes.errorbar(
                    chosen.world_size * (aside + beside),
                    chosen[column],
                    yerr=drawing.bars(chosen, column, f"{column}_low", f"{column}_high"),
                    label=name + label if dashes != "none" else None,
                    **mine | {"linestyle": dashes},
                )
        if ideal is not None and first.world_size == 1:
            ranks = np.array(sorted(set(points.world_size)), dtype=float)
            axes.plot(ranks, ideal(first, ranks), label="ideal", **style.IDEAL)
    if layouts:
        _name_layouts(axes, rows, column, above=layouts == "above")


def _configurations(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict]]:
    """(label, points, look) of each; of several layouts of a rank count the one with the fewest nodes first. More than the
    precision tells apart by a look of its own what the precision's does not."""
    names = drawing.apart(rows)
    kinds = rows[names].drop_duplicates().reset_index(drop=True) if names else rows[names][:1]
    for precision in drawing.ordered(rows.precision):
        for baseline in sorted({*rows.baseline}, key=lambda name: (name != "none", name)):
            own = rows[(rows.precision == precision) & (rows.baseline == baseline)]
            for _, points in own.groupby(names or ["precision"], dropna=False):
                points = points.sort_values(["world_size", "nodes"])
                same = kinds.eq(points.iloc[0][kinds.columns]) | (kinds.isna() & points.iloc[0][kinds.columns].isna())
                colour, line, marker = style.SERIES[int(same.all(axis=1).to_numpy().argmax()) % len(style.SERIES)]
                look = {"color": colour, "linestyle": line, "marker": marker} if len(kinds) > 1 else {}
                yield precision + drawing.more(points.iloc[0], names), points, look


def _look(row, look: dict) -> dict:
    found = {
        "color": style.COLOURS[row.precision],
        "linestyle": style.LINES[row.precision],
        "marker": style.MARKERS[row.precision],
        "linewidth": 1.4 if row.baseline == "none" else 0.8,
        "fillstyle": "full" if row.baseline == "none" else "bottom",
        "markerfacecoloralt": "white",
    }
    return found | look


def _name_layouts(axes: Axes, rows: pd.DataFrame, column: str, *, above: bool) -> None:
    """Each layout on several nodes once, beyond all points that have it."""
    places = rows.drop_duplicates(["world_size", "nodes"]).sort_values(["world_size", "nodes"])
    other = places.world_size.duplicated()
    look = {"textcoords": "offset points", "ha": "center", "fontsize": 6}
    for place, beside in zip(places.itertuples(), np.where(other, 1 + OTHER, 1), strict=True):
        if place.nodes > 1:
            same = rows[(rows.world_size == place.world_size) & (rows.nodes == place.nodes)]
            low, high = (same[f"{column}_{end}"].fillna(same[column]) for end in ("low", "high"))
            bottom, top = axes.get_ylim()
            up = above or (bottom == 0 and low.min() < 0.15 * top)  # else it would stand on the axis
            spot = (place.world_size * beside, high.max() if up else low.min())
            look["va"] = "bottom" if up else "top"
            axes.annotate(place.layout, spot, (0, 3 if up else -3), color="0.35", **look)
