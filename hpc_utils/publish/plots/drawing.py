"""What charts share: panels, values with intervals, lines, bars, axes with their units, legends, and the labels of configurations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator, EngFormatter, FixedLocator, LogLocator, MaxNLocator, NullLocator

from hpc_utils.analyze.points import SAME
from hpc_utils.analyze.scaling import described
from hpc_utils.records.identity import differing_settings

from ..formatting import number
from ..quantities import quantity
from . import style

BARS = {"fmt": "none", "ecolor": style.ROLES["ink"], "elinewidth": 0.9}  # an interval on a bar
FEWEST = 4  # ticks of a linear y axis
MILLIONS = 1e5  # from here on, ticks of a logarithmic axis are in millions
NEAR = 1.3  # a factor between two ticks whose numbers would overlap
WIDEST = 1.6  # how far beyond all values an axis of factors follows their intervals


# -- panels and values ----------------------------------------------------------------------------------------


def panels(
    across: int, down: int = 1, height: float = 2.2, *, width: float = 0, **shared: Any
) -> tuple[Figure, np.ndarray]:
    """A figure with rows of panels, each of `height` inches; by default up to two of them share a column, more both columns."""
    size = (width or (style.COLUMN if across < 3 else style.PAGE), 0.5 + height * down)
    return plt.subplots(down, across, figsize=size, squeeze=False, **shared)


def wrapped(count: int, blocks: int = 1, *, height: float = 2.2, **shared: Any) -> tuple[Figure, list[list[Axes]]]:
    """A figure of blocks below each other, each of `count` panels in rows of equal length, at most three of them in a row."""
    down = ceil(count / 3)
    across = ceil(count / down)
    width = style.COLUMN if count < 3 else style.PAGE
    figure, grid = panels(across, down * blocks, height, width=width, **shared)
    block_panels = [block.flat for block in np.split(grid, blocks)]
    for block in block_panels:
        for empty in block[count:]:
            empty.set_axis_off()
    return figure, [list(block[:count]) for block in block_panels]


def panel_of_each(groups: Iterable[tuple[Any, Any]], **layout: Any) -> tuple[Figure, list[tuple[Axes, Any, Any]]]:
    """A figure (`wrapped`) with a panel for each of `groups`; the panels, each with the key and the rows of its group."""
    groups = list(groups)
    figure, (panels,) = wrapped(len(groups), **layout)
    return figure, [(axes, *group) for axes, group in zip(panels, groups, strict=True)]


def points(
    axes: Axes, places: Any, rows: pd.DataFrame, column: str, *, horizontal: bool = False, band: bool = False, **look: Any
) -> None:  # fmt: skip
    """`column` at `places` in the unit of its axis, with its interval where there is one (the columns `<column>_low` and
    `<column>_high`); as bars, or as a band."""
    drawn = quantity(column)
    label = drawn.title
    values = rows[column] / drawn.divisor
    below, above = (length / drawn.divisor for length in reach(rows, column))
    interval = [below, above] if below.notna().any() else None
    if horizontal:
        axes.errorbar(values, places, xerr=interval, **look)
        axes.set_xlabel(label)
        return
    if band:
        axes.fill_between(places, values - below, values + above, color=look["color"], alpha=0.15, linewidth=0)
        axes.plot(places, values, **look)
    else:
        axes.errorbar(places, values, yerr=interval, **look)
    if axes.get_subplotspec().is_first_col():
        axes.set_ylabel(label)


def reach(rows: pd.DataFrame, column: str) -> list[pd.Series]:
    """How far the interval of `column` reaches below and above it; NaN without an interval."""
    low, high = (rows.get(f"{column}_{end}", rows[column] * np.nan) for end in ("low", "high"))
    # The ends of equal repeats can be on the wrong side by rounding.
    return [(rows[column] - low).clip(lower=0), (high - rows[column]).clip(lower=0)]


def lines(
    axes: Axes, rows: pd.DataFrame, x: str, column: str, by: str, *, label: Callable[[Any], str] = str,
    keys: Sequence[Any] | None = None, **look: Any,
) -> None:  # fmt: skip
    """`column` against `x`, a line for each value of the column `by`. `keys`: all of them, if other panels have more."""
    keys = list(dict.fromkeys(rows[by])) if keys is None else list(keys)
    for key, group in rows.groupby(by, sort=False):
        mine = style.series(keys.index(key)) | {"label": label(key)} | look
        points(axes, group[x], group, column, **mine)


def scaling(curves: Mapping[str, pd.DataFrame], x: str, noun: str, samples: str) -> Figure:
    """Throughput and efficiency of each of `curves` against its column `x`, a number of `noun`; ideally, throughput is in
    proportion to it."""
    figure, ((speed, efficiency),) = panels(2, height=2.6)
    counts = np.unique(np.concatenate([rows[x] for rows in curves.values()]))
    for place, (name, rows) in enumerate(curves.items()):
        look = style.series(place) | {"label": name}
        aside = rows[x] * (1 + 0.04 * place)
        for axes, column in ((speed, "throughput"), (efficiency, "efficiency")):
            points(axes, aside, rows, column, **look)
        for single in rows.throughput[rows[x] == 1]:
            speed.plot(counts, single * counts, label="ideal", **style.IDEAL)
    efficiency.axhline(100, **style.IDEAL)
    for axes in (speed, efficiency):
        ranks_axis(axes, counts)
        axes.set_xlabel(noun)
    log_axis(speed.yaxis)
    speed.set_ylabel(f"throughput ({samples}/s)")
    efficiency.set_ylim(0, 1.1 * efficiency.get_ylim()[1])
    efficiency.set_ylabel(quantity("efficiency").title)
    return figure


def every_run(axes: Axes, rows: pd.DataFrame, x: str, column: str, **look: Any) -> None:
    """`column` of every run, thin, and the median of each epoch."""
    thin = {"marker": None, "linewidth": 0.5, "alpha": 0.5, "label": None}
    for _, run in rows.groupby("run_id"):
        points(axes, run[x], run, column, **look | thin)
    middle = rows.groupby("epoch")[list({x, column} - {"epoch"})].median().reset_index()
    points(axes, middle[x], middle, column, markersize=3, **look)


def stacked(
    axes: Axes, places: Any, parts: pd.DataFrame, names: Iterable[str], *, numbers: pd.DataFrame | None = None, vertical: bool = False
) -> np.ndarray:  # fmt: skip
    """Bars of the columns `names` of `parts`, one after the other; returns their ends. `numbers` are written into the parts,
    from 5 on."""
    ends = np.zeros(len(parts))
    draw, base = (axes.bar, "bottom") if vertical else (axes.barh, "left")
    for name in names:
        lengths = parts[name].fillna(0.0).to_numpy(float)
        bars = draw(places, lengths, 0.75, **{base: ends}, **style.fill(name))
        if numbers is not None:
            texts = [f"{value:.0f}" if value >= 5 else "" for value in numbers[name]]
            ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
            axes.bar_label(bars, texts, label_type="center", bbox=ground)
        ends += lengths
    axes.grid(axis="x" if vertical else "y", visible=False)
    return ends


def near(axes: Axes, text: str, point: tuple[float, float], shift: tuple[float, float], **look: Any) -> None:
    """`text` next to `point`, shifted by `shift` points."""
    axes.annotate(text, point, shift, textcoords="offset points", **{"va": "center"} | look)


def beside(axes: Axes, places: Iterable[float], texts: Iterable[str]) -> None:
    """`texts` right of the panel, each at its height."""
    for place, text in zip(places, texts, strict=True):
        axes.text(1.02, place, text, transform=axes.get_yaxis_transform(), va="center")


# -- axes -----------------------------------------------------------------------------------------------------


def log_axis(axis: Axis, ticks: Iterable[float] | None = None) -> None:
    """Logarithmic, with plain numbers at `ticks` (those that would overlap left out); by default at 1, 2 and 5 of each decade, also
    at 3 within one, at 1 of many, or at round steps within a factor of five."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    low, high = axis.get_view_interval()
    spread = high / low
    subs = (1,) if spread > 1000 else (1, 2, 5) if spread > 10 else (1, 2, 3, 5)
    locator = LogLocator(subs=subs) if spread > 5 else MaxNLocator(5, steps=[1, 2, 5, 10])
    apart: list[float] = []
    for tick in sorted(set(() if ticks is None else ticks)):
        if not apart or tick > NEAR * apart[-1]:
            apart.append(tick)
    axis.set_major_locator(FixedLocator(apart) if apart else locator)
    axis.set_major_formatter(lambda value, _: number(value) if value < MILLIONS else f"{value / 1e6:g} M")
    axis.set_minor_locator(NullLocator())


def factor_axis(axis: Axis, values: pd.DataFrame) -> None:
    """Logarithmic, with a line at 1; an interval that is much wider than all `values` (two repeats can give one) leaves the panel."""
    axes = axis.axes
    direction = axis.axis_name
    (axes.axvline if direction == "x" else axes.axhline)(1, **style.IDEAL)
    getattr(axes, f"set_{direction}scale")("log")
    low, high = axis.get_view_interval()
    bounds = max(low, min(1, values.min(axis=None)) / WIDEST), min(high, max(1, values.max(axis=None)) * WIDEST)
    getattr(axes, f"set_{direction}lim")(bounds)
    log_axis(axis)


def ranks_axis(axes: Axes, worlds: Iterable[int]) -> None:
    """The number of ranks along x, with a tick for each of `worlds`, or seven of them."""
    worlds = sorted(set(worlds))
    log_axis(axes.xaxis, worlds[:: ceil(len(worlds) / 7)])
    axes.set_xlim(worlds[0] * 0.84, worlds[-1] * 1.19)
    axes.set_xlabel("ranks")


def message_axis(axes: Axes) -> None:
    """The size of a message along x, and a logarithmic y axis."""
    axes.set(xscale="log", yscale="log", xlabel="message")
    axes.minorticks_off()
    axes.xaxis.set_major_locator(LogLocator(1000, numticks=5))
    axes.xaxis.set_major_formatter(EngFormatter("B"))
    axes.xaxis.set_minor_locator(LogLocator(10, numticks=20))
    axes.xaxis.set_minor_formatter("")


def named_rows(axes: Axes, names: Iterable[str], **look: Any) -> None:
    """Named rows from top to bottom."""
    names = list(names)
    axes.set_yticks(range(len(names)), names, **look)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


# -- legends and notes ----------------------------------------------------------------------------------------


def finished(figure: Figure, note: str = "") -> Figure:
    """`figure` with enough ticks, one legend above all panels, arrows for intervals that leave them, and a note."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        if isinstance(locator := axes.yaxis.get_major_locator(), AutoLocator):
            locator.set_params(min_n_ticks=FEWEST)
        _mark_cut_intervals(axes)
        if axes.get_legend() is None:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
    if handles:
        names = sorted(handles, key="ideal".__eq__)
        width = figure.get_figwidth()
        widths = [0.45 + 0.06 * len(name) for name in names]  # inches
        columns = len(names) if sum(widths) < width else max(1, int(width / max(widths)))
        further = max(0, ceil(len(handles) / columns) - 2)
        figure.set_figheight(figure.get_figheight() + 0.17 * further)
        look = {"handlelength": 1.8, "columnspacing": 1.2}
        figure.legend([handles[name] for name in names], names, loc="outside upper center", ncols=columns, **look)
    if note:
        style.mark(figure, note)
    return figure


def _mark_cut_intervals(axes: Axes) -> None:
    """An arrow at the panel's edge for each end of an interval that lies beyond it: those of few repeats may be endless."""
    low, high = np.sort([axes.get_xlim(), axes.get_ylim()]).T
    for bars in (container for container in axes.containers if isinstance(container, ErrorbarContainer)):
        for collection in bars.lines[2]:
            for place in itertools.chain.from_iterable(collection.get_segments()):
                beyond = np.flatnonzero((place < low) | (place > high))
                if len(beyond) == 1:
                    marker = ("<>", "v^")[beyond[0]][int((place > high).any())]
                    [arrow] = axes.plot(
                        *np.clip(place, low, high), marker, color=collection.get_color(), markersize=3, clip_on=False
                    )
                    arrow.set_in_layout(False)


def legend_above(axes: Axes, **look: Any) -> None:
    """A legend of its own above a panel."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), **look)


def interval(table: pd.DataFrame, *, ratios: bool = False) -> str:
    """What the bars of the table's rows mean: of `ratios` by its columns `repeats` and `rounds`; of other values in a table of
    ratios, which may have fewer repeats, by `runs`."""
    repeats = _span(table.repeats if ratios or "rounds" not in table else table.runs.map(len))
    if ratios and "rounds" in table and (table.rounds > 0).any():
        return f"mean ratio within a round and its 95 % interval: {_span(table.rounds)} rounds in {repeats} repeat{'s' * (repeats != '1')}"
    if repeats in ("", "1"):
        return "single runs"
    return f"median and 95 % interval of {repeats} repeats"


def _span(counts: pd.Series) -> str:
    """`3`, or `3-5`, without zeros."""
    positive = sorted({int(count) for count in counts.dropna() if count})
    return "-".join(map(str, dict.fromkeys((positive[0], positive[-1])))) if positive else ""


# -- configurations -------------------------------------------------------------------------------------------


def fixed_batch(kind: str, batch: float) -> str:
    """`strong scaling, 768 samples in all`: the title of a panel."""
    return f"{kind} scaling\n{batch:g} samples a {'step' if kind == 'strong' else 'rank'}"


def apart(
    table: pd.DataFrame, labelled: Sequence[str] = (), columns: Sequence[str] = ("scheme", *SAME)
) -> tuple[pd.DataFrame, list[str]]:
    """(`table` without the settings that all rows share; those of `columns` other than the precision that tell its configurations apart).

    Points of such configurations form no common curve. A column that follows from those before it, or from those that are
    `labelled` already, is left out."""
    if "settings" in table:
        table = table.assign(settings=differing_settings(table.settings))
    names = []
    configurations = len(table[[*labelled]].drop_duplicates()) if labelled else 1
    for name in columns:
        if name in table and name != "precision":
            count = len(table[[*labelled, *names, name]].drop_duplicates())
            if count > configurations:
                names = [*names, name]
                configurations = count
    return table, names


def more(row: Any, names: Iterable[str]) -> str:
    """`, torch 2.13.0, 1 Gbit/s`: the values of these columns for a label."""
    return "".join(f", {text}" for name in names if (text := described(name, getattr(row, name))))


def precisions(rows: pd.DataFrame) -> list[str]:
    """The precisions of `rows` in the order of all figures."""
    return [name for name in style.PRECISIONS if name in set(rows.precision)]
