"""Intervals of errors: over the repeats, the prediction fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpc_utils.analyze import misfit


def test_an_error_s_interval_is_that_of_its_repeats() -> None:
    off = misfit.estimate([1.1], [[0.9, 1.0, 1.1]], np.max)
    assert off.value == pytest.approx(0.1) and off.repeats == 3
    assert off.low == pytest.approx(0.0) and off.high == pytest.approx(1.1 / 0.9 - 1)


def test_the_same_twice() -> None:
    sides = [1.0, 2.0], [[1.0, 1.2, 1.1], [1.9, 2.2, 2.3]]
    assert misfit.estimate(*sides, np.median) == misfit.estimate(*sides, np.median)


def test_without_scatter_there_is_no_width() -> None:
    off = misfit.estimate([1.1, 2.0], [[1.0, 1.0], [2.0, 2.0]], np.max)
    assert off.low == off.value == off.high == pytest.approx(0.1)


def test_a_single_run_leaves_no_interval() -> None:
    off = misfit.estimate([1.1, 2.0], [[1.0], [2.0, 2.1]], np.max)
    assert math.isnan(off.low) and off.repeats == 1
