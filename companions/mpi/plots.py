"""The MPI framework beside DDP and Horovod: time of a step by part, and learning."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from hpc_utils.plural import counted
from hpc_utils.publish.plots import drawing, style
from hpc_utils.publish.plots.chart import charted

from .analysis import FRAMEWORKS

PARTS = {
    "loader_seconds": "waiting for data", "compute_seconds": "compute", "exposed_seconds": "communication, exposed",
    "optimizer_seconds": "optimizer",
}  # fmt: skip


@charted("step-parts", "Time of a step by part: medians of the repeats.", intervals=False)
def step_parts(table: pd.DataFrame) -> Figure:
    """A bar for each row of `table`: `analysis.configurations`."""
    figure, ((axes,),) = drawing.panels(1, height=0.6 + 0.28 * len(table))
    drawing.stacked(axes, range(len(table)), 1e3 * table[[*PARTS]].rename(columns=PARTS), PARTS.values())
    ranks = [counted(world, "rank") for world in table.world_size]
    drawing.named_rows(axes, _labels(table) + ", " + ranks)
    axes.set_xlabel("time of a step (ms)")
    return figure


def _labels(table: pd.DataFrame) -> pd.Series:
    """The framework of each row, with its device where that is a GPU."""
    return table.framework.where(table.device != "cuda", table.framework + " on CUDA")


@charted("speedup", "Speed-up over one rank of the same framework, with 95 % intervals.")
def speedup(table: pd.DataFrame) -> Figure:
    """`table`: `analysis.configurations` of several ranks."""
    figure, ((axes,),) = drawing.panels(1, height=2.4)
    table = table.assign(framework=_labels(table))
    single = table.drop_duplicates("framework")[["framework"]].assign(world_size=1, speedup=1.0)
    table = pd.concat([single, table], ignore_index=True)
    offsets = 1 + 0.03 * pd.factorize(table.framework)[0]  # no interval hides another
    drawing.lines(axes, table.assign(place=table.world_size * offsets), "place", "speedup", "framework")
    ends = [1, table.world_size.max()]
    axes.plot(ends, ends, label="ideal", **style.IDEAL)
    drawing.ranks_axis(axes, table.world_size)
    drawing.log_axis(axes.yaxis)
    return figure


@charted("allreduce", "Time of an all-reduce on its own against the size of the message, with 95 % intervals.")
def allreduce(table: pd.DataFrame) -> Figure:
    """A line for each library. `table`: `analysis.allreduces`."""
    figure, ((axes,),) = drawing.panels(1, height=2.4)
    drawing.lines(axes, table, "bytes", "allreduce_seconds", "library")
    drawing.message_axis(axes)
    return figure


@charted(
    "learning",
    "Accuracy on the test images after every epoch, a line for each run. Of frameworks that compute the same, lines coincide.",
    intervals=False,
)
def learning(table: pd.DataFrame) -> Figure:
    """`table`: `analysis.learned`."""
    figure, ((axes,),) = drawing.panels(1, height=2.4)
    for number, framework in enumerate(FRAMEWORKS.values()):
        for _, rows in table[table.framework == framework].groupby("run_id"):
            axes.plot(rows.epoch, 100 * rows.test_accuracy, **style.series(number) | {"label": framework})
    axes.axhline(99, label="aim", **style.IDEAL)
    axes.set(xlabel="epoch", ylabel="test accuracy (%)", xticks=sorted(set(table.epoch)))
    return figure


@charted("side-by-side", "Measured side by side: median, lowest and highest of the rounds.", intervals=False)
def side_by_side(table: pd.DataFrame, column: str) -> Figure:
    """A panel for each case, a row for each variant. `table`: `analysis.benchmark`, of this column."""
    cases = table.groupby("case", sort=False)
    figure, grid = drawing.panels(1, len(cases), height=0.5 + 0.2 * max(cases.size()), sharex=True)
    for axes, (case, variants) in zip(grid.flat, cases, strict=True):
        look = style.series(0) | {"linestyle": "none"}
        drawing.points(axes, range(len(variants)), variants, column, horizontal=True, **look)
        drawing.named_rows(axes, variants.variant)
        axes.set_title(case)
        axes.label_outer()
    drawing.log_axis(grid[-1][0].xaxis)
    return figure
