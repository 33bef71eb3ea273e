"""Nodes that differ in code, torch, data or time."""

from __future__ import annotations

import pytest

from hpc_utils.probe import agreement, data
from hpc_utils.probe.bench import Bench, Options
from hpc_utils.probe.check import Verdict

from .conftest import seen

SOFTWARE = {"digest": "a1", "torch": "2.13.0", "CUDA": "12.6", "NCCL": "2.28.9", "Python": "3.11.7", "nodes": 2}


def test_nodes_with_the_same_software_pass() -> None:
    assert agreement.judge_software(seen(SOFTWARE, SOFTWARE)).verdict is Verdict.PASS


@pytest.mark.parametrize("what", ["digest", "torch", "CUDA", "NCCL", "Python"])
def test_a_node_with_other_software_is_named(what) -> None:
    found = agreement.judge_software(seen(SOFTWARE, SOFTWARE, SOFTWARE | {what: "other"}))
    assert found.verdict is Verdict.FAIL
    assert found.where == "node2 rank 2"
    assert what in found.measured
    assert "other" in found.measured


def test_this_nodes_software_is_known() -> None:
    facts = agreement.look_software(Bench(Options(), exchange=None))
    assert all(facts[what] for what in ("digest", "torch", "Python"))


@pytest.mark.parametrize(
    ("offsets", "verdict", "where"),
    [
        ([0, 0.01, 0], Verdict.PASS, ""),
        ([0, 0.9, 0], Verdict.PASS, ""),
        ([0, 0, 7200], Verdict.FAIL, "node2 rank 2"),
        ([0, -1.5, 0], Verdict.FAIL, "node1 rank 1"),
    ],
)
def test_clocks_may_differ_by_a_second(offsets, verdict, where) -> None:
    times = [{"nodes": 3, "times": [1e9 + offset, 1e9 + 1 + offset]} for offset in offsets]
    found = agreement.judge_clock(seen(*times))
    assert (found.verdict, found.where) == (verdict, where)


def test_a_rank_that_leaves_one_barrier_late_has_no_other_time() -> None:
    """The least of the rounds counts: being late only adds."""
    found = agreement.judge_clock(seen({"nodes": 2, "times": [10.0, 20.0]}, {"nodes": 2, "times": [13.0, 20.1]}))
    assert found.verdict is Verdict.PASS
    assert found.measured == "100.0 ms"


def test_one_node_has_one_clock() -> None:
    assert agreement.judge_clock(seen({"nodes": 1, "times": [1.0]})).verdict is Verdict.NOT_APPLICABLE


def test_data_sets_are_on_all_nodes_or_on_none() -> None:
    both, one = {"here": ["cifar10", "digits"]}, {"here": ["digits"]}
    assert data.judge(seen(both, both)).verdict is Verdict.PASS
    found = data.judge(seen(both, one))
    assert (found.verdict, found.where) == (Verdict.FAIL, "node1 rank 1")
    assert "HPC_DATA" in found.fix
    assert data.judge(seen({"here": []})).verdict is Verdict.UNKNOWN


def test_the_embedded_data_set_is_here() -> None:
    assert "digits" in data.look(Bench(Options(), exchange=None))["here"]
