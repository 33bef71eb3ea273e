"""Charts of the interactive chapter: gradients before and after the all-reduce, and when they travel in a backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import drawing, style


def gradients(before: Sequence[Any], after: Sequence[Any], reference: Any) -> Figure:
    """Every parameter's gradient on rank 0 against rank 1, before and after the all-reduce, and the distance to `reference`.

    Args:
        before, after: one vector for each rank. reference: the gradient of the whole batch on one process.

    The axes hold all but one in a thousand of the parameters.
    """
    figure, ((left, middle, right),) = drawing.panels(3, height=1.95)
    before, after = map(np.stack, (before, after))
    limit = np.quantile(np.abs(before[:2]), 0.9995)
    for axes, vectors, title in ((left, before, "before the all-reduce"), (middle, after, "after it")):
        axes.axline((0, 0), slope=1, **style.IDEAL)
        axes.scatter(
            vectors[0], vectors[1], s=1.5, color=style.ROLES["main"], alpha=0.2, linewidths=0, rasterized=True
        )
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), title=title, xlabel="gradient on rank 0")
    left.set_ylabel("gradient on rank 1")
    difference = np.abs(after[0].astype(float) - np.asarray(reference, dtype=float))
    if distances := difference[difference > 0].tolist():
        import seaborn  # here: it takes a second

        seaborn.histplot(distances, bins=16, log_scale=True, color=style.ROLES["main"], ax=right)
    right.set(title="distance to one process", xlabel="|averaged − whole batch|", ylabel="parameters")
    return figure


def backward(passes: Mapping[str, Mapping[str, Any]]) -> Figure:
    """A panel for each backward pass, as `interactive.backward.watch` returns it, with its key as title."""
    size = (style.PAGE, 0.8 + 1.1 * len(passes))
    figure, panels = plt.subplots(len(passes), 1, figsize=size, sharex=True, squeeze=False)
    for axes, (title, timings) in zip(panels.flat, passes.items(), strict=True):
        _one_pass(axes, timings)
        axes.set_title(title, loc="left")
    panels.flat[-1].set_xlabel("time since the backward pass began (ms)")
    return drawing.finished(figure)


def _one_pass(axes: Axes, timings: Mapping[str, Any]) -> None:
    """Above the computation with its gradients, below the all-reduce of each bucket, in ms."""
    ready = [1e3 * second for _, second in timings["ready"]]
    axes.barh(0, max(ready), 0.5, color="0.85")
    axes.plot(ready, [0] * len(ready), "|", color=style.ROLES["ink"], markersize=11, label="a gradient is complete")
    sizes, started, ended = np.array(timings["buckets"]).T * [[1e-3], [1e3], [1e3]]  # kB, ms
    turn = np.clip(max(ready), started, ended)  # exposed from here on
    for name, left, right in (("hidden behind compute", started, turn), ("exposed", turn, ended)):
        axes.barh(1, right - left, 0.5, left=left, **style.fill(name))
    for size, place in zip(sizes, (started + ended) / 2, strict=True):
        drawing.near(axes, f"{size:,.0f} kB", (place, 1.3), (0, 0), ha="center", va="top")
    drawing.named_rows(axes, ["computation", "all-reduce"])
    axes.set_ylim(1.9, -0.4)


def backward_times(seconds: Mapping[str, Sequence[float]]) -> Figure:
    """The times of many backward passes of each kind: every pass as a mark, quartiles and median."""
    import seaborn

    times = {kind: 1e3 * np.array(passes) for kind, passes in seconds.items()}
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.6 + 0.5 * len(seconds)))
    look = {"orient": "h", "ax": axes}
    seaborn.boxplot(times, **look, width=0.35, showfliers=False, color=style.ROLES["main"], boxprops={"alpha": 0.5})
    seaborn.stripplot(times, **look, size=2, color=style.ROLES["ink"], alpha=0.6)
    axes.set_xlabel("backward pass (ms): all passes, quartiles, median")
    return figure
