"""Imported efficiencies: as their authors report them, and as their times and samples give them."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.analyze.foreign import SAME
from hpc_utils.records.foreign import Verdict

from . import drawing, style
from .chart import charted

RING = {"markerfacecolor": "none", "markersize": 8, "linewidth": 0.8, "linestyle": (0, (1, 1.5))}
LINEAR_TO = 1.5  # largest efficiency that is drawn on a linear axis


@charted("foreign", "Other people's efficiencies as they report them, and as their own times and samples give them.")
def efficiency(table: pd.DataFrame) -> Figure:
    """Reported (hollow) and recomputed (filled) efficiency against ranks. A panel for each fixed batch and configuration, a line
    for each parallelism; a cross cannot be checked. `table`: `analyze.foreign.efficiency`.

    Raises:
        ValueError: no set has a curve.
    """
    drawn = table[table.kind != ""]
    if drawn.empty:
        raise ValueError("no foreign curve: a set needs comparable runs on one rank and on several")
    panels = list(drawn.groupby([*SAME, "kind", "batch"], dropna=False, sort=False))
    schemes = list(dict.fromkeys(drawn.parallel[drawn.world_size > 1].fillna("")))
    looks = {
        name: style.precision(key) for name, key in zip(schemes, list(style.COLOURS) * len(schemes), strict=False)
    }
    across, down = min(2, len(panels)), -(-len(panels) // 2)
    size = (style.COLUMN * across, 0.9 + 2.3 * down)
    figure, grid = plt.subplots(down, across, figsize=size, sharey=True, squeeze=False)
    for empty in grid.flat[len(panels) :]:
        empty.set_axis_off()
    for axes, (_, rows) in zip(grid.flat, panels, strict=False):
        _panel(axes, rows, looks)
    _height(grid[0][0], drawn)
    for axes in grid[:, 0]:
        axes.set_ylabel("efficiency")
    _explain(grid[0][0], drawn, looks)
    drawing.legend(figure, across + 1)
    repeated = "medians, 95 % intervals where runs were repeated" if drawn.repeats.max() > 1 else "single runs"
    drawing.note(figure, repeated)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    axes.axhline(1, **style.IDEAL)
    worlds = sorted(set(rows.world_size.astype(int)))
    drawing.near(axes, "ideal", (worlds[-1], 1), (0, 3), color="0.35", ha="right", va="bottom")
    for number, (scheme, look) in enumerate(looks.items()):
        own = rows.parallel.fillna("") == scheme
        if not (own & (rows.world_size > 1)).any():
            continue
        curve = rows[own | ((rows.world_size == 1) & ~own)].sort_values(["world_size", "efficiency"])
        curve = curve[(curve.world_size > 1) | (curve.parallel.fillna("") == curve.baseline.fillna(""))]
        curve = curve.assign(place=curve.world_size * (1 + 0.05 * (number - (len(looks) - 1) / 2)))  # side by side
        reported = curve[curve.reported.notna()]
        axes.plot(reported.place, reported.reported, **look | RING)
        drawing.points(axes, curve.place, curve, "efficiency", **look | {"marker": None})
        for marker, chosen in (
            (look["marker"], curve.verdict != Verdict.UNCHECKED),
            ("x", curve.verdict == Verdict.UNCHECKED),
        ):
            mark = look | {"marker": marker, "linestyle": "none"}
            axes.plot(curve.place[chosen], curve.efficiency[chosen], **mark)
    drawing.ranks_axis(axes, worlds)
    first = rows.iloc[0]
    words = ", ".join(str(first[name]) for name in SAME[1:] if pd.notna(first[name]))
    batch = f"{first.batch:g} samples a step {'in all' if first.kind == 'strong' else 'and rank'}"
    fixed = "batch not stated" if first.kind == "unstated" else f"{first.kind} scaling, {batch}"
    axes.set_title(f"{first.foreign}{': ' if words else ''}{words}\n{fixed}", fontsize=8)


def _height(axes: Axes, table: pd.DataFrame) -> None:
    highest = table[["reported", "efficiency", "high"]].max(axis=None)
    if highest > LINEAR_TO:
        lowest = table[["reported", "efficiency", "low"]].min(axis=None)
        drawing.log_axis(axes.yaxis, [2.0**power for power in range(-12, 12)], base=2)
        axes.set_ylim(min(0.5, lowest) / 1.15, highest * 1.4)
    else:
        axes.set_ylim(0, max(1.15, 1.08 * highest))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")


def _explain(axes: Axes, table: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    """Legend entries for hollow, filled and crossed markers, and for the lines, where there are several."""
    black = {"color": "0.25", "marker": "o"}
    entries = {"as reported": black | RING, "samples / seconds": black}
    if (table.verdict == Verdict.UNCHECKED).any():
        entries["cannot be checked"] = black | {"marker": "x", "linestyle": "none"}
    if len(looks) > 1:
        entries |= {name or "parallelism not stated": look for name, look in looks.items()}
    for label, look in entries.items():
        axes.plot([], [], label=label, **look)
