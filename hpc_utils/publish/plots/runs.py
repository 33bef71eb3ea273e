"""Charts of configurations and single runs: throughput, accuracy, training curves, step times."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from . import drawing, style
from .chart import charted

LAYOUT = ["world_size", "parallel", "global_batch"]


@charted("throughput", "Training throughput of every configuration.")
def throughput(table: pd.DataFrame) -> Figure:
    """Throughput of every configuration with its 95 % interval. `table`: `scaling.throughput`."""
    table = table.sort_values(LAYOUT, ascending=[True, False, True])
    more = drawing.apart(table)
    table = table.assign(label=[_layout(row) + drawing.more(row, more) for row in table.itertuples()])
    labels, precisions = list(dict.fromkeys(table.label)), drawing.precisions(table)
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.55 + 0.48 * len(labels)))
    height = 0.8 / len(precisions)
    for number, precision in enumerate(precisions):
        rows = table[table.precision == precision]
        places = rows.label.map(labels.index) + (number - (len(precisions) - 1) / 2) * height
        look = {"color": style.COLOURS[precision], "hatch": "////" if number else None, "label": precision}
        axes.barh(places, rows.throughput, height=height * 0.92, edgecolor="white", linewidth=0.5, **look)
        drawing.points(axes, places, rows, "throughput", horizontal=True, **drawing.BARS)
        for place, value, end in zip(places, rows.throughput, rows.high.fillna(rows.throughput), strict=True):
            drawing.near(axes, f"{value:,.0f}", (end, place))
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    drawing.thousands(axes.xaxis)
    axes.set_xlabel(f"training throughput (samples/s), {drawing.interval(table)}")
    axes.legend(title=None, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(precisions), borderaxespad=0.2)
    return figure


@charted("accuracy", "Test accuracy over the epochs: every run by itself, and the median.")
def accuracy(epochs: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """Test accuracy over epochs: every run thin, the median marked; a panel for each layout and global batch."""
    joined = epochs.merge(runs[["run_id", "precision", *LAYOUT]], on="run_id").dropna(subset=["test_accuracy"])
    joined = joined.sort_values(LAYOUT, ascending=[True, False, True], kind="stable")
    panels = list(joined.groupby(LAYOUT, sort=False))
    figure, grid = plt.subplots(1, len(panels), figsize=(style.PAGE, 2.1), sharey=True, squeeze=False)
    for axes, (_, chosen) in zip(grid[0], panels, strict=True):
        for precision in drawing.precisions(chosen):
            rows, look = chosen[chosen.precision == precision], style.precision(precision)
            for _, one in rows.groupby("run_id"):
                axes.plot(one.epoch, one.test_accuracy, **look | {"marker": None, "linewidth": 0.5, "alpha": 0.5})
            middle = rows.groupby("epoch").test_accuracy.median()
            axes.plot(middle.index, middle, markersize=3, label=precision, **look)
        axes.set_title(_layout(chosen.iloc[0]).replace(", ", "\n"), fontsize=7.5)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    grid[0][0].set_ylabel("test accuracy")
    drawing.percent(grid[0][0].yaxis)
    grid[0][-1].legend(loc="lower right")
    return figure


def _layout(row: Any) -> str:
    """`1 rank no group, batch 512`."""
    group = "no group" if row.parallel == "none" else row.parallel.upper()
    over = f" ({row.layout})" if getattr(row, "nodes", 1) > 1 else ""
    return f"{row.world_size} rank{'s' if row.world_size > 1 else ''}{over} {group}, batch {row.global_batch:g}"


def training(epochs: pd.DataFrame) -> Figure:
    """One run: loss and accuracy over epochs, and the time of each phase in a mean step."""
    figure, (curves, phases) = plt.subplots(1, 2, figsize=(style.PAGE, 2.3), width_ratios=(3, 2))
    quiet = style.ROLES["quiet"]
    for name, form in (("train_loss", "-o"), ("test_loss", "--s")):
        if epochs[name].notna().any():
            label = "training loss" if name == "train_loss" else "test loss"
            curves.plot(epochs.epoch, epochs[name], form, color=quiet, markersize=3, label=label)
    if epochs.train_loss.isna().all():
        curves.annotate(
            "no loss: nothing was trained", (0.5, 0.5), xycoords="axes fraction", ha="center", color=quiet
        )
    curves.set(xlabel="epoch", ylabel="loss")
    curves.set_ylim(bottom=0)
    curves.xaxis.get_major_locator().set_params(integer=True)
    if epochs.test_accuracy.notna().any():
        accuracy = curves.twinx()
        accuracy.plot(epochs.epoch, epochs.test_accuracy, "-^", color=style.ROLES["main"], markersize=3)
        accuracy.set_ylabel("test accuracy", color=style.ROLES["main"])
        accuracy.set_ylim(0, 1.02)
        accuracy.grid(visible=False)
        accuracy.spines["right"].set_visible(True)
        drawing.percent(accuracy.yaxis)
    if curves.lines:
        curves.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)

    names = ["data", "forward", "backward", "optimizer"]
    means = [1e3 * epochs[f"{name}_seconds"].mean() for name in names]
    phases.barh(range(4), means, color=[style.ROLES[name] for name in names], edgecolor="white")
    for place, value in enumerate(means):
        drawing.near(phases, f"{value:.2f}", (value, place), (3, 0))
    drawing.named_rows(phases, names)
    phases.margins(x=0.15)
    phases.set_xlabel("ms a step, mean of the sampled steps")
    return figure


def step_times(steps: pd.DataFrame) -> Figure:
    """One run: the cumulative distribution of step times, a curve for each rank. `steps`: a run's `steps.csv.gz`."""
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.1))
    ranks, every = steps["rank"].nunique(), 1e3 * steps.seconds
    for number, (rank, times) in enumerate(every.groupby(steps["rank"])):
        look = {"color": plt.cm.cividis(number / ranks), "linestyle": ("-", "--", ":", "-.")[number % 4]}
        seaborn.ecdfplot(x=times, label=f"rank {rank}" if ranks <= 8 else None, ax=axes, **look)
    if 1 < ranks <= 8:
        axes.legend(loc="upper left")
    for percent in (50, 95, 99):
        at = every.quantile(percent / 100)
        axes.axvline(at, color="0.6", linewidth=0.7, linestyle=":")
        drawing.near(axes, f"p{percent}", (at, 0.02), (2, 0), color=style.ROLES["quiet"], va="bottom")
    axes.set(xlabel="step time (ms)", ylabel="share of steps", ylim=(0, 1.02))
    drawing.percent(axes.yaxis)
    return figure
