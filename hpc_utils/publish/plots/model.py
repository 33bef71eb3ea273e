"""Charts of the performance model: predicted and measured step times, the parts of a step, and extrapolation to more ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.analyze.model.fit import FARTHEST

from ..quantities import quantity
from . import drawing, style
from .chart import charted

# A step's parts from the bottom up.
PARTS = {
    "compute": "computing", "data": "waiting for data", "host": "communication: processor", "bandwidth": "communication: bandwidth",
    "latency": "communication: latency", "straggler": "waiting for the slowest rank",
}  # fmt: skip
EXTRAPOLATION = {"color": "0.3", "linewidth": 0.8, "linestyle": ":", "label": "extrapolation"}


def _link(gbit: float) -> str:
    return "links as they are" if np.isinf(gbit) else f"{gbit:g} Gbit/s"


@charted("model", "Time of a step against ranks over links of several rates, measured and by the model.")
def validation(points: pd.DataFrame) -> Figure:
    """Step times against ranks, measured and by the model with its interval, a panel for each fixed batch.

    `points`: `validation.curves`. Those that the model was not fitted to are open.
    """
    figure, panels, rates = _fixed_batches(points)
    for panel, _, rows in panels:
        drawing.lines(panel, rows, "world_size", "seconds", "gbit", label=_link, keys=rates, band=True, marker=None)
        for worlds, marks, look in _marks(rows, rates):
            drawing.points(panel, worlds, marks, "measured", **look)
        panel.set_ylim(bottom=0)
    return figure


@charted("model-error", "Error of the model's time of a step, on the runs that it was fitted to and on others.")
def errors(points: pd.DataFrame) -> Figure:
    """The model's error against ranks, a panel for each fixed batch; grey: within 5 and 10 %. `points`: as of `validation`."""
    figure, panels, rates = _fixed_batches(points, sharey=True)
    for panel, _, rows in panels:
        for worlds, marks, look in _marks(rows, rates):
            drawing.points(panel, worlds, marks, "error", label=_link(marks.gbit.iloc[0]), **look)
        _shade_errors(panel)
    return figure


def _fixed_batches(
    points: pd.DataFrame, **shared: Any
) -> tuple[Figure, list[tuple[Axes, Any, pd.DataFrame]], list[float]]:
    """A figure; its panels with the batch and the rows of each; the links' rates."""
    figure, panels = drawing.panel_of_each(points.groupby(["kind", "size"]), height=1.75, **shared)
    for panel, batch, _ in panels:
        panel.set_title(drawing.fixed_batch(*batch))
        drawing.ranks_axis(panel, points.world_size)
    for label, face in (("fitted on", "0.25"), ("held out", "white")):
        panel.plot([], [], "o", color="0.25", markerfacecolor=face, label=label)
    return figure, panels, sorted(set(points.gbit), reverse=True)


def _marks(rows: pd.DataFrame, rates: list[float]) -> Iterator[tuple[pd.Series, pd.DataFrame, dict[str, Any]]]:
    """Places, points and look of each rate's points, beside those of other rates; open if they are held out."""
    once = rows[(rows.world_size > 1) | ~rows.duplicated("world_size")]  # one rank needs no link
    for (gbit, part), marks in once.groupby(["gbit", "points"]):
        number = rates.index(gbit)
        look = style.series(number) | {"linestyle": "none", "markersize": 3.5}
        look |= {"markerfacecolor": "white"} if part == "held out" else {}
        yield marks.world_size.astype(float) * 1.035 ** (number - (len(rates) - 1) / 2), marks, look


@charted("parts", "What a step consists of as ranks are added, by the model.")
def parts(predictions: pd.DataFrame) -> Figure:
    """The parts of a step as ranks are added, a panel for each link rate, with the beginning of extrapolation.

    `predictions`: rows of `Fitted.scaling` of one kind.
    """
    figure, panels = drawing.panel_of_each(predictions.groupby("gbit", sort=False), sharey=True)
    for axes, gbit, curve in panels:
        positions = np.arange(len(curve))
        drawing.stacked(axes, positions, curve.rename(columns=PARTS), PARTS.values(), vertical=True)
        axes.set_xticks(positions, map("{:g}".format, curve.world_size), rotation=60)
        inside = (curve.extrapolation == "").sum()
        if inside < len(curve):
            axes.axvline(inside - 0.5, **EXTRAPOLATION)
        axes.set(title=f"{curve.kind.iloc[0]} scaling, {_link(gbit)}", xlabel="ranks")
    panels[0][0].set_ylabel(quantity("measured").title)
    return figure


@charted("reach", f"Efficiency that the model predicts, up to {FARTHEST} times as many ranks as were measured.")
def reach(predictions: pd.DataFrame, measured: pd.DataFrame) -> Figure:
    """Predicted efficiency against ranks with 95 % intervals, a line for each link rate, a panel for each kind of scaling.

    Args:
        predictions: `Validation.predictions`. measured: `fit.points`; other link rates are labelled.
    """
    rates = {np.inf, *measured.gbit[measured.world_size > 1]}
    figure, panels = drawing.panel_of_each(predictions.groupby("kind"), height=1.9, sharey=True)
    for axes, kind, rows in panels:
        for number, (gbit, curve) in enumerate(rows.groupby("gbit", sort=False)):
            label = _link(gbit) + ("" if gbit in rates else ", not run")
            look = style.series(number) | {"label": label, "marker": None}
            width = max(1, 3 - number)  # lines that coincide stay visible
            drawing.points(axes, curve.world_size, curve, "efficiency", band=True, linewidth=width, **look)
        axes.axvline(measured.world_size.max(), **EXTRAPOLATION)
        axes.axhline(100, **style.IDEAL)
        drawing.ranks_axis(axes, predictions.world_size)
        axes.set_title(drawing.fixed_batch(kind, rows.batch_per_device.iloc[0]))  # the batch of one rank
        axes.set_ylim(bottom=0)
    return figure


@charted("laws", "How far laws that know only the number of ranks, and the model, miss times of steps on more ranks.")
def laws(compared: pd.DataFrame) -> Figure:
    """Errors of each law and of the model on more ranks than they were fitted on, against the links' rate. Colours are laws,
    markers numbers of ranks. `compared`: `validation.compare`."""
    rates = sorted(set(compared.gbit))
    names = list(dict.fromkeys(compared.law))
    worlds = sorted(set(compared.world_size))
    figure, panels = drawing.panel_of_each(compared.groupby("kind"), height=1.9, sharey=True)
    for panel, kind, rows in panels:
        for (law, world), points in rows.groupby(["law", "world_size"], sort=False):
            number = names.index(law)
            marker = style.series(worlds.index(world))["marker"]
            look = style.series(number) | {"marker": marker, "linestyle": "none"}
            positions = points.gbit.map(rates.index) + 0.12 * (number - (len(names) - 1) / 2)
            drawing.points(panel, positions, points, "error", label=f"{law}, {world} ranks", **look)
        panel.set_xticks(range(len(rates)), ["own" if np.isinf(rate) else f"{rate:g}" for rate in rates])
        panel.set(xlim=(-0.5, len(rates) - 0.5), title=f"{kind} scaling", xlabel="link (Gbit/s)")
        _shade_errors(panel)
    return figure


def _shade_errors(axes: Axes) -> None:
    """Shade errors up to 5 and 10 %."""
    axes.axhspan(-10, 10, color="0.93", zorder=0)
    axes.axhspan(-5, 5, color="0.86", zorder=0)
    axes.axhline(0, **style.IDEAL)
