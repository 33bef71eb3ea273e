"""All-reduce: what its bandwidth is compared with."""

from __future__ import annotations

import pytest

from hpc_utils.probe import allreduce
from hpc_utils.probe.check import Verdict

from .conftest import seen

MIB = 2**20


def rank(gbit: float, ranks: int = 2, **more: object) -> dict:
    """A rank of `ranks` on as many nodes, with 64 MiB at a bus bandwidth of `gbit`."""
    seconds = 64 * MIB * 2 * (ranks - 1) / ranks * 8 / (gbit * 1e9)
    sizes = [{"bytes": MIB, "seconds": 1.0}, {"bytes": 64 * MIB, "seconds": seconds}]
    facts = {"ranks": ranks, "nodes": ranks, "backend": "nccl", "sizes": sizes, "busy": 0.1}
    return facts | {"link_gbit": None, "links": {"mlx5_0": 100.0}} | more


@pytest.mark.parametrize(("gbit", "verdict"), [(95, Verdict.PASS), (61, Verdict.PASS), (59, Verdict.FAIL)])
def test_sixty_percent_of_the_link_are_enough(gbit, verdict) -> None:
    assert allreduce.judge(seen(rank(gbit), rank(gbit))).verdict is verdict


def test_what_one_says_the_link_is_counts_more_than_the_system() -> None:
    told = rank(50, link_gbit=50.0)
    found = allreduce.judge(seen(told, told))
    assert found.verdict is Verdict.PASS
    assert "50 Gbit/s (--link-gbit)" in found.expected


def test_several_adapters_of_a_node_add_up_and_the_weakest_node_decides() -> None:
    one, other = {"mlx5_0": 200.0}, {"mlx5_1": 200.0}
    strong = [rank(200, 4, links=one, nodes=2), rank(200, 4, links=other, nodes=2)]
    weak = [rank(200, 4, links=one, nodes=2), rank(200, 4, links=one, nodes=2)]
    assert "of 400 Gbit/s" in allreduce.judge(seen(*strong, *strong, per_node=2)).expected
    assert "of 200 Gbit/s" in allreduce.judge(seen(*strong, *weak, per_node=2)).expected


@pytest.mark.parametrize("links", [{}, {"eth0": None}])
def test_a_link_that_does_not_tell_its_speed_is_unknown(links) -> None:
    found = allreduce.judge(seen(rank(50, links=links), rank(50, links=links)))
    assert found.verdict is Verdict.UNKNOWN
    assert "--link-gbit" in found.fix


@pytest.mark.parametrize(("busy", "verdict"), [(0.9, Verdict.UNKNOWN), (0.2, Verdict.FAIL), (None, Verdict.FAIL)])
def test_gloo_limited_by_its_processor_says_nothing_about_the_link(busy, verdict) -> None:
    slow = rank(5, backend="gloo", busy=busy)
    assert allreduce.judge(seen(slow, slow)).verdict is verdict


def test_nccl_is_not_excused_by_a_busy_processor() -> None:
    assert allreduce.judge(seen(rank(5, busy=2.0), rank(5, busy=2.0))).verdict is Verdict.FAIL


def test_inside_one_node_it_is_measured_and_not_judged() -> None:
    found = allreduce.judge(seen(rank(9, nodes=1), rank(9, nodes=1), per_node=2))
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "9.0 Gbit/s" in found.measured
    assert allreduce.judge(seen(rank(1, ranks=2, nodes=1) | {"ranks": 1})).verdict is Verdict.NOT_APPLICABLE
