"""Amdahl's and Gustafson's laws, fitted to data that follow them."""

from __future__ import annotations

import numpy as np
import pytest

from hpc_utils.analyze import laws

RANKS = np.array([1, 2, 4, 8, 16])


def test_amdahl_finds_the_serial_share_and_never_a_negative_one():
    fitted = laws.amdahl(RANKS, 2.0 * (0.1 + 0.9 / RANKS))
    assert fitted.seconds([1, 32]) == pytest.approx([2.0, 2.0 * (0.1 + 0.9 / 32)])
    assert fitted.formula == "2 s (10.0% serial)"
    assert "(0.0% serial)" in laws.amdahl(RANKS, 2.0 / RANKS**1.1).formula  # super-linear


def test_gustafson_finds_the_serial_share_of_equal_work_a_rank():
    fitted = laws.gustafson(RANKS, 0.5 * RANKS / (RANKS - 0.2 * (RANKS - 1)))
    assert fitted.seconds([1, 64]) == pytest.approx([0.5, 0.5 * 64 / (64 - 0.2 * 63)], rel=1e-3)
