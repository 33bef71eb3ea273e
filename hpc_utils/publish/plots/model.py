"""Charts of the performance model: predicted and measured step times, the parts of a step, and extrapolation to more ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import drawing, style
from .chart import Chart, charted

# A step's parts from the bottom up.
PARTS = {
    "compute": "computing", "data": "waiting for data", "host": "communication: processor", "bandwidth": "communication: bandwidth",
    "latency": "communication: latency", "straggler": "waiting for the slowest rank",
}  # fmt: skip
COLOURS = ("0.80", style.YELLOW, style.SKY, style.BLUE, style.PINK, style.ORANGE)
LOOKS = dict(zip(PARTS.values(), zip(COLOURS, ("", "...", "\\\\\\", "", "xxx", "///"), strict=True), strict=True))


def validation(drawn: pd.DataFrame, lines: pd.DataFrame) -> Chart:
    """Step times against ranks, measured and by the model, a panel for each fixed batch; right: the model's error.

    Args:
        drawn: `validation.curves`. Points that the model was not fitted to are hollow. lines: `validation.between` those.
    """
    if drawn.empty:
        return Chart(None, drawn, "model", "")
    batches = list(drawn.groupby(["kind", "size"]))
    figure, grid = plt.subplots(1, len(batches) + 1, figsize=(style.PAGE, 2.9), squeeze=False)
    *times, off = grid[0]
    rates = sorted(set(drawn.gbit), reverse=True)
    for panel, ((kind, size), points) in zip(times, batches, strict=True):
        for place, gbit in enumerate(rates):
            own = lines[(lines.kind == kind) & (lines["size"] == size) & (lines.gbit == gbit)]
            look = style.series(place)
            colour, marker = look["color"], look.pop("marker")
            label = "links as they are" if np.isinf(gbit) else f"{gbit:g} Gbit/s"
            panel.fill_between(own.world_size, own.low, own.high, color=colour, alpha=0.12, linewidth=0)
            panel.plot(own.world_size, own.seconds, label=label, **look)
            aside = 1.035 ** (place - (len(rates) - 1) / 2)  # points of several rates side by side
            _points(panel, off, points[(points.gbit == gbit) & (points.world_size > 1)], aside, colour, marker)
        one = points[points.world_size == 1].head(1)  # needs no link: the same for all rates
        _points(panel, off, one, 1.0, "0.25", "o")
        drawing.head(panel, f"{kind}, {size:g} samples {'in all' if kind == 'strong' else 'a rank'}", len(grid[0]))
        panel.set_ylim(bottom=0)
    for panel in grid[0]:
        drawing.ranks_axis(panel, drawn.world_size)
    for label, face in (("measured, fitted on", "0.25"), ("measured, held out", "white")):
        times[0].plot([], [], "o", color="0.25", markerfacecolor=face, label=label)
    times[0].set_ylabel("time of a step (s)")
    _bands(off, drawn.error)
    drawing.head(off, "the model's error", len(grid[0]))
    off.set(ylabel="error of the prediction (%)")
    drawing.legend(figure, 3)
    drawing.note(figure, f"measured: {drawing.interval(drawn[drawn.world_size > 1])}; bands: the model's")
    shown = [drawn.assign(what="measured"), lines.assign(what="model", runs=[()] * len(lines))]
    caption = "Time of a step against ranks over links of several rates, measured and by the model, and the model's error at each."
    return Chart(figure, pd.concat(shown, ignore_index=True), "model", caption)


@charted("parts", "What a step consists of as ranks are added, by the model.")
def parts(ahead: pd.DataFrame, measured_to: int) -> Figure:
    """The parts of a step as ranks are added, a panel for each link rate. Predictions beyond `measured_to` ranks, or for links
    that were not measured, are marked as extrapolation.

    `ahead`: rows of `Fitted.scaling` of one kind.
    """
    rates = list(ahead.groupby("gbit", sort=False))
    figure, grid = plt.subplots(1, len(rates), figsize=(style.PAGE, 2.7), squeeze=False)
    for axes, (gbit, frame) in zip(grid[0], rates, strict=True):
        places = np.arange(len(frame))
        tops = drawing.stacked(axes, places, frame.rename(columns=PARTS), LOOKS, vertical=True, width=0.8)
        axes.set_xticks(places, [f"{world:g}" for world in frame.world_size], rotation=60, fontsize=6.5)
        inside = int((frame.world_size <= measured_to).sum()) if (frame.extrapolation == "").any() else 0
        if inside < len(frame):
            _extrapolation(axes, inside - 0.5, 1.0, -2)
        axes.set_ylim(0, 1.15 * tops.max())
        axes.set(title=f"{frame.kind.iloc[0]}, {gbit:g} Gbit/s", xlabel="ranks")
    grid[0][0].set_ylabel("time of a step (s)")
    drawing.legend(figure, 3)
    return figure


@charted("reach", "Efficiency that the model predicts up to many ranks, by the links' rate.")
def reach(ahead: pd.DataFrame, measured: pd.DataFrame) -> Figure:
    """Predicted efficiency against ranks with 95 % intervals, a line for each link rate; left strong, right weak scaling.

    Args:
        ahead: rows of `Fitted.scaling` of both kinds. measured: `fit.points`; other link rates are labelled.
    """
    rates = set(measured.gbit[measured.world_size > 1])
    figure, panels = plt.subplots(1, 2, figsize=(style.PAGE, 2.7), sharey=True)
    for axes, kind in zip(panels, ("strong", "weak"), strict=True):
        own = list(ahead[ahead.kind == kind].groupby("gbit", sort=False))
        for place, (gbit, frame) in enumerate(own):
            wider, look = len(own) - 1 - place, style.series(place)  # a curve shows below one that coincides with it
            ends = frame.efficiency_low, frame.efficiency_high
            axes.fill_between(frame.world_size, *ends, color=look["color"], alpha=0.13, linewidth=0)
            label = f"{gbit:g} Gbit/s{'' if gbit in rates else ', not measured'}"
            sizes = {"markersize": 3 + 1.5 * wider, "linewidth": 1.2 + wider}
            axes.plot(frame.world_size, frame.efficiency, label=label, **look | sizes)
        _extrapolation(axes, int(measured.world_size.max()), 1.04, 0)
        axes.axhline(1, **style.IDEAL)
        drawing.ranks_axis(axes, ahead.world_size, most=6)
        axes.set_title(f"{kind} scaling", pad=9)
    drawing.legend(figure, 4)
    panels[0].set_ylabel("efficiency")
    panels[0].set_ylim(0, 1.06 * max(1.06, ahead.efficiency_high.max()))  # T(1) is uncertain: bands may pass 100 %
    drawing.percent(panels[0].yaxis)
    return figure


@charted("laws", "How far laws that know only the number of ranks, and the model, miss times of steps on more ranks.")
def laws(compared: pd.DataFrame) -> Figure:
    """Errors of each law and of the model on more ranks than they were fitted on, against the links' rate. Colours are laws,
    markers numbers of ranks. `compared`: `validation.compare`."""
    kinds = list(compared.groupby("kind"))
    figure, grid = plt.subplots(1, len(kinds), figsize=(style.PAGE, 2.6), sharey=True, squeeze=False)
    rates, worlds = sorted(set(compared.gbit)), sorted(set(compared.world_size))
    names = list(dict.fromkeys(compared.law))
    for panel, (kind, own) in zip(grid[0], kinds, strict=True):
        for (law, world), rows in own.groupby(["law", "world_size"], sort=False):
            look = {
                "color": style.series(names.index(law))["color"],
                "marker": style.series(worlds.index(world))["marker"],
            }
            places = rows.gbit.map(rates.index) + 0.12 * (names.index(law) - (len(names) - 1) / 2)
            panel.plot(
                places, 100 * rows.error, linestyle="none", markersize=4, label=f"{law}, {world} ranks", **look
            )
        panel.set_xticks(range(len(rates)), ["as they are" if np.isinf(one) else f"{one:g}" for one in rates])
        panel.set(xlim=(-0.5, len(rates) - 0.5), xlabel="links (Gbit/s)", title=f"{kind} scaling")
        _bands(panel, compared.error)
    drawing.legend(figure, 3)
    grid[0][0].set_ylabel("error of the prediction (%)")
    return figure


def stragglers(replayed: pd.DataFrame, slow: pd.DataFrame) -> Chart:
    """Left: the mean step and the middle 90 % of steps against ranks; right: the cost of one slow rank.

    Args:
        replayed: `simulation.replay`. slow: `simulation.one_slow_rank`.
    """
    if replayed.empty:
        return Chart(None, replayed, "stragglers", "")
    figure, (times, longer) = plt.subplots(1, 2, figsize=(style.PAGE, 2.4))
    look = {"color": style.ROLES["main"]}
    band = replayed.p05, replayed.p95
    times.fill_between(replayed.world_size, *band, alpha=0.2, linewidth=0, label="90 % of steps", **look)
    times.plot(replayed.world_size, replayed.seconds, marker="o", markersize=3, label="mean step", **look)
    times.plot(replayed.world_size, replayed.ideal, label="every rank at the median", **style.IDEAL)
    times.set_ylabel("time of a step (s)")
    for place, (factor, own) in enumerate(slow.groupby("slow")):
        label = f"one rank {100 * (factor - 1):.0f} % slower"
        longer.plot(own.world_size, 100 * (own.longer - 1), markersize=3, label=label, **style.series(place))
    longer.set_ylabel("all ranks' step longer by (%)")
    for axes, place in ((times, "lower right"), (longer, "best")):
        axes.set_ylim(bottom=0)
        axes.legend(loc=place)
        drawing.ranks_axis(axes, replayed.world_size, most=7)
    both = pd.concat([replayed.assign(slow=1.0, longer=1.0), slow], ignore_index=True)
    return Chart(figure, both, "stragglers", "How long ranks wait for the slowest, and what one slow rank costs all.")


def _extrapolation(axes: Axes, at: float, height: float, shift: float) -> None:
    """A dotted line where the extrapolation begins; its label at `height` of the panel."""
    axes.axvline(at, color="0.3", linewidth=0.8, linestyle=":")
    look = {"xycoords": ("data", "axes fraction"), "fontsize": 6.5, "color": "0.3", "va": "top"}
    drawing.near(axes, "extrapolation", (at, height), (3, shift), **look)


def _bands(axes: Axes, errors: pd.Series) -> None:
    """Errors of 5 and 10 % shaded, and space for the largest."""
    axes.axhspan(-10, 10, color="0.93", zorder=0)
    axes.axhspan(-5, 5, color="0.86", zorder=0)
    axes.axhline(0, **style.IDEAL)
    bound = 1.15 * max(11.0, 100 * errors.abs().max())
    axes.set_ylim(-bound, bound)


def _points(times: Axes, off: Axes, rows: pd.DataFrame, aside: float, colour: str, marker: str) -> None:
    """Measured step times with intervals, and the model's errors; hollow where held out."""
    for held_out, face in ((False, colour), (True, "white")):
        chosen = rows[rows.held_out == held_out]
        look = {"color": colour, "markerfacecolor": face, "markersize": 3.5, "marker": marker, "linestyle": "none"}
        drawing.points(times, chosen.world_size * aside, chosen, "measured", **look)
        off.plot(chosen.world_size * aside, 100 * chosen.error, **look)
