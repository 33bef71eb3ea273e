"""Every side of the comparison of our own framework with PyTorch runs."""

from __future__ import annotations

import math

import pytest

from benchmarks import measure
from companions.mpi.benchmarks import mpi, mpi_step


@pytest.mark.soak  # the other tests have the same steps and loaders
@pytest.mark.parametrize(("kind", "count"), [("ours", 1), ("torch", 0), ("copy", 1)])
def test_each_loader_measures_something(kind: str, count: int) -> None:
    assert mpi._measured(kind, cores=1, dataset="digits", count=count, seconds=0) > 0


@pytest.mark.soak
def test_steps_stand_beside_ddps_with_their_share_of_the_roofline() -> None:
    rows = list(mpi_step.run(measure.Options(quick=True)))
    assert [row.variant for row in rows] == ["torch", "DDP, one rank", "ours"]
    for row in rows:
        assert 0 < row.min <= row.median <= row.max < math.inf and row.repeats == 2
        assert "images/s" in row.note and "of the fp32 roofline" in row.note and "nan" not in row.note
