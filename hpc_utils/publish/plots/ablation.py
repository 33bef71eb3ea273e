"""A ladder's figures: from the plain loop to the fastest, what each change gives and costs, and what is learnt.

Factors are on logarithmic axes, on which a factor has one length wherever it stands. Of an interval that is wider than
all there is to see (two repeats can give that) an axis shows a part: it then leaves the panel without an end.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from hpc_utils.analyze import ladder, stats

from . import drawing, style
from .chart import charted

# Colour and hatch, so that they are told apart in grey as well.
TOLD = {
    ladder.FASTER: (style.ROLES["faster"], ""),
    ladder.SLOWER: (style.ROLES["slower"], "////"),
    ladder.NOISE: ("0.75", "...."),
    ladder.SINGLE: ("0.75", ""),
}
PHASE = {
    "data": (style.ROLES["data"], ""),
    "forward": (style.ROLES["forward"], "////"),
    "backward": (style.ROLES["backward"], ""),
    "optimizer": (style.ROLES["optimizer"], "...."),
}
FASTEST = {"facecolor": "white", "edgecolor": "0.15", "linewidth": 1.0}  # a sum, not a verdict: no colour of `TOLD`
MARK = style.ROLES["main"]
NAMES = {
    "bucket_mb": "bucket (MiB)",
    "batch_per_device": "batch a device",
    "comm_hook": "compression",
    "precision": "number format",
}
WIDEST = 1.6  # how far beyond all values an axis follows their intervals, as a factor
AHEAD = (4, 0)  # points between an end and what is written beside it
# Round factors, by the most that an axis spans.
TICKS = {
    1.2: [0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2],
    2: [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 1.8, 2],
    8: [0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 8],
    np.inf: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000],
}
ROW, REST = 0.24, 0.75  # inches: of a row, and of title and axis


@charted("before-after", "Throughput of the plain loop and of the fastest configuration.")
def before_after(speeds: pd.DataFrame, gain: stats.Estimate) -> Figure:
    """Throughput of the plain loop and of the fastest rung, a bar each; `speeds`: these rows of `ladder.speeds`. What is
    written beside the second is `gain`, the median of the pairs' ratios, and not the ratio of both medians."""
    figure, axes = plt.subplots(figsize=(style.COLUMN, REST + 0.3 * len(speeds)))
    places = np.arange(len(speeds))
    colours = ["0.75", *[TOLD[ladder.FASTER][0]] * len(speeds)][: len(speeds)]
    axes.barh(places, speeds.throughput, height=0.7, color=colours, edgecolor="white")
    axes.errorbar(
        speeds.throughput, places, xerr=drawing.bars(speeds, "throughput"), fmt="none", ecolor="0.15", elinewidth=0.9
    )
    for place, row in zip(places, speeds.itertuples(), strict=True):
        text = style.number(row.throughput) + (f" (×{gain.value:.2f})" if place else "")
        _beside(axes, text, _end(speeds.throughput, row.throughput, row.high), place)
    _rows(axes, speeds.label)
    axes.set_xlim(0, 1.45 * _end(speeds.throughput, speeds.throughput.max(), speeds.high.max()))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel(f"samples/s\n{drawing.interval(speeds)}")
    return figure


@charted(
    "ladder",
    "From the plain loop to the fastest, change by change: bars start at the configuration before, the axis is logarithmic.",
)
def waterfall(gains: pd.DataFrame, best: ladder.Best) -> Figure:
    """From the plain loop rung by rung: each bar goes from the rung before to this one, and ends at the number beside it,
    the throughput of all up to it over the plain loop's, with its interval. Its colour says what the step gives the rung
    before (`ladder.verdict`). At the foot the fastest rung. `gains` and `best` as of `ladder`."""
    figure, axes = plt.subplots(figsize=(style.COLUMN, REST + 0.2 + ROW * (len(gains) + 2)))
    reached, at, whole = 1.0, 0, best.gain
    fastest = pd.DataFrame([{"together": whole.value, "together_low": whole.low, "together_high": whole.high}])
    shown = pd.concat([gains[list(fastest)].astype(float), fastest], ignore_index=True)
    axes.plot([1], [0], "|", color="0.15", markersize=10)
    _beside(axes, "1", 1, 0)
    seen = set()
    for place, row in enumerate(gains.itertuples(), 1):
        if np.isnan(row.together):
            _beside(axes, "not applicable here" if row.why else "not measured", reached, place, color="0.45")
            continue
        verdict = ladder.verdict(row.marginal_low, row.marginal_high)
        seen.add(verdict)
        colour, hatch = TOLD[verdict]
        axes.barh(place, row.together - reached, left=reached, height=0.66, color=colour, hatch=hatch, edgecolor="white",
                  linewidth=0.5)  # fmt: skip
        axes.plot([reached, reached], [at, place], color="0.45", linewidth=0.7)
        _interval(axes, row.together, row.together_low, row.together_high, place)
        end = _end(shown.together, max(reached, row.together), row.together_high)
        _beside(axes, f"×{row.together:.2f}", end, place)
        reached, at = row.together, place
    foot = len(gains) + 1
    axes.barh(foot, whole.value - 1, left=1, height=0.66, **FASTEST)
    _interval(axes, whole.value, whole.low, whole.high, foot)
    _beside(axes, f"×{whole.value:.2f}, fastest", _end(shown.together, max(whole.value, 1), whole.high), foot)
    _rows(axes, ["plain loop", *gains.step, best.name])
    _factors(axes, shown, ["together"], beyond=1.75)
    axes.set_xlabel(f"throughput over the plain loop's\n({_pairs(gains)})")
    looks = [
        Patch(facecolor=TOLD[one][0], hatch=TOLD[one][1], edgecolor="white", label=one) for one in TOLD if one in seen
    ]
    figure.legend(
        handles=looks, loc="outside upper center", ncols=3, handlelength=1.2, handletextpad=0.4, columnspacing=1
    )
    return figure


@charted("alone", "What each change gives the plain loop, and what the configuration before it.")
def alone_and_after(gains: pd.DataFrame) -> Figure:
    """What each step gives the plain loop, beside what it gives the rung before it. `gains` as of `ladder.gains`."""
    gains = gains[gains.alone.notna() | gains.marginal.notna()].reset_index(drop=True)
    figure, axes = plt.subplots(figsize=(style.COLUMN, REST + 0.25 + 0.34 * len(gains)))
    looks = {"alone": ("o", "0.35", "white"), "marginal": ("s", MARK, MARK)}
    names = {"alone": "alone, on the plain loop", "marginal": "after the steps above it"}
    axes.axvline(1, **style.IDEAL)
    for shift, (kind, (marker, colour, face)) in zip((-0.14, 0.14), looks.items(), strict=True):
        own = gains[gains[kind].notna()]
        axes.errorbar(own[kind], own.index.to_numpy() + shift, xerr=drawing.bars(own, kind, f"{kind}_low", f"{kind}_high"),
                      fmt=marker, color=colour, markerfacecolor=face, elinewidth=0.9, label=names[kind])  # fmt: skip
    _rows(axes, gains.step)
    axes.set_ylim(len(gains) - 0.5, -0.5)
    _factors(axes, gains, list(looks))
    axes.set_xlabel(f"throughput with it over without\n({_pairs(gains)})")
    figure.legend(loc="outside upper center", ncols=2, handletextpad=0.3, columnspacing=1)
    return figure


@charted("profile", "Where the time of a mean step goes.")
def profile(parts: pd.DataFrame) -> Figure:
    """Where a mean step's time goes on every cumulative rung. `parts` as of `ladder.profile` (ms)."""
    figure, axes = plt.subplots(figsize=(style.COLUMN, REST + 0.3 + ROW * len(parts)))
    left = np.zeros(len(parts))
    for name, (colour, hatch) in PHASE.items():
        axes.barh(range(len(parts)), parts[name], left=left, height=0.7, color=colour, hatch=hatch, edgecolor="white",
                  linewidth=0.4, label=name)  # fmt: skip
        left += parts[name].fillna(0).to_numpy()
    for place, whole in enumerate(left):
        _beside(axes, f"{whole:.3g}", whole, place)
    _rows(axes, parts.step)
    axes.margins(x=0.12)
    axes.set_xlabel("mean step (ms),\nsplit as the sampled steps")
    figure.legend(loc="outside upper center", ncols=4, handlelength=1.2, handletextpad=0.4, columnspacing=1)
    return figure


@charted("costs", "What each change gives in its place, and what it costs there.")
def costs(gains: pd.DataFrame) -> Figure:
    """What each step gives in its place, and what it costs there: memory and time before the clock starts. `gains` as above."""
    own = gains[gains.marginal.notna()].reset_index(drop=True)
    figure, (speed, memory, start) = plt.subplots(
        1, 3, sharey=True, figsize=(style.PAGE, REST + 0.28 * max(len(own), 2))
    )
    looks = {"fmt": "s", "color": MARK, "elinewidth": 0.9}
    speed.axvline(1, **style.IDEAL)
    speed.errorbar(
        own.marginal, own.index, xerr=drawing.bars(own, "marginal", "marginal_low", "marginal_high"), **looks
    )
    _factors(speed, own, ["marginal"])
    speed.set_xlabel(f"throughput with it over without\n({_pairs(own)})")
    for axes, values, form, label in (
        (memory, own.memory - 1, "{:+.1%}", "cost: peak memory"),
        (start, own.warmup, "{:+.2f} s", "cost: seconds before the clock"),
    ):
        colours = [TOLD[ladder.SLOWER if value > 0 else ladder.FASTER][0] for value in values]
        axes.barh(own.index, values, height=0.5, color=colours)
        axes.axvline(0, color="0.35", linewidth=0.8)
        axes.set_xlabel(label)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.25)
        for place, value in enumerate(values):
            if not np.isnan(value):
                _beside(axes, form.format(value), max(value, 0), place)
    memory.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    memory.xaxis.set_major_locator(MaxNLocator(3))
    _rows(speed, own.step)
    return figure


@charted("learning", "What is learnt by when, of the plain loop and of the fastest configuration.")
def learning(curves: pd.DataFrame) -> Figure:
    """Loss and accuracy against training time: what the speed is worth. Every run thin, the median marked.

    `curves` as of `ladder.learning`: label, run_id, epoch, seconds (T so far), loss, accuracy.
    """
    tested = curves.accuracy.notna().any()
    measures = {"loss": "test loss" if tested else "training loss", "accuracy": "test accuracy"}
    shown = [name for name in measures if curves[name].notna().any()]
    figure, grid = plt.subplots(1, len(shown), figsize=(style.COLUMN * len(shown), 2.4), squeeze=False)
    for axes, name in zip(grid[0], shown, strict=True):
        for number, (label, own) in enumerate(curves.dropna(subset=[name]).groupby("label", sort=False)):
            colour, line, marker = style.series(number)
            look = {"color": colour, "linestyle": line}
            for _, one in own.groupby("run_id"):
                axes.plot(one.seconds, one[name], linewidth=0.5, alpha=0.5, **look)
            middle = own.groupby("epoch")[["seconds", name]].median()
            axes.plot(middle.seconds, middle[name], marker=marker, markersize=3, label=label, **look)
        axes.set_xlabel("training time (s)")
        axes.set_ylabel(measures[name])
        axes.set_xlim(left=0)
    if "accuracy" in shown:
        grid[0][-1].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2)
    return figure


@charted("main-effects", "What the values of each option give, all others averaged.")
def main_effects(table: pd.DataFrame) -> Figure:
    """Each knob's values against throughput, all others averaged. `table` as of `factorial.main_effects`."""
    factors = list(dict.fromkeys(table.factor))
    figure, grid = plt.subplots(1, len(factors), figsize=(_width(factors), 2.2), sharey=True, squeeze=False)
    for axes, factor in zip(grid[0], factors, strict=True):
        own = table[table.factor == factor].reset_index(drop=True)
        axes.axhline(1, **style.IDEAL)
        axes.errorbar(own.index, own.gain, yerr=drawing.bars(own, "gain"), fmt="-o", color=MARK, elinewidth=0.9)
        _levels(axes, own.level, factor)
    _factors(grid[0][0], table.rename(columns={"low": "gain_low", "high": "gain_high"}), ["gain"], which="y")
    grid[0][0].set_ylabel("throughput over\nthe first value's")
    return figure


@charted("interactions", "Throughput at the values of every two options: parallel lines do not interact.")
def interactions(table: pd.DataFrame) -> Figure:
    """Throughput at every two knobs' values, a panel a pair: parallel lines do not interact. `table`: `factorial.interactions`."""
    pairs = list(dict.fromkeys(zip(table["first"], table.second, strict=True)))
    figure, grid = plt.subplots(1, len(pairs), figsize=(_width(pairs), 2.7), sharey=True, squeeze=False)
    for axes, (first, second) in zip(grid[0], pairs, strict=True):
        own = table[(table["first"] == first) & (table.second == second)]
        levels = list(dict.fromkeys(own.first_level))
        for number, (level, line) in enumerate(own.groupby("second_level", sort=False)):
            colour, dashes, marker = style.series(number)
            axes.plot([levels.index(one) for one in line.first_level], line.throughput, color=colour, linestyle=dashes,
                      marker=marker, label=_level(level))  # fmt: skip
        _levels(axes, levels, first)
        axes.legend(title=_name(second), title_fontsize=7.5, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, handlelength=1.8,
                    handletextpad=0.3, columnspacing=0.7, borderaxespad=0.2, fontsize=6.5)  # fmt: skip
    first = grid[0][0]
    first.set_yscale("log")
    first.yaxis.set_major_locator(LogLocator(subs=_subs(table.throughput.to_numpy())))
    first.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    first.yaxis.set_minor_locator(NullLocator())
    first.set_ylabel("throughput (samples/s)")
    return figure


# -- what they share ------------------------------------------------------------------------------------------


def _width(panels: list) -> float:
    return min(style.PAGE, style.COLUMN * len(panels))


def _rows(axes: Axes, names) -> None:
    """Rows from top to bottom, named."""
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)


def _beside(axes: Axes, text: str, end: float, place: float, color: str = "0.15") -> None:
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # of an interval that goes on behind it
    axes.annotate(
        text, (end, place), AHEAD, textcoords="offset points", va="center", fontsize=7, color=color, bbox=ground
    )


def _interval(axes: Axes, value: float, low: float, high: float, place: float) -> None:
    """The line of an interval, if there is one."""
    if not np.isnan(low):
        ends = [
            [max(value - low, 0)],
            [max(high - value, 0)],
        ]  # of equal repeats rounding may put an end on the wrong side
        axes.errorbar([value], [place], xerr=ends, fmt="none", ecolor="0.15", elinewidth=0.9)


def _end(values: pd.Series, value: float, high: float) -> float:
    """Where what belongs to `value` ends: its interval, as far as the axis follows it."""
    return max(value, min(high, WIDEST * values.max())) if high == high else value


def _factors(axes: Axes, table: pd.DataFrame, names: list[str], *, beyond: float = 1.08, which: str = "x") -> None:
    """A logarithmic axis of the factors in these columns, around 1, with round ticks; `beyond`: room for what is written at
    the ends."""
    values = table[names].to_numpy(dtype=float)
    low, high = min(1, np.nanmin(values)), max(1, np.nanmax(values))
    ends = table[[f"{name}{end}" for name in names for end in ("_low", "_high")]].to_numpy(dtype=float)
    low = min([low, *np.clip(ends[np.isfinite(ends)], low / WIDEST, high)])
    high = max([high, *np.clip(ends[np.isfinite(ends)], low, high * WIDEST)])
    room = (high / low) ** 0.04 * 1.01
    axis, limit = (axes.xaxis, axes.set_xlim) if which == "x" else (axes.yaxis, axes.set_ylim)
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    limit(low / room, high * max(room, beyond ** min(1.0, 0.35 + np.log(high / low))))
    ticks = next(ticks for span, ticks in TICKS.items() if high / low <= span)
    axis.set_major_locator(FixedLocator([one for one in ticks if low / 1.02 <= one <= high * 1.06]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axis.set_minor_locator(NullLocator())


def _levels(axes: Axes, levels, name: str) -> None:
    axes.set_xticks(range(len(levels)), [_level(one) for one in levels])
    axes.set_xlim(-0.3, len(levels) - 0.7)
    axes.set_xlabel(_name(name))


def _name(factor: str) -> str:
    return NAMES.get(factor, factor.replace("_", " "))


def _level(value) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _subs(values: np.ndarray) -> tuple[float, ...]:
    return (1, 2, 5) if values.max() > 10 * values.min() else (1, 1.5, 2, 3, 4, 5, 6, 7, 8)


def _pairs(gains: pd.DataFrame) -> str:
    """What the lines mean."""
    repeats = sorted({int(one) for one in gains.repeats if one})
    if not repeats or repeats == [1]:
        return "single runs"
    return f"95 % interval, {'-'.join(map(str, dict.fromkeys((repeats[0], repeats[-1]))))} pairs"
