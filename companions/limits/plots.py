"""The charts of chapter 03b: links, the performance model beside what was measured, what it predicts, and shares of a core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.allreduce_cost import bandwidths
from hpc_utils.analyze.compare import scaled
from hpc_utils.analyze.model.fit import FARTHEST
from hpc_utils.publish.plots import drawing, style
from hpc_utils.publish.plots.chart import charted
from hpc_utils.publish.quantities import quantity

# A step's parts from the bottom up.
PARTS = {
    "compute": "computing", "data": "waiting for data", "host": "communication: processor", "bandwidth": "communication: bandwidth",
    "latency": "communication: latency", "straggler": "waiting for the slowest rank",
}  # fmt: skip
EXTRAPOLATION = {"color": "0.3", "linewidth": 0.8, "linestyle": ":", "label": "extrapolation"}
GROUPS = {"all": "all ranks", "intra": "inside a node", "inter": "between nodes"}


@charted(
    "allreduce",
    "Time and bus bandwidth of an all-reduce alone against the size of the message, and the link fitted to it.",
)
def allreduce(table: pd.DataFrame) -> Figure:
    """Time with its fit, and bus bandwidth, against message size; a line for each group. `table`: `links.times`."""
    figure, ((times, rates),) = drawing.panels(2)
    table = scaled(table, "allreduce_seconds", "seconds")
    for place, (name, rows) in enumerate(table.groupby("group", sort=False)):
        ranks = int(rows.ranks.iloc[0])
        look = style.series(place)
        line = look | {"marker": None, "linewidth": 1}
        marks = look | {"markerfacecolor": "white", "linestyle": "none"}
        label = f"{GROUPS.get(name, name)} ({ranks})"
        drawing.points(times, rows.bytes, rows, "allreduce_seconds", label=label, **marks)
        times.plot(rows.bytes, 1e3 * rows.modelled, **line)
        for seconds, form in ((rows.allreduce_seconds, marks), (rows.modelled, line)):
            rates.plot(rows.bytes, bandwidths(rows.bytes, seconds, ranks)[1] / 1e9, **form)
    for axes in (times, rates):
        drawing.message_axis(axes)
    rates.set_ylabel("bus bandwidth (GB/s)")
    return figure


def _link(gbit: float) -> str:
    return "links as they are" if np.isinf(gbit) else f"{gbit:g} Gbit/s"


@charted("model", "Time of a step against ranks over links of several rates, measured and by the model.")
def validation(points: pd.DataFrame) -> Figure:
    """Step times against ranks, measured and by the model with its interval, a panel for each fixed batch.

    `points`: `laws.curves`. Those that the model was not fitted to are open.
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

    `predictions`: rows of `predictions.scaling` of one kind.
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
    markers numbers of ranks. `compared`: `laws.against_laws`."""
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


@charted("shares", "A share of a core beside a whole one: step time, two ranks, spread of steps, cost of a sample.")
def fairness(table: pd.DataFrame, curves: pd.DataFrame) -> Figure:
    """Step time against the share, two ranks against one, spread against the period, cost of a sample against the batch.

    `table`: `shares.against_whole_cores`. `curves`: `scaling.efficiency` of the same runs.
    """
    figure, ((shares, two_ranks), (periods, batches)) = drawing.panels(2, 2, height=2.0, width=style.PAGE)
    table = table.assign(ms=1e3 * table.period)
    part = table[table.cores < 1]
    batch = part.groupby("batch_per_device").cores.nunique().idxmax()
    usual_period = table.period.mode().max()
    single_ranks = table[(table.parallel == "none") & table.period.fillna(usual_period).eq(usual_period)]

    rows = single_ranks[(single_ranks.batch_per_device == batch) & (single_ranks.cores < 1)].sort_values("cores")
    drawing.points(shares, rows.cores, rows, "deviation", **style.series(0))
    shares.axhline(0, **style.IDEAL)
    drawing.log_axis(shares.xaxis, rows.cores)
    shares.set(xlabel="share of a core", title="One rank")

    # The base is DDP on one rank of each device, so that only the cost of the second rank shows.
    pairs = curves[(curves.kind == "weak") & (curves.batch == batch) & (curves.world_size == 2)]
    pairs = pairs[(pairs.baseline != "none") & pairs.share_period.fillna(usual_period).eq(usual_period)]
    rows = pairs.sort_values("threads_per_rank").drop_duplicates("threads_per_rank")
    drawing.points(two_ranks, range(len(rows)), rows, "efficiency", fmt="o", color=style.ROLES["main"])
    two_ranks.axhline(100, **style.IDEAL)
    two_ranks.set_xticks(range(len(rows)), map("{:g}".format, rows.threads_per_rank))
    two_ranks.set(xlabel="cores", ylabel="weak efficiency (%)", title="Two ranks against one")

    rows = part[(part.batch_per_device == batch) & (part.parallel != "none")].sort_values("period")
    several = rows.groupby("cores").period.transform("nunique")
    drawing.lines(periods, rows[several == several.max()], "ms", "spread", "world_size", label="ranks: {}".format)
    drawing.log_axis(periods.xaxis, rows.ms)
    periods.set_xlabel("period of the share (ms)")

    several = single_ranks.groupby("cores").batch_per_device.transform("nunique")
    rows = single_ranks[several == several.max()].sort_values(["cores", "batch_per_device"])
    drawing.lines(batches, rows, "batch_per_device", "sample_seconds", "cores", label="cores: {:g}".format)
    drawing.log_axis(batches.xaxis, sorted(set(rows.batch_per_device))[::3])
    batches.set(xlabel="samples a step", ylabel=quantity("sample_seconds").title)
    batches.set_ylim(bottom=0)
    for axes, title in ((periods, "Spread of steps"), (batches, "Cost of a sample")):
        drawing.legend_above(axes, title=title)
    return figure
