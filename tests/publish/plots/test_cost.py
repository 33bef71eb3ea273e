"""The Pareto picture, from hand-made tables: what it must show."""

from __future__ import annotations

import matplotlib
import pandas as pd
import pytest

matplotlib.use("agg")


from hpc_utils.publish.plots import cost

from .test_runs import texts

pytestmark = pytest.mark.usefixtures("styled")


def table(**columns) -> pd.DataFrame:
    rows = [
        {"precision": precision, "parallel": "ddp" if world > 1 else "none", "world_size": world, "global_batch": 768,
         "wall_seconds": 9000.0 / world / speed, "cost": 1.0 + world / speed, "pareto": precision == "bf16", "repeats": 3}
        for precision, speed in (("fp32", 1), ("bf16", 2)) for world in (1, 4, 12)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    for name in ("wall_seconds", "cost"):
        frame[f"{name}_low"], frame[f"{name}_high"] = 0.9 * frame[name], 1.1 * frame[name]
    return frame.assign(**columns)


def test_points_are_named_by_devices_and_units_are_reported() -> None:
    shown = texts(cost.pareto(table(), "GPU-hours", title="15 epochs").figure)
    for part in (
        "1*",
        "12",
        "cost (GPU-hours)",
        "time (min)",
        "Pareto frontier",
        "without a group",
        "3 repeats",
        "15 epochs",
    ):
        assert part in shown
    assert "global batch" not in shown


def test_the_frontier_joins_those_on_it_and_only_they_are_filled() -> None:
    axes = cost.pareto(table(), "GPU-hours").figure.axes[0]
    line = next(one for one in axes.lines if one.get_label() == "Pareto frontier")
    assert line.get_xdata() == pytest.approx([9000 / 60 / 24, 9000 / 60 / 8, 75])
    assert axes.get_xscale() == "log"
    hollow = [one for one in axes.lines if one.get_markerfacecolor() == "white" and len(one.get_xdata()) == 3]
    assert hollow, "fp32 is beaten"


def test_names_of_points_that_lie_together_can_be_read() -> None:
    """Neither on each other nor on a point, also where points are told apart by less than a name is wide."""
    one = table().iloc[[0, 0, 0, 2]].assign(parallel=["none", "ddp", "ddp", "ddp"], global_batch=[768, 768, 128, 128])
    figure = cost.pareto(
        one.assign(wall_seconds=[100.0, 101, 99, 200], cost=[1.0, 1.01, 1.02, 3]), "GPU-hours"
    ).figure
    figure.canvas.draw()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["1*", "1", "1 (128)", "12 (128)"]
    assert not any(box.count_overlaps(boxes[:number]) for number, box in enumerate(boxes))
    points = [axes.transData.transform(text.xy) for text in axes.texts]
    assert not any(box.contains(*point) for box in boxes for point in points)


def test_nothing_to_draw_is_reported() -> None:
    assert cost.pareto(table().iloc[:0], "GPU-hours").figure is None
