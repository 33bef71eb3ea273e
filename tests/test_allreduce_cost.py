"""Bandwidths of collectives."""

from __future__ import annotations

import math

import pytest

from hpc_utils.allreduce_cost import Link, Topology, bandwidths, cheapest, evenly, hierarchical, ring, traffic, tree


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """A row of all_reduce_perf on 4 ranks: 4218900 B in 1011.4 us are 4.17 and 6.26 GB/s."""
    algorithm, bus = bandwidths(4218900, 1011.4e-6, 4)
    assert algorithm / 1e9 == pytest.approx(4.17, abs=0.005)
    assert bus / 1e9 == pytest.approx(6.26, abs=0.005)


def test_the_traffic_of_a_rank() -> None:
    """doc/PERFORMANCE.md of nccl-tests."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce")
    assert [traffic(kind, 4) for kind in kinds] == [1.5, 0.75, 0.75, 1.0, 1.0]


def test_ranks_are_spread_evenly_over_the_fewest_nodes():
    assert evenly(12, 8) == (2, 6) and evenly(8, 8) == (1, 8) and evenly(7, 4) == (7, 1) and evenly(1, 4) == (1, 1)


def topology(ranks: int, latency: float = 0.0) -> Topology:
    return Topology(ranks, 1, Link(latency, 1e9), Link(0.0, math.inf))


def test_a_ring_moves_every_byte_but_one_share_twice() -> None:
    assert ring(8e6, topology(4)) == pytest.approx(2 * 3 / 4 * 8e6 / 1e9)
    assert ring(8e6, topology(4, latency=1e-3)) == pytest.approx(0.012 + 6 * 1e-3)
    assert ring(8e6, topology(1)) == tree(8e6, topology(1)) == hierarchical(8e6, topology(1)) == 0


def test_the_cheapest_depends_on_size_ranks_and_nodes() -> None:
    slow, fast = Link(50e-6, 1e9), Link(5e-6, 100e9)
    flat = Topology(64, 1, slow, fast)
    assert cheapest(1e3, flat)[0] == "tree" and cheapest(1e9, flat)[0] != "tree"
    nodes = Topology(4, 8, slow, fast)
    name, seconds = cheapest(1e8, nodes)
    assert name == "hierarchical" and seconds < ring(1e8, nodes)
