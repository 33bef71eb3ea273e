"""Figures of the performance model: what it predicted and what was measured, what a step consists of, and how far it carries."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from . import drawing, style
from .chart import Chart, charted

# A step's parts from the bottom up: told apart by shade and hatch, in black and white too.
PARTS = {
    "compute": ("computing", "0.80", ""),
    "data": ("waiting for data", "#F0E442", "..."),
    "host": ("communication: processor", "#56B4E9", "\\\\\\"),
    "bandwidth": ("communication: bandwidth", "#0072B2", ""),
    "latency": ("communication: latency", "#CC79A7", "xxx"),
    "straggler": ("waiting for the slowest rank", "#D55E00", "///"),
}


def validation(drawn: pd.DataFrame, lines: pd.DataFrame) -> Chart:
    """Step times against ranks, measured on top of what the model says, a panel for each fixed batch and a colour for each link
    rate; right: the model's error at each point.

    Args:
        drawn: as of `comparison.curves`. Measured points carry their own intervals; hollow ones the model has not seen.
        lines: as of `comparison.between` those.
    """
    batches = list(drawn.groupby(["kind", "size"]))
    figure, axes = plt.subplots(1, len(batches) + 1, figsize=(style.PAGE, 2.9), squeeze=False)
    *times, off = axes[0]
    rates = sorted(set(drawn.gbit), reverse=True)
    looks = dict(zip(rates, itertools.cycle(style.SERIES), strict=False))
    for panel, ((kind, size), points) in zip(times, batches, strict=True):
        for place, (gbit, (colour, line, marker)) in enumerate(looks.items()):
            own = lines[(lines.kind == kind) & (lines["size"] == size) & (lines.gbit == gbit)]
            label = "links as they are" if np.isinf(gbit) else f"{gbit:g} Gbit/s"
            panel.fill_between(own.world_size, own.low, own.high, color=colour, alpha=0.12, linewidth=0)
            panel.plot(own.world_size, own.seconds, color=colour, linestyle=line, label=label)
            aside = 1.035 ** (place - (len(rates) - 1) / 2)  # points of several rates stand beside each other
            _points(panel, off, points[(points.gbit == gbit) & (points.world_size > 1)], aside, colour, marker)
        one = points[points.world_size == 1].head(1)  # needs no link: the same on every rate's curve
        _points(panel, off, one, 1.0, "0.25", "o")
        panel.set_title(f"{kind}, {size:g} samples {'in all' if kind == 'strong' else 'a rank'}")
        panel.set_ylim(bottom=0)
    for panel in axes[0]:
        _log(panel.xaxis, panel.set_xscale, 2)
        worlds = sorted(set(drawn.world_size))
        panel.set_xticks(worlds, [f"{world:g}" for world in worlds])
        panel.set_xlabel("ranks")
    times[0].plot([], [], "o", color="0.25", label="measured, fitted on")
    times[0].plot([], [], "o", color="0.25", markerfacecolor="white", label="measured, held out")
    times[0].set_ylabel("time of a step (s)")
    figure.legend(*times[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    _bands(off, drawn.error)
    off.set_title("the model's error")
    off.set_ylabel("error of the prediction (%)")
    figure.supxlabel(
        f"measured: {drawing.interval(drawn[drawn.world_size > 1])}; bands: the model's", fontsize=7, color="0.35"
    )
    both = pd.concat(
        [drawn.assign(what="measured"), lines.assign(what="model", runs=[()] * len(lines))], ignore_index=True
    )
    caption = "Time of a step against ranks over links of several rates, measured and by the model, and the model's error at each."
    return Chart(figure, both, "model", caption)


@charted("parts", "What a step consists of as ranks are added, by the model.")
def parts(ahead: pd.DataFrame, measured_to: int) -> Figure:
    """What a step consists of as ranks are added, a panel for each link rate of `ahead` (rows of `Fitted.scaling`, of one kind).

    `measured_to`: with more ranks than that, or over another link, it is an extrapolation, and the panels say so.
    """
    kind = ahead.kind.iloc[0]
    predicted = {f"{kind}, {gbit:g} Gbit/s": own for gbit, own in ahead.groupby("gbit", sort=False)}
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


@charted("reach", "Efficiency that the model predicts up to many ranks, by the links' rate.")
def reach(ahead: pd.DataFrame, measured: pd.DataFrame) -> Figure:
    """Predicted efficiency against ranks with 95 % intervals, a line for each link rate; strong scaling left, weak right.

    Args:
        ahead: rows of `Fitted.scaling`, of both kinds. measured: as of `perfmodel.points`; a rate that is not there is labelled so.
    """
    measured_to, rates = int(measured.world_size.max()), set(measured.gbit[measured.world_size > 1])
    figure, panels = plt.subplots(1, 2, figsize=(style.PAGE, 2.7), sharey=True)
    known: dict[str, Artist] = {}
    for axes, kind in zip(panels, ("strong", "weak"), strict=True):
        own = {
            f"{gbit:g} Gbit/s{'' if gbit in rates else ', not measured'}": frame
            for gbit, frame in ahead[ahead.kind == kind].groupby("gbit", sort=False)
        }
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
        known |= {label: line for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(known.values(), known, loc="outside upper center", ncols=4)
    panels[0].set_ylabel("efficiency")
    panels[0].set_ylim(
        0, 1.06 * max(1.06, ahead.efficiency_high.max())
    )  # T(1) is not sure either: the band may pass 100 %
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


@charted("laws", "How far laws that know only the number of ranks, and the model, miss times of steps on more ranks.")
def laws(compared: pd.DataFrame) -> Figure:
    """How far each law and the model miss step times on more ranks than they were fitted on, over the links' rate: strong scaling
    left, weak right. `compared`: as of `comparison.compare`, each number of ranks a marker of its own."""
    figure, panels = plt.subplots(1, compared.kind.nunique(), figsize=(style.PAGE, 2.6), sharey=True, squeeze=False)
    rates, worlds = sorted(set(compared.gbit)), sorted(set(compared.world_size))
    names = list(dict.fromkeys(compared.law))
    for panel, (kind, own) in zip(panels[0], compared.groupby("kind"), strict=True):
        for (law, world), rows in own.groupby(["law", "world_size"], sort=False):
            colour, marker = style.series(names.index(law))[0], style.series(worlds.index(world))[2]
            aside = 0.12 * (names.index(law) - (len(names) - 1) / 2)
            panel.plot([rates.index(one) + aside for one in rows.gbit], 100 * rows.error, marker, color=colour,
                       markersize=4, label=f"{law}, {world} ranks")  # fmt: skip
        panel.set_xticks(range(len(rates)), ["as they are" if np.isinf(one) else f"{one:g}" for one in rates])
        panel.set_xlim(-0.5, len(rates) - 0.5)
        panel.set_xlabel("links (Gbit/s)")
        panel.set_title(f"{kind} scaling")
        _bands(panel, compared.error)
    known = {
        label: line for panel in panels[0] for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(known.values(), known, loc="outside upper center", ncols=3)
    panels[0][0].set_ylabel("error of the prediction (%)")
    return figure


def stragglers(replayed: pd.DataFrame, slow: pd.DataFrame) -> Chart:
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
    both = pd.concat([replayed.assign(slow=1.0, longer=1.0), slow], ignore_index=True)
    return Chart(figure, both, "stragglers", "How long ranks wait for the slowest, and what one slow rank costs all.")


def _log(axis, scale, base: int) -> None:
    scale("log", base=base)
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.axes.minorticks_off()


def _bands(axes, errors: pd.Series) -> None:
    """Errors of 5 and 10 % shaded behind, and room for the largest."""
    axes.axhspan(-10, 10, color="0.93", zorder=0)
    axes.axhspan(-5, 5, color="0.86", zorder=0)
    axes.axhline(0, **style.IDEAL)
    bound = 1.15 * max(11.0, 100 * errors.abs().max())
    axes.set_ylim(-bound, bound)


def _points(times: Axes, off: Axes, rows: pd.DataFrame, aside: float, colour: str, marker: str) -> None:
    """Measured step times with their intervals, and the model's errors there; hollow where held out."""
    for held_out, face in ((False, colour), (True, "white")):
        chosen = rows[rows.held_out == held_out]
        look = {"fmt": marker, "color": colour, "markerfacecolor": face, "markersize": 3.5}
        bars = drawing.bars(chosen, "measured", "measured_low", "measured_high")
        times.errorbar(chosen.world_size * aside, chosen.measured, yerr=bars, **look)
        off.errorbar(chosen.world_size * aside, 100 * chosen.error, **look)
