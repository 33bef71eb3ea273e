"""Whether a share of a core is a fair device, in four panels."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import drawing, style
from .chart import charted


@charted("shares", "A share of a core beside a whole one: step time, two ranks, spread of steps, cost of a sample.")
def fairness(table: pd.DataFrame, curves: pd.DataFrame) -> Figure:
    """Step time against the share, two ranks against one, spread against the period, cost of a sample against the batch.

    `table`: `shares.against_whole_cores`. `curves`: `scaling.efficiency` of the same runs.
    """
    figure, ((shares, two_ranks), (periods, batches)) = plt.subplots(2, 2, figsize=(style.PAGE, 4.9))
    batch = table[table.cores < 1].groupby("batch_per_device").cores.nunique().idxmax()
    usual = table.period.dropna().mode().iloc[0]
    of_one_batch = table[(table.batch_per_device == batch) & (table.cores < 1)]
    alone = table[(table.parallel == "none") & (table.period.isna() | (table.period == usual))]
    weak = curves[(curves.kind == "weak") & (curves.batch == batch)]
    _shares(shares, alone[(alone.batch_per_device == batch) & (alone.cores < 1)].sort_values("cores"))
    _two_ranks(two_ranks, weak[weak.share_period.isna() | (weak.share_period == usual)])
    _periods(periods, of_one_batch[of_one_batch.parallel != "none"])
    _batches(batches, alone)
    drawing.note(figure, drawing.interval(table))
    return figure


def _shares(axes: Axes, rows: pd.DataFrame) -> None:
    drawing.points(axes, rows.cores, rows, "deviation", fmt="o-", color=style.ROLES["main"])
    axes.axhline(0, **style.IDEAL)
    _ticks(axes, rows.cores)
    axes.set(xlabel="share of a core", ylabel="step time above 1/share", title="One rank")
    drawing.percent(axes.yaxis)


def _two_ranks(axes: Axes, curves: pd.DataFrame) -> None:
    """The base is DDP on one rank of each device, so that only the cost of the second rank shows."""
    rows = curves[(curves.world_size == 2) & (curves.baseline != "none")].sort_values("threads_per_rank")
    rows = rows.drop_duplicates("threads_per_rank")
    places = range(len(rows))
    drawing.points(axes, places, rows, "efficiency", fmt="o", color=style.ROLES["main"])
    axes.axhline(1, **style.IDEAL)
    axes.set_xticks(places, ["whole core" if cores == 1 else f"{cores:g}" for cores in rows.threads_per_rank])
    axes.set(xlabel="device", ylabel="weak efficiency", title="Two ranks against one")
    axes.margins(x=0.2)
    drawing.percent(axes.yaxis)


def _periods(axes: Axes, rows: pd.DataFrame) -> None:
    rows = rows[rows.cores == rows.groupby("cores").period.nunique().idxmax()] if len(rows) else rows
    for place, (world, own) in enumerate(rows.sort_values("period").groupby("world_size")):
        axes.plot(
            1e3 * own.period, own.spread, label=f"{world} rank{'s' if world > 1 else ''}", **style.series(place)
        )
    _ticks(axes, 1e3 * rows.period)
    axes.set(xlabel="period of the share (ms)", ylabel="step's 95th percentile / median", title="Spread of steps")
    axes.legend()


def _batches(axes: Axes, rows: pd.DataFrame) -> None:
    several = rows.groupby("cores").batch_per_device.transform("nunique")
    rows = rows[several == several.max()].rename(
        columns={f"sample_{end}": f"sample_seconds_{end}" for end in ("low", "high")}
    )
    for place, (cores, own) in enumerate(rows.sort_values("batch_per_device").groupby("cores")):
        label = "whole core" if cores == 1 else f"{cores:g} core"
        look = style.series(place) | {"label": label}
        drawing.points(axes, own.batch_per_device, own, "sample_seconds", scale=1e6, **look)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="samples a step", ylabel="processor time a sample (µs)", title="Cost of a sample")
    axes.set_ylim(bottom=0)
    axes.legend()


def _ticks(axes: Axes, values: Iterable[float]) -> None:
    drawing.log_axis(axes.xaxis, values)
    axes.xaxis.set_major_formatter("{x:g}")
