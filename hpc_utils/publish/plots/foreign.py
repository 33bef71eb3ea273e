"""Other people's efficiencies as they report them, beside what their own time and samples give."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from hpc_utils.analyze.foreign import SAME
from hpc_utils.records.foreign import Verdict

from . import style
from .chart import charted

COLOURS, MARKERS, LINES = (list(look.values()) for look in (style.COLOURS, style.MARKERS, style.LINES))
RING = {"markerfacecolor": "none", "markersize": 8, "linewidth": 0.8, "linestyle": (0, (1, 1.5))}
LINEAR_TO = 1.5  # an efficiency; what is reported beyond asks for a logarithmic axis


@charted("foreign", "Other people's efficiencies as they report them, and as their own times and samples give them.")
def efficiency(table: pd.DataFrame) -> Figure:
    """Reported (hollow) against corrected (filled) efficiency over ranks; `table` as of `analyze.foreign.efficiency`.

    One panel a fixed batch and configuration, one line a parallelism; a cross is what cannot be checked.

    Raises:
        ValueError: no set has a curve.
    """
    drawn = table[table.kind != ""]
    if drawn.empty:
        raise ValueError("no foreign curve: a set needs comparable runs on one rank and on several")
    panels = list(drawn.groupby([*SAME, "kind", "batch"], dropna=False, sort=False))
    schemes = list(dict.fromkeys(drawn.parallel[drawn.world_size > 1].fillna("")))
    across, down = min(2, len(panels)), -(-len(panels) // 2)
    figure, grid = plt.subplots(
        down, across, figsize=(style.COLUMN * across, 0.9 + 2.3 * down), sharey=True, squeeze=False
    )
    for empty in grid.flat[len(panels) :]:
        empty.set_axis_off()
    for axes, (_, rows) in zip(grid.flat, panels, strict=False):
        _panel(axes, rows, schemes)
    _height(grid[0][0], drawn)
    for axes in grid[:, 0]:
        axes.set_ylabel("efficiency")
    figure.legend(handles=_legend(drawn, schemes), loc="outside upper center", ncols=across + 1)
    repeated = "medians, 95 % intervals where runs were repeated" if drawn.repeats.max() > 1 else "single runs"
    figure.supxlabel(repeated, fontsize=7, color="0.35")
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, schemes: list[str]) -> None:
    axes.axhline(1, **style.IDEAL)
    worlds = sorted(set(rows.world_size.astype(int)))
    axes.annotate("ideal", (worlds[-1], 1), (0, 3), textcoords="offset points", fontsize=7, color="0.35", ha="right")
    for number, scheme in enumerate(schemes):
        own = rows.parallel.fillna("") == scheme
        if not (own & (rows.world_size > 1)).any():
            continue
        curve = rows[own | ((rows.world_size == 1) & ~own)].sort_values(["world_size", "efficiency"])
        curve = curve[(curve.world_size > 1) | (curve.parallel.fillna("") == curve.baseline.fillna(""))]
        curve = curve.assign(place=curve.world_size * (1 + 0.05 * (number - (len(schemes) - 1) / 2)))  # side by side
        look = {"color": COLOURS[number % 4], "marker": MARKERS[number % 4]}
        told = curve[curve.reported.notna()]
        axes.plot(told.place, told.reported, **look | RING)
        checked = curve.verdict != Verdict.UNCHECKED
        bars = [(curve.efficiency - curve.low).fillna(0), (curve.high - curve.efficiency).fillna(0)]
        axes.errorbar(curve.place, curve.efficiency, bars, color=look["color"], linestyle=LINES[number % 4])
        axes.plot(curve.place[checked], curve.efficiency[checked], **look, linestyle="none")
        axes.plot(curve.place[~checked], curve.efficiency[~checked], "x", color=look["color"])
    axes.set_xscale("log", base=2)
    axes.set_xticks(worlds, [str(world) for world in worlds])
    axes.minorticks_off()
    axes.set_xlim(worlds[0] * 0.85, worlds[-1] * 1.18)
    axes.set_xlabel("ranks")
    axes.set_title(_title(rows.iloc[0]), fontsize=8)


def _title(row: pd.Series) -> str:
    """`thesis-2024: resnet50, fp32` and below it what is fixed."""
    words = [str(row[name]) for name in SAME[1:] if pd.notna(row[name])]
    batch = f"{row.batch:g} samples a step {'in all' if row.kind == 'strong' else 'and rank'}"
    fixed = "batch not stated" if row.kind == "unstated" else f"{row.kind} scaling, {batch}"
    return f"{row.foreign}{': ' if words else ''}{', '.join(words)}\n{fixed}"


def _height(axes: Axes, table: pd.DataFrame) -> None:
    highest = table[["reported", "efficiency", "high"]].max(axis=None)
    if highest > LINEAR_TO:
        lowest = table[["reported", "efficiency", "low"]].min(axis=None)
        axes.set_yscale("log", base=2)
        axes.set_ylim(min(0.5, lowest) / 1.15, highest * 1.4)
        axes.yaxis.set_major_locator(FixedLocator([2.0**power for power in range(-12, 12)]))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, max(1.15, 1.08 * highest))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _legend(table: pd.DataFrame, schemes: list[str]) -> list[Line2D]:
    """What hollow, filled and crossed mean; and the lines' names, where there are several."""
    black = {"color": "0.25", "marker": "o"}
    entries = [
        Line2D([], [], **black | RING, label="as reported"),
        Line2D([], [], **black, label="samples / seconds"),
    ]
    if (table.verdict == Verdict.UNCHECKED).any():
        entries.append(Line2D([], [], color="0.25", marker="x", linestyle="none", label="cannot be checked"))
    if len(schemes) > 1:
        entries += [
            Line2D(
                [],
                [],
                color=COLOURS[n % 4],
                marker=MARKERS[n % 4],
                linestyle=LINES[n % 4],
                label=name or "parallelism not stated",
            )
            for n, name in enumerate(schemes)
        ]
    return entries
