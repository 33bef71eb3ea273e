"""Figures of the interactive chapter: what they show of numbers that are known."""

from __future__ import annotations

import numpy as np
import pytest

from hpc_utils.publish.plots import communication

from .figures import ends


def test_a_bucket_is_hidden_until_the_last_gradient_is_complete_and_exposed_after() -> None:
    one = {
        "ready": [("last", 0.002), ("first", 0.010)],
        "buckets": [(1000, 0.002, 0.005), (2000, 0.004, 0.013), (3000, 0.011, 0.012)],
        "end": 0.013,
    }
    figure = communication.backward({"small": one, "large": one | {"buckets": [(6000, 0.010, 0.020)]}})
    small, large = figure.axes
    assert ends(small)[1:] == [(2, 5), (4, 10), (10, 13), (11, 12)]
    assert ends(large)[1:] == [(10, 20)]
    assert small.get_xlim()[1] >= 20, "both panels hold the longer pass"
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["small", "large"]


@pytest.mark.parametrize("off", [1e-9, 0.0])
def test_gradients_meet_on_the_diagonal_after_the_all_reduce(off: float) -> None:
    before = np.random.default_rng(0).normal(size=(2, 1000))
    mean = before.mean(axis=0)
    left, middle, right = communication.gradients(before, [mean, mean], mean + off).axes
    first, second = (axes.collections[0].get_offsets() for axes in (left, middle))
    assert np.abs(first[:, 0] - first[:, 1]).max() > 1
    assert (second[:, 0] == second[:, 1]).all()
    assert left.get_xlim() == middle.get_ylim(), "to be compared"
    assert sum(bar.get_height() for bar in right.patches) == (1000 if off else 0)


def test_each_kind_of_pass_has_a_row() -> None:
    (axes,) = communication.backward_times({"with": [0.1, 0.2, 0.3], "without": [0.1]}).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["with", "without"]
