"""Charts of the interactive chapter: gradients before and after the all-reduce, and when they travel in a backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from . import drawing, style
from .style import BLUE, ORANGE

EXPOSED = {"hatch": "////", "edgecolor": "white"}


def gradients(before: Sequence[Any], after: Sequence[Any], whole: Any) -> Figure:
    """Every parameter's gradient on rank 0 against rank 1, before and after the all-reduce, and its distance to `whole`.

    Args:
        before, after: one vector for each rank. whole: the gradient of the whole batch on one process.

    The axes hold all but one in a thousand of the parameters.
    """
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(style.PAGE, 2.45))
    limit = np.quantile(np.abs(np.concatenate([np.asarray(vector) for vector in before[:2]])), 0.9995)
    for axes, vectors, colour, title in (
        (left, before, ORANGE, "before the all-reduce"),
        (middle, after, BLUE, "after it"),
    ):
        axes.axline((0, 0), slope=1, **style.IDEAL)
        axes.scatter(vectors[0], vectors[1], s=1.5, color=colour, alpha=0.2, linewidths=0, rasterized=True)
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), title=title)
        axes.set(xlabel="gradient on rank 0", ylabel="gradient on rank 1")
    difference = np.abs(np.asarray(after[0], dtype=float) - np.asarray(whole, dtype=float))
    shown = difference[difference > 0]
    if shown.size:
        right.hist(shown, bins=np.geomspace(shown.min(), shown.max(), 16), color=BLUE)
        right.set_xscale("log")
    else:
        right.text(0.5, 0.5, "none: the same bits", transform=right.transAxes, ha="center")
    drawing.thousands(right.yaxis)
    right.set(title="distance to one process", xlabel="|averaged − whole batch|", ylabel="parameters")
    for axes in (left, middle, right):
        axes.set_box_aspect(1)
    return figure


def backward(passes: Mapping[str, Mapping[str, Any]]) -> Figure:
    """A panel for each backward pass, as `interactive.backward.watch` returns it, with its key as title."""
    size = (style.PAGE, 0.8 + 1.1 * len(passes))
    figure, panels = plt.subplots(len(passes), 1, figsize=size, sharex=True, squeeze=False)
    for axes, (title, one) in zip(panels.flat, passes.items(), strict=True):
        _one_pass(axes, one)
        axes.set_title(title, loc="left")
    panels.flat[-1].set_xlabel("time since the backward pass began (ms)")
    panels.flat[-1].set_xlim(0, 1.05e3 * max(end for one in passes.values() for *_, end in one["buckets"]))
    legend = [
        Line2D([], [], color="0.15", marker="|", markersize=9, linestyle="none", label="a gradient is complete"),
        Patch(color=BLUE, label="all-reduce, hidden"),
        Patch(facecolor=ORANGE, label="all-reduce, exposed", **EXPOSED),
    ]
    figure.legend(handles=legend, loc="outside upper right", ncols=len(legend))
    return figure


def _one_pass(axes: Axes, one: Mapping[str, Any]) -> None:
    """Above the computation with its gradients, below the all-reduce of each bucket, in ms."""
    ready = [1e3 * second for _, second in one["ready"]]
    axes.barh(1, max(ready), height=0.5, color="0.85")
    axes.plot(ready, [1] * len(ready), "|", color="0.15", markersize=11, markeredgewidth=1)
    for size, *ends in one["buckets"]:
        started, ended = (1e3 * end for end in ends)
        turn = min(max(started, max(ready)), ended)  # exposed from here on
        axes.barh(0, turn - started, left=started, height=0.5, color=BLUE)
        axes.barh(0, ended - turn, left=turn, height=0.5, color=ORANGE, **EXPOSED)
        drawing.near(axes, f"{size / 1e3:,.0f} kB", ((started + ended) / 2, -0.25), (0, -2), ha="center", va="top")
    axes.set_yticks([1, 0], ["computation", "buckets"])
    axes.set_ylim(-0.95, 1.5)
    axes.grid(axis="y", visible=False)


def backward_times(seconds: Mapping[str, Sequence[float]]) -> Figure:
    """The times of many backward passes of each kind: every pass as a dot, quartiles and median; the slower kind above."""
    ordered = sorted(seconds.items(), key=lambda one: np.median(one[1]))
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.6 + 0.5 * len(ordered)))
    spread = np.random.default_rng(0)
    for place, (_, values) in enumerate(ordered):
        times = 1e3 * np.asarray(values)
        low, middle, high = np.percentile(times, [25, 50, 75])
        axes.scatter(times, place + spread.uniform(-0.18, 0.18, len(times)), s=4, color="0.6", linewidths=0)
        axes.plot([low, high], [place, place], color=BLUE, linewidth=4, solid_capstyle="butt")
        axes.plot(middle, place, "o", color="white", markeredgecolor=BLUE, markersize=5)
        drawing.near(axes, f"{middle:.1f} ms", (middle, place + 0.2), (0, 1), ha="center", va="baseline")
    axes.set_yticks(range(len(ordered)), [kind for kind, _ in ordered])
    axes.set_ylim(-0.4, len(ordered) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("backward pass (ms): all passes, quartiles, median")
    return figure
