"""Two real nodes on one machine: names, interfaces, a link of known speed, results that are shared or not."""

from __future__ import annotations

import pytest

from hpc_utils.doctor.collectives import BUSY, ENOUGH

from .conftest import Doctor, Examined

pytestmark = [pytest.mark.usefixtures("namespaces"), pytest.mark.soak]  # tests/slurm has two nodes in CI


@pytest.fixture(scope="module")
def healthy(doctors, namespaces) -> Examined:
    return doctors().two_nodes("--link-gbit=1", rate="1gbit")


@pytest.fixture(scope="module")
def sick(doctors, namespaces) -> Examined:
    """The link is slower than it says, the second node keeps its own results and does not know the first."""
    doctor: Doctor = doctors()
    other = doctor.folder / "hosts-of-b"
    other.write_text("127.0.0.1 localhost\n10.99.0.2 nodeb\n")
    on_b = f"mount --bind {other} /etc/hosts; mount -t tmpfs -o size=64m tmpfs {doctor.results}"
    return doctor.two_nodes(rate="1gbit", on_b=on_b)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ranks", "2 of 2 ranks started"),
        ("software", "torch"),
        ("shared results", "seen by 2 nodes"),
        ("names", "own name on eth1, all nodes known"),
        ("process group", "gloo, 2 rank(s)"),
        ("interface", "gloo over eth1"),
        ("clock skew", "ms"),
    ],
)
def test_two_healthy_nodes_pass(healthy, name, says) -> None:
    assert healthy.verdict(name) == "pass", healthy.out + healthy.err
    assert says in healthy[name]["measured"]


def test_a_link_of_one_gigabit_is_measured_as_such(healthy) -> None:
    assert healthy.verdict("all-reduce") in ("pass", "unknown"), "unknown only where this machine is too busy"
    for facts in healthy.report["saw"]["all-reduce"].values():
        largest = facts["sizes"][-1]
        gbit = largest["bytes"] * 8 / largest["seconds"][0] / 1e9  # two ranks: bus bandwidth is algorithm bandwidth
        assert gbit < 1.3
        assert gbit > ENOUGH or facts["busy"] > BUSY


def test_a_link_slower_than_its_interface_says_fails(sick) -> None:
    assert "of 10 Gbit/s (eth1)" in sick["all-reduce"]["expected"]
    assert sick.verdict("all-reduce") in ("fail", "unknown"), "unknown only where this machine is too busy"


def test_results_that_are_not_shared_fail_and_name_the_node(sick) -> None:
    assert sick.verdict("shared results") == "fail"
    assert sick["shared results"]["where"] == "nodeb rank 1"
    assert sick.verdict("results folder") == "fail"
    assert "tmpfs" in sick["results folder"]["measured"]
    assert sick["results folder"]["where"] == "nodeb rank 1"


def test_a_node_that_does_not_know_the_other_is_named(sick) -> None:
    assert sick.verdict("names") == "fail"
    assert sick["names"]["where"] == "nodeb rank 1"
    assert "nodea" in sick["names"]["measured"]
