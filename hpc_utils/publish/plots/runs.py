"""The study's figures, each from a frame of `analyze`; they draw what they are given and compute nothing.

Curves against the number of ranks are in `scaling_figures`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from . import drawing, style
from .chart import charted


@charted("throughput", "Training throughput of every configuration.")
def throughput(table: pd.DataFrame) -> Figure:
    """Throughput of every configuration with its 95 % interval. `table` as of `scaling.throughput`."""
    table = table.sort_values(["world_size", "parallel", "global_batch"], ascending=[True, False, True])
    more = drawing.apart(table)
    rungs = list(dict.fromkeys(_layout(row) + drawing.more(row, more) for row in table.itertuples()))
    precisions = drawing.ordered(table.precision)
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.55 + 0.48 * len(rungs)))
    height = 0.8 / len(precisions)
    for number, precision in enumerate(precisions):
        rows = table[table.precision == precision]
        places = [
            rungs.index(_layout(row) + drawing.more(row, more)) + (number - (len(precisions) - 1) / 2) * height
            for row in rows.itertuples()
        ]
        axes.barh(
            places,
            rows.throughput,
            height=height * 0.92,
            color=style.COLOURS[precision],
            hatch=None if number == 0 else "////",
            edgecolor="white",
            linewidth=0.5,
            label=precision,
        )
        axes.errorbar(
            rows.throughput, places, xerr=drawing.bars(rows, "throughput"), fmt="none", ecolor="0.15", elinewidth=0.9
        )
        for place, row in zip(places, rows.itertuples(), strict=True):
            end = row.high if pd.notna(row.high) else row.throughput
            axes.annotate(
                f"{row.throughput:,.0f}", (end, place), (4, 0), textcoords="offset points", va="center", fontsize=7
            )
    axes.set_yticks(range(len(rungs)), rungs)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel(f"training throughput (samples/s), {drawing.interval(table)}")
    axes.legend(title=None, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(precisions), borderaxespad=0.2)
    return figure


@charted("accuracy", "Test accuracy over the epochs: every run by itself, and the median.")
def accuracy(epochs: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """Test accuracy over epochs and over training time: the median run bold, every repeat thin.

    One panel a layout, so that what changes the global batch is compared with its like.
    """
    joined = epochs.merge(
        runs[["run_id", "parallel", "world_size", "global_batch", "precision", "repeat"]], on="run_id"
    )
    joined = joined.dropna(subset=["test_accuracy"])
    layouts = list(
        joined[["world_size", "parallel", "global_batch"]]
        .drop_duplicates()
        .sort_values(["world_size", "parallel", "global_batch"], ascending=[True, False, True])
        .itertuples(index=False)
    )
    figure, grid = plt.subplots(1, len(layouts), figsize=(style.PAGE, 2.1), sharey=True, squeeze=False)
    for axes, layout in zip(grid[0], layouts, strict=True):
        chosen = joined[
            (joined.world_size == layout.world_size)
            & (joined.parallel == layout.parallel)
            & (joined.global_batch == layout.global_batch)
        ]
        for precision in drawing.ordered(chosen.precision):
            rows = chosen[chosen.precision == precision]
            look = {"color": style.COLOURS[precision], "linestyle": style.LINES[precision]}
            for _, one in rows.groupby("run_id"):
                axes.plot(one.epoch, one.test_accuracy, linewidth=0.5, alpha=0.5, **look)
            middle = rows.groupby("epoch").test_accuracy.median()
            axes.plot(middle.index, middle, marker=style.MARKERS[precision], markersize=3, label=precision, **look)
        axes.set_title(_layout(layout).replace(", ", "\n"), fontsize=7.5)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    grid[0][0].set_ylabel("test accuracy")
    grid[0][0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    grid[0][-1].legend(loc="lower right")
    return figure


def _layout(row) -> str:
    """`1 rank without a group, batch 512`."""
    ranks = f"{row.world_size} rank{'s' if row.world_size > 1 else ''}"
    group = "no group" if row.parallel == "none" else row.parallel.upper()
    over = f" ({row.layout})" if getattr(row, "nodes", 1) > 1 else ""
    return f"{ranks}{over} {group}, batch {row.global_batch:g}"


def training(epochs: pd.DataFrame) -> Figure:
    """One run: loss and accuracy over epochs, and where a mean step's time goes."""
    figure, (curves, phases) = plt.subplots(1, 2, figsize=(style.PAGE, 2.3), width_ratios=(3, 2))
    if epochs.train_loss.notna().any():
        curves.plot(epochs.epoch, epochs.train_loss, "-o", color="0.35", markersize=3, label="training loss")
    else:
        curves.annotate(
            "no loss: nothing was trained", (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.35"
        )
    if epochs.test_loss.notna().any():
        curves.plot(epochs.epoch, epochs.test_loss, "--s", color="0.35", markersize=3, label="test loss")
    curves.set_xlabel("epoch")
    curves.set_ylabel("loss")
    curves.set_ylim(bottom=0)
    curves.xaxis.get_major_locator().set_params(integer=True)
    if epochs.test_accuracy.notna().any():
        accuracy = curves.twinx()
        accuracy.plot(epochs.epoch, epochs.test_accuracy, "-^", color=style.ROLES["main"], markersize=3)
        accuracy.set_ylabel("test accuracy", color=style.ROLES["main"])
        accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        accuracy.set_ylim(0, 1.02)
        accuracy.grid(visible=False)
        accuracy.spines["right"].set_visible(True)
    if curves.lines:
        curves.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)

    names = ["data", "forward", "backward", "optimizer"]
    means = [1e3 * epochs[f"{name}_seconds"].mean() for name in names]
    shades = [style.ROLES[name] for name in names]
    phases.barh(names, means, color=shades, edgecolor="white")
    for place, value in enumerate(means):
        phases.annotate(f"{value:.2f}", (value, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
    phases.invert_yaxis()
    phases.grid(axis="y", visible=False)
    phases.margins(x=0.15)
    phases.set_xlabel("ms a step, mean of the sampled steps")
    return figure


def step_times(steps: pd.DataFrame) -> Figure:
    """One run: how step times are distributed, one curve a rank. `steps` as of a run's `steps.csv.gz`."""
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.1))
    ranks = sorted(set(steps["rank"]))
    for number, rank in enumerate(ranks):
        ordered = 1e3 * steps.seconds[steps["rank"] == rank].sort_values()
        share = [(position + 1) / len(ordered) for position in range(len(ordered))]
        look = {"color": plt.cm.cividis(number / max(1, len(ranks))), "linestyle": ["-", "--", ":", "-."][number % 4]}
        axes.step(ordered, share, where="post", label=f"rank {rank}" if len(ranks) <= 8 else None, **look)
    for percent in (0.5, 0.95, 0.99):
        axes.axvline(1e3 * steps.seconds.quantile(percent), color="0.6", linewidth=0.7, linestyle=":")
        axes.annotate(
            f"p{percent * 100:.0f}", (1e3 * steps.seconds.quantile(percent), 0.02), (2, 0),
            textcoords="offset points", fontsize=7, color="0.35",
        )  # fmt: skip
    axes.set_xlabel("step time (ms)")
    axes.set_ylabel("share of steps")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(0, 1.02)
    if 1 < len(ranks) <= 8:
        axes.legend(loc="upper left")
    return figure
