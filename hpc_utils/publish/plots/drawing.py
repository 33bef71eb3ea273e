"""What charts share: values with intervals, stacked bars, axes, notes and legends, and the labels of configurations."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator, PercentFormatter

from hpc_utils.analyze.points import SAME

from ..formatting import number
from . import style

Look = tuple[str, str]  # colour and hatch: distinguishable in grey
LEGEND_ROW = 0.17  # inches
BARS = {"fmt": "none", "ecolor": style.ROLES["ink"], "elinewidth": 0.9}  # an interval on a bar


# -- values ---------------------------------------------------------------------------------------------------


def points(
    axes: Axes, places: Any, rows: pd.DataFrame, column: str, *, scale: float = 1, horizontal: bool = False, **look: Any
) -> None:  # fmt: skip
    """`column` at `places`, with its interval where there is one: the columns `<column>_low` and `_high`, or `low` and `high`."""
    values, reach = scale * rows[column], [scale * end for end in reaches(rows, column)]
    if horizontal:
        axes.errorbar(values, places, xerr=reach, **look)
    else:
        axes.errorbar(places, values, yerr=reach, **look)


def reaches(rows: pd.DataFrame, column: str) -> list[pd.Series]:
    """How far the interval of `column` reaches below and above it; 0 without an interval."""
    low, high = (rows[f"{column}_{end}" if f"{column}_{end}" in rows else end] for end in ("low", "high"))
    # The ends of equal repeats can be on the wrong side by rounding.
    return [(rows[column] - low).fillna(0).clip(lower=0), (high - rows[column]).fillna(0).clip(lower=0)]


def stacked(
    axes: Axes, places: Any, parts: pd.DataFrame, looks: Mapping[str, Look], *, numbers: pd.DataFrame | None = None,
    vertical: bool = False, width: float = 0.75,
) -> np.ndarray:  # fmt: skip
    """Bars of the columns `looks` of `parts`, one after the other; returns their ends. `numbers` are written into the parts,
    from 5 on."""
    ends = np.zeros(len(parts))
    for name, (colour, hatch) in looks.items():
        lengths = parts[name].fillna(0.0).to_numpy(float)
        look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4, "label": name}
        if vertical:
            axes.bar(places, lengths, width, bottom=ends, **look)
        else:
            axes.barh(places, lengths, width, left=ends, **look)
        dark = not hatch and np.dot(to_rgb(colour), (0.3, 0.6, 0.1)) < 0.6
        box = {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8}} if hatch else {}
        middles = zip(
            places, ends + lengths / 2, [] if numbers is None else numbers[name], strict=numbers is not None
        )
        for place, middle, value in middles:
            if value >= 5:
                ink = "white" if dark else "black"
                axes.text(middle, place, f"{value:.0f}", ha="center", va="center", fontsize=6.5, color=ink, **box)
        ends += lengths
    axes.grid(axis="x" if vertical else "y", visible=False)
    return ends


def near(axes: Axes, text: str, at: tuple[float, float], shift: tuple[float, float] = (4, 0), **look: Any):
    """`text` next to the point `at`, shifted by `shift` points."""
    return axes.annotate(text, at, shift, textcoords="offset points", **{"va": "center", "fontsize": 7} | look)


# -- axes -----------------------------------------------------------------------------------------------------


def log_axis(
    axis: Axis, ticks: Iterable[float] | None = None, *, base: float = 10, subs: Sequence[float] = ()
) -> None:
    """Logarithmic, with plain numbers at `ticks`, or at `subs` of each decade: 1, 2 and 5, and more where less than a decade is
    shown."""
    axes, which = axis.axes, axis.axis_name
    getattr(axes, f"set_{which}scale")("log", base=base)
    low, high = axis.get_view_interval()
    subs = subs or ((1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 7))
    axis.set_major_locator(LogLocator(subs=subs) if ticks is None else FixedLocator(sorted(set(ticks))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_locator(NullLocator())


def ranks_axis(axes: Axes, worlds: Iterable[int], *, most: int = 12) -> None:
    """The number of ranks along x, with a tick for each of `worlds`, or `most` of them."""
    worlds = sorted(set(worlds))
    log_axis(axes.xaxis, worlds[:: -(-len(worlds) // most)], base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(worlds[0] * 0.88, worlds[-1] * 1.14)
    axes.set_xlabel("ranks")


def head(axes: Axes, title: str, across: int) -> None:
    """The title of one of `across` panels, wrapped to its width."""
    size = 7.5 if across > 2 else 9
    inches = min(style.PAGE / across, style.COLUMN) - 0.45  # without the space left of the axis
    axes.set_title(textwrap.fill(title, int(inches * 72 / (0.55 * size))), fontsize=size)


def percent(axis: Axis) -> None:
    """Shares as whole percents."""
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def thousands(axis: Axis) -> None:
    """Whole numbers with separators."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def named_rows(axes: Axes, names: Iterable[str], **look: Any) -> None:
    """Named rows from top to bottom."""
    names = list(names)
    axes.set_yticks(range(len(names)), names, **look)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)


# -- notes and legends ----------------------------------------------------------------------------------------


def legend(
    figure: Figure, ncols: int, *, last: Sequence[str] = (), place: str = "outside upper center", **look: Any
) -> None:
    """One legend above all panels, with each label once, `last` behind the others; a long one makes the figure higher."""
    known: dict[str, Any] = {}
    for axes in figure.axes:
        known |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = sorted(known, key=lambda label: label in last)
    columns = min(ncols, len(names))
    if rows := max(0, ceil(len(names) / max(columns, 1)) - 4):
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * rows)
        look["fontsize"] = "x-small"
    figure.legend([known[name] for name in names], names, loc=place, ncols=columns, **look)


def note(figure: Figure, text: str) -> None:
    """A line below all panels."""
    figure.supxlabel(text, fontsize=7, color=style.ROLES["quiet"])


def interval(table: pd.DataFrame, form: str = "median and 95 % interval of {} repeats") -> str:
    """What the bars of the table's rows mean, by its column `repeats`."""
    repeats = sorted({int(one) for one in table.repeats.dropna() if one}) or [1]
    if repeats == [1]:
        return "single runs"
    return form.format("-".join(map(str, dict.fromkeys((repeats[0], repeats[-1])))))


# -- configurations -------------------------------------------------------------------------------------------


def apart(table: pd.DataFrame) -> list[str]:
    """The columns other than the precision in which the table's configurations differ: their points form no common curve."""
    names = (name for name in ("scheme", *SAME) if name in table and name != "precision")
    return [name for name in names if table[name].nunique(dropna=False) > 1]


def more(row: Any, names: Iterable[str]) -> str:
    """`, torch 2.13.0, 1 Gbit/s`: the values of these columns for a label."""
    return "".join(f", {text}" for name in names if (text := _described(name, getattr(row, name))))


def _described(name: str, value: Any) -> str:
    if name == "link_gbit":
        return "links as they are" if pd.isna(value) else f"{value:g} Gbit/s"
    if name == "threads_per_rank":
        return f"{value:g} of a core" if value < 1 else f"{value:g} core{'' if value == 1 else 's'}"
    if name == "share_period":
        return "" if pd.isna(value) else f"every {1e3 * value:g} ms"
    return f"{name.replace('_', ' ')} {str(value)[:12]}"


def precisions(rows: pd.DataFrame) -> list[str]:
    """The precisions of `rows` in the order of all figures."""
    return [name for name in style.COLOURS if name in set(rows.precision)]
