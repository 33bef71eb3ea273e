"""Figures of the performance model: what it predicted and what was measured, what a step consists of, and how far it carries."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from . import labels, style

# A step's parts from the bottom up: told apart by shade and hatch, in black and white too.
PARTS = {
    "compute": ("computing", "0.80", ""),
    "data": ("waiting for data", "#F0E442", "..."),
    "host": ("communication: processor", "#56B4E9", "\\\\\\"),
    "bandwidth": ("communication: bandwidth", "#0072B2", ""),
    "latency": ("communication: latency", "#CC79A7", "xxx"),
    "straggler": ("waiting for the slowest rank", "#D55E00", "///"),
}


def validation(errors: pd.DataFrame, curve: pd.DataFrame) -> Figure:
    """Left: step times against the link's rate, measured on top of what the model says; right: its error, of one rank too.

    Args:
        errors: as of `Fitted.errors`, of one layout and of one rank, with `held_out` (bool): not fitted on. Measured points
            carry their own intervals.
        curve: as of `Fitted.predict` over rates, for the same batches.
    """
    figure, (times, off) = plt.subplots(1, 2, figsize=(style.PAGE, 2.8), width_ratios=(3, 2))
    many, alone = errors[errors.world_size > 1], errors[errors.world_size == 1]
    left = many.gbit.min() / 4  # a place of its own: one rank has no link
    for (colour, line, marker), batch in zip(
        itertools.cycle(style.SERIES), sorted(set(many.batch_per_device)), strict=False
    ):
        own = curve[curve.batch_per_device == batch].sort_values("gbit")
        times.fill_between(own.gbit, own.low, own.high, color=colour, alpha=0.15, linewidth=0)
        times.plot(own.gbit, own.seconds, color=colour, linestyle=line, label=f"model, {batch:g} images a rank")
        rows = many[many.batch_per_device == batch]
        right = own.gbit.max()
        for held_out, face in ((False, colour), (True, "white")):
            chosen = rows[rows.held_out == held_out]
            places = chosen.gbit.replace(np.inf, right)
            bars = labels.bars(chosen, "measured", "measured_low", "measured_high")
            times.errorbar(places, chosen.measured, yerr=bars, fmt=marker, color=colour, markerfacecolor=face)
            off.plot(places, 100 * chosen.error, marker, color=colour, markerfacecolor=face)
        lonely = alone[alone.batch_per_device == batch]
        off.plot([left] * len(lonely), 100 * lonely.error, marker, color=colour)
    rates = sorted(set(many.gbit.replace(np.inf, curve.gbit.max())))
    unlimited = np.isinf(many.gbit).any()
    for axes in (times, off):
        _log(axes.xaxis, axes.set_xscale, 10)
        names = [f"{rate:g}" for rate in rates]
        axes.set_xticks(rates, [*names[:-1], "un-\nlimited"] if unlimited else names)
        axes.set_xlabel("link of each node (Gbit/s)")
    if len(alone):
        off.set_xticks([left, *off.get_xticks()], ["1\nrank", *(tick.get_text() for tick in off.get_xticklabels())])
    times.plot([], [], "o", color="0.25", label="measured, fitted on")
    times.plot([], [], "o", color="0.25", markerfacecolor="white", label="measured, held out")
    times.set_ylim(bottom=0)
    times.set_ylabel("time of a step (s)")
    figure.legend(*times.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    off.axhspan(-10, 10, color="0.93", zorder=0)
    off.axhspan(-5, 5, color="0.86", zorder=0)
    off.axhline(0, **style.IDEAL)
    bound = 1.15 * max(11.0, 100 * errors.error.abs().max())
    off.set_ylim(-bound, bound)
    off.set_ylabel("prediction's error (%)")
    figure.supxlabel(f"measured: {labels.interval(many)}; bands: the model's", fontsize=7, color="0.35")
    return figure


def parts(predicted: Mapping[str, pd.DataFrame], measured_to: int) -> Figure:
    """What a step consists of as ranks are added, a panel for each frame of `Fitted.scaling`, titled by its key.

    `measured_to`: with more ranks than that, or over another link, it is an extrapolation, and the panels say so.
    """
    figure, grid = plt.subplots(1, len(predicted), figsize=(style.PAGE, 2.7), squeeze=False, sharey=False)
    for axes, (title, frame) in zip(grid[0], predicted.items(), strict=True):
        places, below = np.arange(len(frame)), np.zeros(len(frame))
        for name, (label, colour, hatch) in PARTS.items():
            axes.bar(
                places, frame[name], bottom=below, width=0.8, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4,
                label=label,
            )  # fmt: skip
            below = below + frame[name].to_numpy()
        axes.set_xticks(places, [f"{world:g}" for world in frame.world_size], rotation=60, fontsize=6.5)
        axes.grid(axis="x", visible=False)
        beyond = int((frame.extrapolation == "").sum()) and int((frame.world_size <= measured_to).sum())
        if beyond < len(frame):
            axes.axvline(beyond - 0.5, color="0.3", linewidth=0.8, linestyle=":")
            axes.annotate(
                "extrapolation", (beyond - 0.5, 1.0), (3, -2), xycoords=("data", "axes fraction"),
                textcoords="offset points", fontsize=6.5, color="0.3", va="top",
            )  # fmt: skip
        axes.set_ylim(0, 1.15 * below.max())
        axes.set_title(title)
        axes.set_xlabel("ranks")
    grid[0][0].set_ylabel("time of a step (s)")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def reach(predicted: Mapping[str, pd.DataFrame], measured_to: int) -> Figure:
    """Predicted efficiency against ranks with 95 % intervals, a line for each frame of `Fitted.scaling`, named by its key
    (blanks at its end tell keys apart, and are not shown); strong scaling left, weak right, each in the same order."""
    figure, panels = plt.subplots(1, 2, figsize=(style.PAGE, 2.7), sharey=True)
    known: dict[str, Artist] = {}
    for axes, kind in zip(panels, ("strong", "weak"), strict=True):
        own = {label: frame for label, frame in predicted.items() if frame.kind.iloc[0] == kind}
        for below, ((colour, line, marker), (label, frame)) in enumerate(
            zip(itertools.cycle(style.SERIES), own.items(), strict=False), 1
        ):
            wider = len(own) - below  # what coincides shows from under the next
            axes.fill_between(
                frame.world_size, frame.efficiency_low, frame.efficiency_high, color=colour, alpha=0.13, linewidth=0
            )
            axes.plot(
                frame.world_size,
                frame.efficiency,
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=3 + 1.5 * wider,
                linewidth=1.2 + wider,
                label=label,
            )
        axes.axvline(measured_to, color="0.3", linewidth=0.8, linestyle=":")
        axes.annotate(
            "extrapolation", (measured_to, 1.04), (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
            fontsize=6.5, color="0.3", va="top",
        )  # fmt: skip
        axes.axhline(1, **style.IDEAL)
        _log(axes.xaxis, axes.set_xscale, 2)
        worlds = [world for frame in own.values() for world in frame.world_size]
        ticks = [2**power for power in range(0, int(np.log2(max(worlds, default=2))) + 1, 2)]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_title(f"{kind} scaling", pad=9)
        axes.set_xlabel("ranks")
        known |= {label.strip(): line for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(known.values(), known, loc="outside upper center", ncols=4)
    panels[0].set_ylabel("efficiency")
    highest = max((frame.efficiency_high.max() for frame in predicted.values()), default=1.0)
    panels[0].set_ylim(0, 1.06 * max(1.06, highest))  # T(1) is not sure either: the band may pass 100 %
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


def laws(measured: pd.DataFrame, curves: Mapping[str, pd.DataFrame], title: str) -> Figure:
    """Measured step times against ranks and what each law makes of those that it was fitted on.

    Args:
        measured: world_size, seconds (median), low, high, held_out. curves: name -> world_size, seconds.
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.6))
    for (colour, line, _), (name, curve) in zip(itertools.cycle(style.SERIES), curves.items(), strict=False):
        axes.plot(curve.world_size, curve.seconds, color=colour, linestyle=line, label=name)
    for held_out, face in ((False, "0.15"), (True, "white")):
        rows = measured[measured.held_out == held_out]
        bars = [(rows.seconds - rows.low).fillna(0), (rows.high - rows.seconds).fillna(0)]
        axes.errorbar(
            rows.world_size, rows.seconds, yerr=bars, fmt="o", color="0.15", markerfacecolor=face, zorder=5,
            label="runs, held out" if held_out else "runs, fitted on",
        )  # fmt: skip
    _log(axes.xaxis, axes.set_xscale, 2)
    worlds = sorted(set(measured.world_size))
    axes.set_xticks(worlds, [f"{world:g}" for world in worlds])
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.set(title=title, xlabel="ranks", ylabel="time of a step (s)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def stragglers(replayed: pd.DataFrame, slow: pd.DataFrame) -> Figure:
    """Left: the mean step and the middle 90 % of steps over ranks against ideal; right: what one slow rank costs.

    Args:
        replayed: as of `simulate.replay`. slow: as of `simulate.one_slow_rank`.
    """
    figure, (times, longer) = plt.subplots(1, 2, figsize=(style.PAGE, 2.4))
    colour = style.SERIES[0][0]
    times.fill_between(
        replayed.world_size, replayed.p05, replayed.p95, color=colour, alpha=0.2, linewidth=0, label="90 % of steps"
    )
    times.plot(replayed.world_size, replayed.seconds, color=colour, marker="o", markersize=3, label="mean step")
    times.plot(replayed.world_size, replayed.ideal, label="every rank at the median", **style.IDEAL)
    times.set_ylim(bottom=0)
    times.set_ylabel("time of a step (s)")
    times.legend(loc="lower right")
    for (shade, line, marker), (factor, own) in zip(
        itertools.cycle(style.SERIES), slow.groupby("slow"), strict=False
    ):
        longer.plot(
            own.world_size, 100 * (own.longer - 1), color=shade, linestyle=line, marker=marker, markersize=3,
            label=f"one rank {100 * (factor - 1):.0f} % slower",
        )  # fmt: skip
    longer.set_ylim(bottom=0)
    longer.set_ylabel("all ranks' step longer by (%)")
    longer.legend(loc="best")
    for axes in (times, longer):
        _log(axes.xaxis, axes.set_xscale, 2)
        worlds = sorted(set(replayed.world_size))
        ticks = worlds[:: max(1, len(worlds) // 6)]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xlabel("ranks")
    return figure


def _log(axis, scale, base: int) -> None:
    scale("log", base=base)
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.axes.minorticks_off()
