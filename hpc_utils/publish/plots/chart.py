"""What a plot returns: the figure, the data drawn, a name and a caption."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Chart:
    """`data`: the plotted data, written as CSV. `runs`: ids of the runs behind it; None: those in the columns of `data` that
    hold run ids, or all runs of its chapter."""

    figure: Figure | None
    data: pd.DataFrame
    name: str
    caption: str
    runs: tuple[str, ...] | None = None

    @classmethod
    def drawn(
        cls, draw: Callable[..., Figure], what: Any, name: str, caption: str, *, data: pd.DataFrame | None = None, runs: Iterable[str] | None = None
    ) -> Chart:  # fmt: skip
        """`draw(what)`, unless `data` is empty. `data`: the plotted data, if not `what` itself."""
        data = what if data is None else data
        return cls(None if data.empty else draw(what), data, name, caption, None if runs is None else tuple(runs))

    def of(self, runs: Iterable[str]) -> Chart:
        """The same, resting on these runs."""
        return replace(self, runs=tuple(dict.fromkeys(runs)))

    def named(self, prefix: str) -> Chart:
        """The same, its name behind `prefix`."""
        return replace(self, name=f"{prefix}-{self.name}")


def charted(name: str, caption: str) -> Callable[[Callable[..., Figure]], Callable[..., Chart]]:
    """A function that draws its first argument, a frame, returns a `Chart` of this name and caption; without a figure if
    the frame is empty."""

    def decorate(draw: Callable[..., Figure]) -> Callable[..., Chart]:
        @functools.wraps(draw)
        def drawn(data: pd.DataFrame, *others: object, **options: object) -> Chart:
            figure = None if data.empty else draw(data, *others, **options)
            return Chart(figure, data, name, caption)

        return drawn

    return decorate
