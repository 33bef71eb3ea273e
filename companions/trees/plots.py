"""Tree models: scaling over threads, the cores at work, and learning."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from hpc_utils.plural import counted
from hpc_utils.publish.plots import drawing, style
from hpc_utils.publish.plots.chart import charted

LIBRARIES = ("XGBoost", "LightGBM")


@charted("scaling", "Rows a second and efficiency by threads.")
def scaling(table: pd.DataFrame) -> Figure:
    """`table`: `analysis.by_threads`, of runs on CPUs."""
    figure, ((speed, efficiency),) = drawing.panels(2, height=2.6)
    for library, rows in table.groupby("library", sort=False):
        look = style.series(LIBRARIES.index(library)) | {"label": library}
        for axes, column in ((speed, "throughput"), (efficiency, "efficiency")):
            drawing.points(axes, rows.threads, rows, column, **look)
        single = rows[rows.threads == 1]
        if len(single):
            speed.plot(rows.threads, single.throughput.iloc[0] * rows.threads, label="ideal", **style.IDEAL)
    efficiency.axhline(100, **style.IDEAL)
    drawing.scaling_axes(speed, efficiency, table.threads, "threads", "rows")
    return figure


@charted("at-work", "Cores at work, by the monitor: the first repeat of each number of threads.", intervals=False)
def at_work(table: pd.DataFrame) -> Figure:
    """A panel for each library. `table`: `analysis.at_work`."""
    libraries = list(dict.fromkeys(table.library))
    counts = sorted(set(table.threads))
    figure, (panels,) = drawing.panels(len(libraries), height=2.4, sharey=True)
    for axes, library in zip(panels, libraries, strict=True):
        for threads, rows in table[table.library == library].groupby("threads"):
            look = style.series(counts.index(threads)) | {"marker": None, "label": counted(int(threads), "thread")}
            axes.plot(rows.elapsed, rows.at_work, **look)
        axes.set(title=library, xlabel="time in the run (s)")
    panels[0].set(ylabel="cores at work", ylim=(0, 1.05 * table.at_work.max()))
    return figure


@charted(
    "learning",
    "Held-out rows: area under the ROC curve, and accuracy, by training time on most threads.",
    intervals=False,
)
def learning(table: pd.DataFrame) -> Figure:
    """A line for each run. `table`: `analysis.learning`."""
    columns = {"test_auc": "area under the ROC curve", "test_accuracy": "accuracy"}
    figure, (panels,) = drawing.panels(2, height=2.4)
    for axes, (column, name) in zip(panels, columns.items(), strict=True):
        for (library, _), rows in table.groupby(["library", "run_id"], sort=False):
            look = style.series(LIBRARIES.index(library)) | {"marker": None, "linewidth": 0.8, "label": library}
            axes.plot(rows.elapsed, rows[column], **look)
        axes.set(xlabel="training time (s)", ylabel=name, xlim=(0, None))
    return figure
