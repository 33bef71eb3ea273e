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
    rows = dict(iter(table.groupby("library")))
    curves = {library: rows[library] for library in LIBRARIES if library in rows}
    return drawing.scaling(curves, "threads", "threads", "rows")


@charted("at-work", "Cores at work, by the monitor: the first repeat of each number of threads.", intervals=False)
def at_work(table: pd.DataFrame) -> Figure:
    """A panel for each library. `table`: `analysis.at_work`."""
    counts = sorted(set(table.threads))
    figure, panels = drawing.panel_of_each(table.groupby("library", sort=False), height=2.4, sharey=True)
    for axes, library, samples in panels:
        for threads, rows in samples.groupby("threads"):
            look = style.series(counts.index(threads)) | {"marker": None, "label": counted(threads, "thread")}
            axes.plot(rows.elapsed, rows.at_work, **look)
        axes.set(title=library, xlabel="time in the run (s)")
    figure.axes[0].set(ylabel="cores at work", ylim=(0, 1.05 * table.at_work.max()))
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
