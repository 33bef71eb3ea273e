"""Whether a share of a core is a fair device, in four panels."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from ..quantities import quantity
from . import drawing, style
from .chart import charted


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
