"""An all-reduce's bandwidths."""

from __future__ import annotations

import pytest

from hpc_utils.collective import bandwidths


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """A row of all_reduce_perf on 4 ranks: 4218900 B in 1011.4 us are 4.17 and 6.26 GB/s."""
    algorithm, bus = bandwidths(4218900, 1011.4e-6, 4)
    assert algorithm / 1e9 == pytest.approx(4.17, abs=0.005)
    assert bus / 1e9 == pytest.approx(6.26, abs=0.005)
