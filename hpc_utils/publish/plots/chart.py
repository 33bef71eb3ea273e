"""What a plot returns: the figure, the data drawn, a name and a caption."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.figure import Figure

from . import drawing


@dataclass(frozen=True)
class Chart:
    """`data`: the plotted data, written as CSV. `runs`: ids of the runs behind it; None: those in the columns of `data` that
    hold run ids, or all runs of its chapter."""

    figure: Figure | None
    data: pd.DataFrame
    name: str
    caption: str
    runs: tuple[str, ...] | None = None

    def of(self, runs: Iterable[str], **changes: str) -> Chart:
        """The same, resting on these runs; with another `name` or `caption`."""
        return replace(self, runs=tuple(dict.fromkeys(runs)), **changes)

    def named(self, prefix: str) -> Chart:
        """The same, its name behind `prefix`."""
        return replace(self, name=f"{prefix}-{self.name}")


def charted(
    name: str, caption: str, *, intervals: bool = True, ratios: bool = False
) -> Callable[[Callable[..., Figure]], Callable[..., Chart]]:
    """A function that draws its first argument, a frame, returns a `Chart` of this name and caption, with a legend and a note on
    its intervals, if it draws `intervals`, of `ratios`; without a figure if the frame is empty."""

    def decorate(draw: Callable[..., Figure]) -> Callable[..., Chart]:
        @functools.wraps(draw)
        def drawn(data: pd.DataFrame, *arguments: object, **options: object) -> Chart:
            if data.empty:
                return Chart(None, data, name, caption)
            note = drawing.interval(data, ratios=ratios) if intervals and "repeats" in data else ""
            return Chart(drawing.finished(draw(data, *arguments, **options), note), data, name, caption)

        return drawn

    return decorate
