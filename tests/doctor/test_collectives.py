"""All-reduce against the link's nominal speed, and clocks of several nodes."""

from __future__ import annotations

import pytest

from hpc_utils.doctor import collectives
from hpc_utils.doctor.check import Verdict

from .conftest import seen

MIB = 2**20


def rank(gbit: float, ranks: int = 2, **more: object) -> dict:
    """A rank of `ranks` on as many nodes, with 64 MiB at a bus bandwidth of `gbit`."""
    seconds = 64 * MIB * 2 * (ranks - 1) / ranks * 8 / (gbit * 1e9)
    sizes = [{"bytes": MIB, "seconds": [1.0]}, {"bytes": 64 * MIB, "seconds": [seconds]}]
    facts = {"ranks": ranks, "nodes": ranks, "backend": "nccl", "sizes": sizes, "busy": 0.1}
    return facts | {"link_gbit": None, "links": {"mlx5_0": 100.0}} | more


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (rank(95), Verdict.PASS),
        (rank(61), Verdict.PASS),  # 60 % of the link is enough
        (rank(59), Verdict.FAIL),
        (rank(50, link_gbit=50.0), Verdict.PASS),  # the option counts more than the system
        (rank(50, links={}), Verdict.UNKNOWN),
        (rank(50, links={"eth0": None}), Verdict.UNKNOWN),
        (rank(5, backend="gloo", busy=0.9), Verdict.UNKNOWN),  # limited by the processor
        (rank(5, backend="gloo", busy=0.2), Verdict.FAIL),
        (rank(5, busy=2.0), Verdict.FAIL),
        (rank(9, nodes=1), Verdict.NOT_APPLICABLE),
    ],
)
def test_bandwidth_against_the_link(facts, verdict) -> None:
    assert collectives.judge_all_reduce(seen(facts, facts)).verdict is verdict


def test_several_adapters_of_a_node_add_up_and_the_slowest_node_decides() -> None:
    one, other = {"mlx5_0": 200.0}, {"mlx5_1": 200.0}
    strong = [rank(200, 4, links=one, nodes=2), rank(200, 4, links=other, nodes=2)]
    weak = [rank(200, 4, links=one, nodes=2), rank(200, 4, links=one, nodes=2)]
    assert "of 400 Gbit/s" in collectives.judge_all_reduce.of(seen(*strong, *strong, per_node=2)).expected
    assert "of 200 Gbit/s" in collectives.judge_all_reduce.of(seen(*strong, *weak, per_node=2)).expected


@pytest.mark.parametrize(
    ("offsets", "verdict", "where"),
    [
        ([0, 0.9, 0], Verdict.PASS, ""),
        ([0, 0, 7200], Verdict.FAIL, "node2 rank 2"),
        ([0, -1.5, 0], Verdict.FAIL, "node1 rank 1"),
    ],
)
def test_clocks_may_differ_by_a_second(offsets, verdict, where) -> None:
    times = [{"times": [1e9 + offset, 1e9 + 1 + offset]} for offset in offsets]
    found = collectives.judge_clock(seen(*times))
    assert (found.verdict, found.where) == (verdict, where)


def test_a_rank_that_leaves_one_barrier_late_has_the_same_time() -> None:
    """The smallest difference of the rounds counts: being late only adds."""
    found = collectives.judge_clock(seen({"times": [10.0, 20.0]}, {"times": [13.0, 20.1]}))
    assert (found.verdict, found.measured) == (Verdict.PASS, "100.0 ms")


def test_a_refused_group_is_distinguished_from_one_that_does_not_form() -> None:
    refused = collectives.judge_join({"error": "too few GPUs", "refused": True})
    lost = collectives.judge_join({"error": "timeout", "refused": False})
    assert refused.verdict is lost.verdict is Verdict.FAIL
    assert "GLOO_SOCKET_IFNAME" in lost.fix and "GLOO_SOCKET_IFNAME" not in refused.fix
