"""The floor of a step, against what can be counted by hand."""

from __future__ import annotations

import pytest

from benchmarks.ceilings import Work, work
from benchmarks.sides import Case
from hpc_utils.analyze.profiles.peaks import Peak

# The small CNN on 8x8 digits, a sample: what its backward pass needs, in bytes.
KEPT = {
    "image": 4 * 64,
    "first convolution, rectified": 4 * 32 * 64,
    "second, rectified": 4 * 64 * 64,
    "pooled, and from where": (4 + 8) * 64 * 16,
    "hidden": 4 * 128,
    "log-probabilities": 4 * 10,
    "label": 8,
}
MULTIPLICATIONS = 64 * 9 * 32 + 64 * 9 * 32 * 64 + 1024 * 128 + 128 * 10


def test_a_step_s_bytes_grow_by_what_each_sample_keeps() -> None:
    small, large = (work(Case("cnn", "digits", batch, 1, 0), "fp32") for batch in (4, 12))
    assert large.moved - small.moved == 2 * 8 * sum(KEPT.values())
    parameters = 32 * 9 + 32 + 64 * 32 * 9 + 64 + 1024 * 128 + 128 + 1280 + 10
    assert small.moved == pytest.approx(8 * 4 * parameters + 2 * 4 * sum(KEPT.values()), abs=64)
    # forward, and backward to weights and to inputs; the first layer has no gradient of its inputs
    assert large.flops == 12 * 2 * (3 * MULTIPLICATIONS - 64 * 9 * 32)


def test_half_the_bits_move_fewer_bytes_for_the_same_operations() -> None:
    case = Case("cnn", "digits", 64, 1, 0)
    full, half = work(case, "fp32"), work(case, "bf16")
    assert full.flops == half.flops
    assert 0.5 * full.moved < half.moved < 0.9 * full.moved


def test_the_floor_is_the_slower_of_computing_and_moving() -> None:
    ceiling = Peak("ten a second", "", {"fp32": 10.0}, 5.0, "here")
    assert Work(100.0, 10.0).floor(ceiling, "fp32") == 10.0
    assert Work(100.0, 10.0).bound(ceiling, "fp32") == "compute"
    assert Work(100.0, 100.0).floor(ceiling, "fp32") == 20.0
    assert Work(100.0, 100.0).bound(ceiling, "fp32") == "bytes"
    assert Work(100.0, 100.0).attained(40.0, ceiling, "fp32") == "25% of fp32 matmul, 50% of its floor"
