"""What tests read of a figure."""

from __future__ import annotations

import itertools

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text


def texts(figure: Figure) -> str:
    figure.canvas.draw()  # tick labels exist from then on
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def labels(figure: Figure) -> set[str]:
    """Of the legend above all panels."""
    return {text.get_text() for text in figure.legends[0].get_texts()}


def lines(axes: Axes) -> dict[str, Line2D]:
    """{label: line} of what has intervals."""
    return {container.get_label(): container.lines[0] for container in axes.containers}


def ends(axes: Axes) -> list[tuple[float, float]]:
    """Begin and end of every horizontal bar that has a width."""
    bars = [bar for bar in axes.patches if abs(bar.get_width()) > 1e-9]
    return [(round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6)) for bar in bars]


def uncovered(figure: Figure) -> bool:
    """All text is legible, no texts overlap, all lie within the figure, and the legend lies outside the panels."""
    figure.canvas.draw()
    assert all(text.get_fontsize() >= 8 for text in figure.findobj(Text))
    texts = [text for axes in figure.axes for text in (*axes.texts, axes.title) if text.get_text()]
    boxes = [text.get_window_extent() for text in [*texts, *filter(None, [figure._supxlabel])]]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 + 1 for box in boxes)
    for legend, axes in itertools.product(figure.legends, figure.axes):
        box = legend.get_window_extent()
        assert not box.overlaps(axes.get_window_extent()) and box.x0 >= 0 and box.x1 <= figure.bbox.x1
    return True
