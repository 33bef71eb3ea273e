"""Charts of configurations and single runs: throughput, accuracy, training curves, step times."""

from __future__ import annotations

from textwrap import fill, wrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from hpc_utils.plural import counted
from hpc_utils.records.compute_profile import PHASES

from ..formatting import scheme
from ..quantities import quantity
from . import drawing, style
from .chart import charted

LAYOUT = ["world_size", "parallel", "global_batch"]
LOSSES = {"train_loss": "training loss", "test_loss": "test loss"}


@charted("throughput", "Training throughput of every configuration.")
def throughput(table: pd.DataFrame) -> Figure:
    """Throughput of every configuration with its 95 % interval. `table`: `scaling.throughput`."""
    table = table.sort_values([*LAYOUT, "throughput"], ascending=[True, False, True, True], ignore_index=True)
    (table, columns) = drawing.apart(table)
    precisions = drawing.precisions(table)
    labels, title = _labels(table, columns)
    names = list(dict.fromkeys(labels))
    order = table.precision.map(precisions.index)
    # The place of a bar in its row; 0: the middle.
    turns = order.groupby(labels).rank() - (order.groupby(labels).transform("size") + 1) / 2
    most = labels.value_counts().max()
    height = 0.8 / most
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.75 + max(0.48, 0.18 * most) * len(names)))
    for number, precision in enumerate(precisions):
        rows = table[table.precision == precision]
        places = labels[rows.index].map(names.index) + turns[rows.index] * height
        look = {"color": style.precision(precision)["color"], "hatch": "////" if number else None, "label": precision}
        axes.barh(places, rows.throughput, height, edgecolor="white", **look)
        drawing.points(axes, places, rows, "throughput", horizontal=True, **drawing.BARS)
        drawing.beside(axes, places, rows.throughput.map("{:,.0f}".format))
    drawing.named_rows(axes, names)
    axes.set_title(title)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    return figure


def _labels(table: pd.DataFrame, columns: list[str]) -> tuple[pd.Series, str]:
    """A label of short lines for each row, and the title: the layout, if all rows share it and differ in `columns`."""
    layouts = [_layout(row) for row in table.itertuples()]
    descriptions = [drawing.more(row, columns).removeprefix(", ") for row in table.itertuples()]
    if title := layouts[0] if len(set(layouts)) == 1 and all(descriptions) else "":
        layouts = [""] * len(table)
    lines = [
        [layout, *wrap(description, 44, break_on_hyphens=False)]
        for layout, description in zip(layouts, descriptions, strict=True)
    ]
    return pd.Series(["\n".join(filter(None, label_lines)) for label_lines in lines]), title


@charted("learned", "A metric over the epochs: every run by itself, and the median.")
def learned(epochs: pd.DataFrame, runs: pd.DataFrame, metric: str) -> Figure:
    """A column of `epochs` over them: every run thin, the median marked; a panel for each task, layout, global batch and, where these
    do not tell configurations apart, their settings."""
    task = [name for name in ("workload", "dataset") if runs[name].nunique(dropna=False) > 1]
    runs, names = drawing.apart(runs, [*task, *LAYOUT, "precision"], ["settings"])
    task += names
    joined = epochs.merge(runs[["run_id", "precision", *task, *LAYOUT]], on="run_id").dropna(subset=[metric])
    joined = joined.sort_values([*task, *LAYOUT], ascending=[True] * len(task) + [True, False, True], kind="stable")
    layouts = joined.groupby([*task, *LAYOUT], sort=False, dropna=False)
    figure, panels = drawing.panel_of_each(layouts, height=1.8, sharey=not task)
    for axes, _, chosen in panels:
        for precision in drawing.precisions(chosen):
            look = style.precision(precision) | {"label": precision}
            drawing.every_run(axes, chosen[chosen.precision == precision], "epoch", metric, **look)
        differences = fill(drawing.more(chosen.iloc[0], task).removeprefix(", "), 36)
        axes.set(xlabel="epoch", title=f"{_layout(chosen.iloc[0])}\n{differences}".strip())
        axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _layout(row: Any) -> str:
    """`1 rank no group, batch 512`."""
    group = scheme(row.parallel)
    layout = f" ({row.layout})" if getattr(row, "nodes", 1) > 1 else ""
    return f"{counted(row.world_size, 'rank')}{layout} {group}, batch {row.global_batch:g}"


def training(epochs: pd.DataFrame) -> Figure:
    """One run: loss and, if it was evaluated, accuracy over epochs, and the time of each phase in a mean step."""
    has_accuracy = epochs.test_accuracy.notna().any()
    figure, (losses, *accuracies, phases) = plt.subplots(1, 2 + has_accuracy, figsize=(style.PAGE, 2.3))
    for place, (column, label) in enumerate(LOSSES.items()):
        if epochs[column].notna().any():
            losses.plot(epochs.epoch, epochs[column], label=label, **style.series(place))
    losses.set(xlabel="epoch", ylabel="loss")
    for axes in accuracies:
        axes.plot(epochs.epoch, 100 * epochs.test_accuracy, **style.series(0))
        axes.set(xlabel="epoch", ylabel=quantity("accuracy").title)
    for axes in (losses, *accuracies):
        axes.xaxis.get_major_locator().set_params(integer=True)
    means = [1e3 * epochs[f"{name}_seconds"].mean() for name in PHASES]
    phases.barh(PHASES, means, color=style.ROLES["main"])
    drawing.beside(phases, range(len(PHASES)), map("{:.2f}".format, means))
    drawing.named_rows(phases, PHASES)
    phases.set_xlabel("ms a step, mean of the sampled steps")
    return drawing.finished(figure)


@charted(
    "machine-speed",
    "Speed of the machine in each round of turns, relative to the mean of its session.",
    intervals=False,
)
def machine_speed(table: pd.DataFrame) -> Figure:
    """Speed against time, a line for each session; `table`: `analyze.precision.machine_speed`."""
    figure, axes = plt.subplots(figsize=(style.PAGE, 1.6))
    for _, rounds in table.groupby("session", sort=False):
        axes.plot(rounds.moment, rounds.speed, color=style.ROLES["main"], linewidth=0.8)
    axes.axhline(1, **style.IDEAL)
    axes.set(xlabel=quantity("moment").title, ylabel=quantity("speed").title, ylim=(0, None))
    return figure


def step_times(steps: pd.DataFrame) -> Figure:
    """One run: the cumulative distribution of step times, a curve for each rank. `steps`: a run's `steps.csv.gz`."""
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.1))
    times = 1e3 * steps.seconds
    ranks = times.groupby(steps["rank"])
    for (rank, rank_times), colour in zip(ranks, colormaps["cividis"](np.linspace(0, 0.9, len(ranks))), strict=True):
        axes.ecdf(rank_times, color=colour, label=f"rank {rank}" if len(ranks) <= 8 else None)
    for place, percent in enumerate((50, 95, 99)):  # each label a line higher: they may be near
        percentile = np.percentile(times, percent)
        axes.axvline(percentile, **style.IDEAL)
        drawing.near(axes, f"p{percent}", (percentile, 0.02 + 0.1 * place), (2, 0), va="bottom")
    axes.set(xlabel="step time (ms)", ylabel="share of steps")
    return drawing.finished(figure)
