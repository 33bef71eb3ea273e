"""Figures of the interactive chapter: what they show of numbers that are known."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from hpc_utils.publish.plots import communication

pytestmark = pytest.mark.usefixtures("styled")


def bars(axes: Axes, colour: str) -> list[tuple[float, float]]:
    """Begin and end of every bar of that colour that has a width, in ms."""
    wanted = to_rgba(colour)
    return [
        (round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6))
        for bar in axes.patches
        if bar.get_facecolor() == wanted and bar.get_width() > 1e-9
    ]


def test_a_bucket_is_hidden_until_the_last_gradient_is_complete_and_exposed_after() -> None:
    one = {
        "ready": [("last", 0.002), ("first", 0.010)],
        "buckets": [(1000, 0.002, 0.005), (2000, 0.004, 0.013), (3000, 0.011, 0.012)],
        "end": 0.013,
    }
    figure = communication.backward({"small": one, "large": one | {"buckets": [(6000, 0.010, 0.020)]}})
    small, large = figure.axes
    assert bars(small, communication.BLUE) == [(2, 5), (4, 10)]
    assert bars(small, communication.ORANGE) == [(10, 13), (11, 12)]
    assert bars(large, communication.BLUE) == []
    assert bars(large, communication.ORANGE) == [(10, 20)]
    assert small.get_xlim()[1] >= 20, "both panels hold the longer pass"
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["small", "large"]


def test_gradients_meet_on_the_diagonal_after_the_all_reduce() -> None:
    before = np.random.default_rng(0).normal(size=(2, 1000))
    mean = before.mean(axis=0)
    figure = communication.gradients(before, [mean, mean], mean + 1e-9)
    left, middle, right = figure.axes
    first, second = (axes.collections[0].get_offsets() for axes in (left, middle))
    assert np.abs(first[:, 0] - first[:, 1]).max() > 1
    assert (second[:, 0] == second[:, 1]).all()
    assert left.get_xlim() == middle.get_ylim(), "to be compared"
    assert sum(bar.get_height() for bar in right.patches) == 1000


def test_gradients_that_agree_to_the_bit_can_be_drawn() -> None:
    vector = np.linspace(-1, 1, 50)
    communication.gradients([vector, -vector], [vector, vector], vector)
