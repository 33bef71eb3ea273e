"""Whether a share of a core is a fair device, in four panels."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from . import drawing, style
from .chart import charted


@charted("shares", "A share of a core beside a whole one: step time, two ranks, spread of steps, cost of a sample.")
def fairness(table: pd.DataFrame, curves: pd.DataFrame) -> Figure:
    """Step time against the share, two ranks against one, spread against the period, cost of a sample against the batch.

    `table`: `shares.against_whole_cores`. `curves`: `scaling.efficiency` of the same runs.
    """
    figure, grid = plt.subplots(2, 2, figsize=(style.PAGE, 4.9))
    batch = table[table.cores < 1].groupby("batch_per_device").cores.nunique().idxmax()
    usual = table.period.dropna().mode().iloc[0]
    of_one_batch = table[(table.batch_per_device == batch) & (table.cores < 1)]
    alone = table[(table.parallel == "none") & (table.period.isna() | (table.period == usual))]
    weak = curves[(curves.kind == "weak") & (curves.batch == batch)]
    _shares(grid[0][0], alone[alone.batch_per_device == batch])
    _two_ranks(grid[0][1], weak[weak.share_period.isna() | (weak.share_period == usual)])
    _periods(grid[1][0], of_one_batch[of_one_batch.parallel != "none"])
    _batches(grid[1][1], alone)
    figure.supxlabel(drawing.interval(table), fontsize=7, color="0.35")
    return figure


def _shares(axes: Axes, rows: pd.DataFrame) -> None:
    rows = rows[rows.cores < 1].sort_values("cores")
    bars = drawing.bars(rows, "deviation", "deviation_low", "deviation_high")
    axes.errorbar(rows.cores, rows.deviation, yerr=bars, fmt="o-", color=style.ROLES["main"])
    axes.axhline(0, **style.IDEAL)
    axes.set_xscale("log")
    axes.set_xticks(rows.cores, [f"{share:g}" for share in rows.cores])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="share of a core", ylabel="step time above 1/share", title="One rank")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _two_ranks(axes: Axes, curves: pd.DataFrame) -> None:
    """Each device's own DDP on one rank is the base: what a second rank costs, and nothing else."""
    rows = curves[(curves.world_size == 2) & (curves.baseline != "none")].sort_values("threads_per_rank")
    rows = rows.drop_duplicates("threads_per_rank")
    places = range(len(rows))
    bars = drawing.bars(rows, "efficiency")
    axes.errorbar(places, rows.efficiency, yerr=bars, fmt="o", color=style.ROLES["main"])
    axes.axhline(1, **style.IDEAL)
    axes.set_xticks(places, ["whole core" if cores == 1 else f"{cores:g}" for cores in rows.threads_per_rank])
    axes.set(xlabel="device", ylabel="weak efficiency", title="Two ranks against one")
    axes.margins(x=0.2)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _periods(axes: Axes, rows: pd.DataFrame) -> None:
    rows = rows[rows.cores == rows.groupby("cores").period.nunique().idxmax()] if len(rows) else rows
    for (world, own), (colour, line, marker) in zip(rows.groupby("world_size"), style.SERIES, strict=False):
        own = own.sort_values("period")
        look = {"color": colour, "linestyle": line, "marker": marker}
        axes.plot(1e3 * own.period, own.spread, label=f"{world} rank{'s' * (world > 1)}", **look)
    axes.set_xscale("log")
    ticks = sorted(set(1e3 * rows.period))
    axes.set_xticks(ticks, [f"{period:g}" for period in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="period of the share (ms)", ylabel="step's 95th percentile / median", title="Spread of steps")
    axes.legend()


def _batches(axes: Axes, rows: pd.DataFrame) -> None:
    several = rows.groupby("cores").batch_per_device.transform("nunique")
    rows = rows[several == several.max()]
    for (cores, own), (colour, line, marker) in zip(rows.groupby("cores"), style.SERIES, strict=False):
        own = own.sort_values("batch_per_device")
        own[["us", "us_low", "us_high"]] = 1e6 * own[["sample_seconds", "sample_low", "sample_high"]]
        bars = drawing.bars(own, "us", "us_low", "us_high")
        label = "whole core" if cores == 1 else f"{cores:g} core"
        look = {"color": colour, "linestyle": line, "marker": marker, "label": label}
        axes.errorbar(own.batch_per_device, own.us, yerr=bars, **look)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set(xlabel="samples a step", ylabel="processor time a sample (µs)", title="Cost of a sample")
    axes.set_ylim(bottom=0)
    axes.legend()
