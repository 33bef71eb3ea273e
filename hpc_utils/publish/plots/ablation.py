"""An ablation's charts: from the plain loop to the fastest configuration; gain and cost of each change; learning curves.

Factors are on logarithmic axes, on which a factor has the same length everywhere. An interval that is much wider than all values
(two repeats can give one) leaves the panel without an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from hpc_utils.analyze import ablation, stats

from ..formatting import number
from . import drawing, style
from .chart import charted

COLOURS = {
    ablation.FASTER: (style.ROLES["faster"], ""),
    ablation.SLOWER: (style.ROLES["slower"], "////"),
    ablation.NOISE: (style.ROLES["neutral"], "...."),
    ablation.SINGLE: (style.ROLES["neutral"], ""),
}
HATCHES = {"data": "", "forward": "////", "backward": "", "optimizer": "...."}
PHASES = {phase: (style.ROLES[phase], hatch) for phase, hatch in HATCHES.items()}
MARK = style.ROLES["main"]
NAMES = {
    "bucket_mb": "bucket (MiB)", "batch_per_device": "batch a device", "comm_hook": "compression", "precision": "number format"
}  # fmt: skip
WIDEST = 1.6  # how far beyond all values an axis follows their intervals, as a factor
# Round factors, by the most that an axis spans.
TICKS = {
    1.2: [0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2],
    2: [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 1.8, 2],
    8: [0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 8],
    np.inf: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000],
}
ROW, REST = 0.24, 0.75  # inches: of a row, and of title and axis
LEGEND = {"handlelength": 1.2, "handletextpad": 0.4, "columnspacing": 1}
# Text on a white ground, as an interval may continue behind it.
_beside = partial(
    drawing.near, color=style.ROLES["ink"], bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6}
)
_interval = partial(drawing.interval, form="95 % interval, {} pairs")


@charted("before-after", "Throughput of the plain loop and of the fastest configuration.")
def before_after(speeds: pd.DataFrame, gain: stats.Estimate) -> Figure:
    """Throughput of the plain loop and of the fastest configuration. `speeds`: these rows of `ablation.speeds`; `gain`: the median
    ratio of the pairs, which is not the ratio of both medians."""
    figure, axes = plt.subplots(figsize=(style.COLUMN, REST + 0.3 * len(speeds)))
    places = np.arange(len(speeds))
    colours = [style.ROLES["faster" if place else "neutral"] for place in places]
    axes.barh(places, speeds.throughput, height=0.7, color=colours, edgecolor="white")
    drawing.points(axes, places, speeds, "throughput", horizontal=True, **drawing.BARS)
    for place, row in zip(places, speeds.itertuples(), strict=True):
        text = number(row.throughput) + (f" (×{gain.value:.2f})" if place else "")
        _beside(axes, text, (_end(speeds.throughput, row.throughput, row.high), place))
    drawing.named_rows(axes, speeds.label)
    axes.set_xlim(0, 1.45 * _end(speeds.throughput, speeds.throughput.max(), speeds.high.max()))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    drawing.thousands(axes.xaxis)
    axes.set_xlabel(f"samples/s\n{drawing.interval(speeds)}")
    return figure


@charted(
    "ladder",
    "From the plain loop to the fastest, change by change: bars start at the configuration before, the axis is logarithmic.",
)
def waterfall(gains: pd.DataFrame, best: ablation.Best) -> Figure:
    """A bar for each change, from the configuration before it to the one with it; last the fastest configuration.

    Numbers and intervals are throughput over that of the plain loop; colours are `ablation.verdict` of the change alone.
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, REST + 0.2 + ROW * (len(gains) + 2)))
    ends = ["together", "together_low", "together_high"]
    fastest = pd.DataFrame([best.gain[:3]], columns=ends)
    shown = pd.concat([gains[ends].astype(float), fastest], ignore_index=True)
    axes.plot([1], [0], "|", color=style.ROLES["ink"], markersize=10)
    _beside(axes, "1", (1, 0))

    def bar(place: int, left: float, row: pd.Series, text: str = "", **look) -> None:
        axes.barh(place, row.together - left, left=left, height=0.66, **look)
        if row.together_low == row.together_low:
            drawing.points(axes, [place], row.to_frame().T.astype(float), "together", horizontal=True, **drawing.BARS)
        end = _end(shown.together, max(left, row.together), row.together_high)
        _beside(axes, f"×{row.together:.2f}{text}", (end, place))

    reached, at, seen = 1.0, 0, {}
    for place, row in enumerate(gains.itertuples(), 1):
        if np.isnan(row.together):
            _beside(axes, "not applicable here" if row.why else "not measured", (reached, place), color="0.45")
            continue
        verdict = ablation.verdict(row.marginal_low, row.marginal_high)
        colour, hatch = seen[verdict] = COLOURS[verdict]
        bar(place, reached, shown.loc[place - 1], color=colour, hatch=hatch, edgecolor="white", linewidth=0.5)
        axes.plot([reached, reached], [at, place], color="0.45", linewidth=0.7)
        reached, at = row.together, place
    bar(len(gains) + 1, 1, shown.iloc[-1], ", fastest", facecolor="white", edgecolor=style.ROLES["ink"], linewidth=1)
    drawing.named_rows(axes, ["plain loop", *gains.step, best.name])
    _factors(axes, shown, ["together"], beyond=1.75)
    axes.set_xlabel(f"throughput over the plain loop's\n({_interval(gains)})")
    handles = [
        Patch(facecolor=COLOURS[one][0], hatch=COLOURS[one][1], edgecolor="white", label=one)
        for one in COLOURS
        if one in seen
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, **LEGEND)
    return figure


@charted("alone", "What each change gives the plain loop, and what the configuration before it.")
def alone_and_after(gains: pd.DataFrame) -> Figure:
    """What each change gives the plain loop, and the configuration before it. `gains`: `ablation.gains`."""
    gains = gains[gains.alone.notna() | gains.marginal.notna()].reset_index(drop=True)
    figure, axes = plt.subplots(figsize=(style.COLUMN, REST + 0.25 + 0.34 * len(gains)))
    axes.axvline(1, **style.IDEAL)
    for shift, kind, marker, colour, face, label in (
        (-0.14, "alone", "o", style.ROLES["quiet"], "white", "alone, on the plain loop"),
        (0.14, "marginal", "s", MARK, MARK, "after the steps above it"),
    ):
        own = gains[gains[kind].notna()]
        look = {"fmt": marker, "color": colour, "markerfacecolor": face, "elinewidth": 0.9, "label": label}
        drawing.points(axes, own.index.to_numpy() + shift, own, kind, horizontal=True, **look)
    drawing.named_rows(axes, gains.step)
    axes.set_ylim(len(gains) - 0.5, -0.5)
    _factors(axes, gains, ["alone", "marginal"])
    axes.set_xlabel(f"throughput with it over without\n({_interval(gains)})")
    drawing.legend(figure, 2, handletextpad=0.3, columnspacing=1)
    return figure


@charted("profile", "Where the time of a mean step goes.")
def profile(parts: pd.DataFrame) -> Figure:
    """Where the time of a mean step goes, for each cumulative configuration. `parts`: `ablation.profile` (ms)."""
    figure, axes = plt.subplots(figsize=(style.COLUMN, REST + 0.3 + ROW * len(parts)))
    for place, whole in enumerate(drawing.stacked(axes, np.arange(len(parts)), parts, PHASES, width=0.7)):
        _beside(axes, f"{whole:.3g}", (whole, place))
    drawing.named_rows(axes, parts.step)
    axes.margins(x=0.12)
    axes.set_xlabel("mean step (ms),\nsplit as the sampled steps")
    drawing.legend(figure, 4, **LEGEND)
    return figure


@charted("costs", "What each change gives in its place, and what it costs there.")
def costs(gains: pd.DataFrame) -> Figure:
    """What each change gives the configuration before it, and its cost: memory, and time before training starts."""
    own = gains[gains.marginal.notna()].reset_index(drop=True)
    size = (style.PAGE, REST + 0.28 * max(len(own), 2))
    figure, (speed, memory, start) = plt.subplots(1, 3, sharey=True, figsize=size)
    speed.axvline(1, **style.IDEAL)
    drawing.points(speed, own.index, own, "marginal", horizontal=True, fmt="s", color=MARK, elinewidth=0.9)
    _factors(speed, own, ["marginal"])
    speed.set_xlabel(f"throughput with it over without\n({_interval(own)})")
    for axes, values, form, label in (
        (memory, own.memory - 1, "{:+.1%}", "cost: peak memory"),
        (start, own.warmup, "{:+.2f} s", "cost: seconds before the clock"),
    ):
        axes.barh(own.index, values, height=0.5, color=[style.ROLES["slower" if v > 0 else "faster"] for v in values])
        axes.axvline(0, color=style.ROLES["quiet"], linewidth=0.8)
        axes.set_xlabel(label)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.25)
        for place, value in values.dropna().items():
            _beside(axes, form.format(value), (max(value, 0), place))
    memory.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    memory.xaxis.set_major_locator(MaxNLocator(3))
    drawing.named_rows(speed, own.step)
    return figure


@charted("learning", "What is learnt by when, of the plain loop and of the fastest configuration.")
def learning(curves: pd.DataFrame) -> Figure:
    """Loss and accuracy against training time; every run thin, the median marked. `curves`: `ablation.learning`."""
    tested = curves.accuracy.notna().any()
    labels = {"loss": "test loss" if tested else "training loss", "accuracy": "test accuracy"}
    shown = [name for name in labels if curves[name].notna().any()]
    figure, grid = plt.subplots(1, len(shown), figsize=(style.COLUMN * len(shown), 2.4), squeeze=False)
    for axes, name in zip(grid[0], shown, strict=True):
        for place, (label, own) in enumerate(curves.dropna(subset=[name]).groupby("label", sort=False)):
            look = style.series(place)
            for _, one in own.groupby("run_id"):
                axes.plot(one.seconds, one[name], **look | {"marker": None, "linewidth": 0.5, "alpha": 0.5})
            middle = own.groupby("epoch")[["seconds", name]].median()
            axes.plot(middle.seconds, middle[name], markersize=3, label=label, **look)
        axes.set(xlabel="training time (s)", ylabel=labels[name])
        axes.set_xlim(left=0)
        if name == "accuracy":
            drawing.percent(axes.yaxis)
    drawing.legend(figure, 2)
    return figure


@charted("main-effects", "What the values of each option give, all others averaged.")
def main_effects(table: pd.DataFrame) -> Figure:
    """Throughput at the values of each option, averaged over all others. `table`: `factorial.main_effects`."""
    factors = list(dict.fromkeys(table.factor))
    figure, grid = _option_panels(len(factors), 2.2)
    for axes, factor in zip(grid, factors, strict=True):
        own = table[table.factor == factor].reset_index(drop=True)
        axes.axhline(1, **style.IDEAL)
        drawing.points(axes, own.index, own, "gain", fmt="-o", color=MARK, elinewidth=0.9)
        _levels(axes, own.level, factor)
    _factors(grid[0], table.rename(columns={"low": "gain_low", "high": "gain_high"}), ["gain"], vertical=True)
    grid[0].set_ylabel("throughput over\nthe first value's")
    return figure


@charted("interactions", "Throughput at the values of every two options: parallel lines do not interact.")
def interactions(table: pd.DataFrame) -> Figure:
    """Throughput at the values of two options, a panel for each pair. `table`: `factorial.interactions`."""
    pairs = list(table.groupby(["first", "second"], sort=False))
    figure, grid = _option_panels(len(pairs), 2.7)
    for axes, ((first, second), own) in zip(grid, pairs, strict=True):
        levels = list(dict.fromkeys(own.first_level))
        for place, (level, line) in enumerate(own.groupby("second_level", sort=False)):
            axes.plot(line.first_level.map(levels.index), line.throughput, label=_level(level), **style.series(place))
        _levels(axes, levels, first)
        axes.legend(title=_name(second), title_fontsize=7.5, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, fontsize=6.5,
                    handlelength=1.8, handletextpad=0.3, columnspacing=0.7, borderaxespad=0.2)  # fmt: skip
    drawing.log_axis(grid[0].yaxis)
    drawing.thousands(grid[0].yaxis)
    grid[0].set_ylabel("throughput (samples/s)")
    return figure


def _option_panels(count: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    size = (min(style.PAGE, style.COLUMN * count), height)
    figure, grid = plt.subplots(1, count, figsize=size, sharey=True, squeeze=False)
    return figure, grid[0]


def _end(values: pd.Series, value: float, high: float) -> float:
    """The end of `value` with its interval, as far as the axis follows it."""
    return max(value, min(high, WIDEST * values.max())) if high == high else value


def _factors(
    axes: Axes, table: pd.DataFrame, names: list[str], *, beyond: float = 1.08, vertical: bool = False
) -> None:
    """A logarithmic axis around 1 for the factors in these columns, with round ticks. `beyond`: space for text at the ends."""
    values = table[names].to_numpy(dtype=float)
    low, high = min(1, np.nanmin(values)), max(1, np.nanmax(values))
    ends = table[[f"{name}{end}" for name in names for end in ("_low", "_high")]].to_numpy(dtype=float)
    ends = np.clip(ends[np.isfinite(ends)], low / WIDEST, high * WIDEST)
    low, high = min([low, *ends]), max([high, *ends])
    room = (high / low) ** 0.04 * 1.01
    ticks = next(ticks for span, ticks in TICKS.items() if high / low <= span)
    shown = [tick for tick in ticks if low / 1.02 <= tick <= high * 1.06]
    drawing.log_axis(axes.yaxis if vertical else axes.xaxis, shown)
    limits = low / room, high * max(room, beyond ** min(1.0, 0.35 + np.log(high / low)))
    (axes.set_ylim if vertical else axes.set_xlim)(*limits)


def _levels(axes: Axes, levels: Iterable, name: str) -> None:
    levels = [_level(one) for one in levels]
    axes.set_xticks(range(len(levels)), levels)
    axes.set_xlim(-0.3, len(levels) - 0.7)
    axes.set_xlabel(_name(name))


def _name(factor: str) -> str:
    return NAMES.get(factor, factor.replace("_", " "))


def _level(value) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
