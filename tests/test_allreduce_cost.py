"""Bandwidths of collectives."""

from __future__ import annotations

import pytest

from hpc_utils.allreduce_cost import bandwidths, evenly, traffic


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """A row of all_reduce_perf on 4 ranks: 4218900 B in 1011.4 us are 4.17 and 6.26 GB/s."""
    algorithm, bus = bandwidths(4218900, 1011.4e-6, 4)
    assert algorithm / 1e9 == pytest.approx(4.17, abs=0.005)
    assert bus / 1e9 == pytest.approx(6.26, abs=0.005)


def test_the_traffic_of_a_rank() -> None:
    """doc/PERFORMANCE.md of nccl-tests."""
    assert [traffic(one, 4) for one in ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce")] == [
        1.5, 0.75, 0.75, 1.0, 1.0,
    ]  # fmt: skip
    with pytest.raises(KeyError):
        traffic("all-to-all", 4)


def test_ranks_are_spread_evenly_over_the_fewest_nodes():
    assert evenly(12, 8) == (2, 6) and evenly(8, 8) == (1, 8) and evenly(7, 4) == (7, 1) and evenly(1, 4) == (1, 1)
