"""Charts of the performance model: predicted and measured step times, the parts of a step, and extrapolation to more ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.analyze.scaling import relative

from . import drawing, style
from .chart import Chart, charted

# A step's parts from the bottom up.
PARTS = {
    "compute": "computing", "data": "waiting for data", "host": "communication: processor", "bandwidth": "communication: bandwidth",
    "latency": "communication: latency", "straggler": "waiting for the slowest rank",
}  # fmt: skip
BEYOND = {"color": "0.3", "linewidth": 0.8, "linestyle": ":", "label": "extrapolation from here on"}


def _links(gbit: float) -> str:
    return "links as they are" if np.isinf(gbit) else f"{gbit:g} Gbit/s"


def _place(gbit: float) -> str:
    return "on one node" if np.isinf(gbit) else _links(gbit)


def validation(drawn: pd.DataFrame, lines: pd.DataFrame) -> Chart:
    """Step times against ranks, measured and by the model with its interval, a panel for each fixed batch; right: the model's error.

    Args:
        drawn: `validation.curves`. Points that the model was not fitted to are open. lines: `validation.between` those.
    """
    parts = [drawn.assign(what="measured"), lines.assign(what="model", runs=[()] * len(lines))]
    return _validation(pd.concat(parts, ignore_index=True))


@charted(
    "model",
    "Time of a step against ranks over links of several rates, measured and by the model, and the model's error at each.",
)
def _validation(rows: pd.DataFrame) -> Figure:
    measured, lines = rows[rows.what == "measured"], rows[rows.what == "model"]
    batches, rates = list(measured.groupby(["kind", "size"])), sorted(set(measured.gbit), reverse=True)
    figure, grid = drawing.wrapped(len(batches) + 1)
    *times, off = grid
    for panel, ((kind, size), points) in zip(times, batches, strict=True):
        points = points[(points.world_size > 1) | ~points.duplicated("world_size")]  # one rank needs no link
        own = lines[(lines.kind == kind) & (lines["size"] == size)]
        drawing.lines(panel, own, "world_size", "seconds", "gbit", label=_links, keys=rates, band=True, marker=None)
        for (gbit, held_out), marks in points.groupby(["gbit", "held_out"]):
            place = rates.index(gbit)
            look = style.series(place) | {"linestyle": "none", "markersize": 3.5}
            look |= {"markerfacecolor": "white"} if held_out else {}
            aside = marks.world_size.astype(float) * 1.035 ** (
                place - (len(rates) - 1) / 2
            )  # points of several rates side by side
            drawing.points(panel, aside, marks, "measured", **look)
            off.plot(aside, 100 * marks.error, **look)
        panel.set_title(drawing.fixed_batch(kind, size))
        panel.set_ylim(bottom=0)
    for label, face in (("measured, fitted on", "0.25"), ("measured, held out", "white")):
        off.plot([], [], "o", color="0.25", markerfacecolor=face, label=label)
    for panel in grid:
        drawing.ranks_axis(panel, measured.world_size)
    _errors(off)
    off.set(title="the model's error", ylabel=drawing.AXES["error"][0])
    return figure


@charted("parts", "What a step consists of as ranks are added, by the model.")
def parts(ahead: pd.DataFrame, measured_to: int) -> Figure:
    """The parts of a step as ranks are added, a panel for each link rate. Predictions beyond `measured_to` ranks, or for links
    that were not measured, are marked as extrapolation.

    `ahead`: rows of `Fitted.scaling` of one kind.
    """
    rates = list(ahead.groupby("gbit", sort=False))
    figure, (grid,) = drawing.panels(len(rates), sharey=True)
    for axes, (gbit, frame) in zip(grid, rates, strict=True):
        places = np.arange(len(frame))
        drawing.stacked(axes, places, frame.rename(columns=PARTS), PARTS.values(), vertical=True)
        axes.set_xticks(places, map("{:g}".format, frame.world_size), rotation=60, fontsize=6.5)
        inside = int((frame.world_size <= measured_to).sum()) if (frame.extrapolation == "").any() else 0
        if inside < len(frame):
            axes.axvline(inside - 0.5, **BEYOND)
        axes.set(title=f"{frame.kind.iloc[0]} scaling, {_place(gbit)}", xlabel="ranks")
    grid[0].set_ylabel(drawing.AXES["seconds"][0])
    return figure


@charted("reach", "Efficiency that the model predicts up to many ranks.")
def reach(ahead: pd.DataFrame, measured: pd.DataFrame) -> Figure:
    """Predicted efficiency against ranks with 95 % intervals, a line for each link rate, a panel for each kind of scaling.

    Args:
        ahead: `Validation.ahead`. measured: `fit.points`; other link rates are labelled.
    """
    rates, kinds = {np.inf, *measured.gbit[measured.world_size > 1]}, list(ahead.groupby("kind"))
    figure, (grid,) = drawing.panels(len(kinds), sharey=True)
    for axes, (kind, both) in zip(grid, kinds, strict=True):
        for number, (gbit, own) in enumerate(both.groupby("gbit", sort=False)):
            look = {"label": _place(gbit) + ("" if gbit in rates else ", not measured"), "marker": None}
            look["linewidth"] = max(1, 3 - number)  # lines that coincide stay visible
            drawing.points(axes, own.world_size, own, "efficiency", band=True, **style.series(number) | look)
        axes.axvline(measured.world_size.max(), **BEYOND)
        axes.axhline(100, **style.IDEAL)
        drawing.ranks_axis(axes, ahead.world_size)
        batch = both.batch_per_device.iloc[0]  # of one rank
        axes.set_title(drawing.fixed_batch(kind, batch) + relative(both.baseline.iloc[0]))
        axes.set_ylim(bottom=0)
    return figure


@charted(
    "laws",
    "How far laws that know only the number of ranks, and the model, miss times of steps on more ranks.",
    intervals=False,
)
def laws(compared: pd.DataFrame) -> Figure:
    """Errors of each law and of the model on more ranks than they were fitted on, against the links' rate. Colours are laws,
    markers numbers of ranks. `compared`: `validation.compare`."""
    kinds, rates = list(compared.groupby("kind")), sorted(set(compared.gbit))
    names, worlds = list(dict.fromkeys(compared.law)), sorted(set(compared.world_size))
    figure, (grid,) = drawing.panels(len(kinds), sharey=True)
    for panel, (kind, own) in zip(grid, kinds, strict=True):
        for (law, world), rows in own.groupby(["law", "world_size"], sort=False):
            look = style.series(names.index(law)) | {
                "marker": style.series(worlds.index(world))["marker"],
                "linestyle": "none",
            }
            places = rows.gbit.map(rates.index) + 0.12 * (names.index(law) - (len(names) - 1) / 2)
            panel.plot(places, 100 * rows.error, label=f"{law}, {world} ranks", **look)
        panel.set_xticks(range(len(rates)), map(_links, rates))
        panel.set(xlim=(-0.5, len(rates) - 0.5), title=f"{kind} scaling")
        _errors(panel)
    grid[0].set_ylabel(drawing.AXES["error"][0])
    return figure


def _errors(axes: Axes) -> None:
    """Errors of 5 and 10 % shaded."""
    axes.axhspan(-10, 10, color="0.93", zorder=0)
    axes.axhspan(-5, 5, color="0.86", zorder=0)
    axes.axhline(0, **style.IDEAL)
