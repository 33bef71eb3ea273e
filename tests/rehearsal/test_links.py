"""Links between nodes are as fast as they are told to be, also for a node that lost its power."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpc_utils.rehearsal import Cluster, ClusterError

from .support import slurm, state, wait_for

WIRE = Path(__file__).with_name("wire.py")


@pytest.fixture
def linked(cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, afterwards with power and unshaped links."""
    if cluster.flat:
        pytest.skip("a flat cluster's nodes have neither links nor power of their own")
    yield cluster
    cluster.shape(None)
    for node, how in cluster.status().nodes.items():
        if how == "no power":
            cluster.revive_node(node)


def throughput(cluster: Cluster, sender: str, megabytes: int) -> float:
    """Mbit/s from one node to the other."""
    wire = ("python3", str(WIRE), cluster.address("node1"), sender, str(megabytes))
    return float(slurm(cluster, "srun", "--nodes=2", "--ntasks-per-node=1", *wire))


def test_shaping_changes_what_the_links_carry_both_ways(linked: Cluster) -> None:
    free = throughput(linked, "1", 100)
    linked.shape("100mbit")
    assert linked.status().rate == "100mbit"
    for sender in ("0", "1"):
        assert 20 < throughput(linked, sender, 4) < 115  # the lower bound for machines that are busy
    linked.shape(None)
    assert linked.status().rate is None
    assert free > 400
    assert throughput(linked, "1", 100) > 400


@pytest.mark.soak  # tests/slurm/test_faults.py does it to a training run
def test_a_power_cut_fails_the_node_and_requeues_its_job(linked: Cluster, tmp_path: Path) -> None:
    """... and the node comes back with the link it had."""
    linked.shape("100mbit")
    job = ("sbatch", "--parsable", "--requeue", "--nodelist=node2", "--output=out", "--open-mode=append")
    script = 'echo ${SLURM_RESTART_COUNT:-0}; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600'
    number = slurm(linked, *job, "--wrap", script, cwd=tmp_path)
    wait_for(lambda: (tmp_path / "out").exists() and "0" in (tmp_path / "out").read_text(), "the job runs")
    linked.kill_node("node2")
    assert linked.status().nodes["node2"] == "no power"
    every = ("sacct", "-X", "-n", "-P", "--duplicates", "-j", number, "-o", "State")
    wait_for(lambda: "NODE_FAIL" in slurm(linked, *every), "Slurm notices", 90)
    with pytest.raises(ClusterError, match="no power"):
        linked.kill_node("node2")
    linked.revive_node("node2")
    wait_for(lambda: state(linked, number) == "COMPLETED", "the job is COMPLETED at its second attempt")
    said = (tmp_path / "out").read_text().splitlines()
    assert [line for line in said if line.isdigit()] == ["0", "1"]
    assert " tbf " in slurm(linked, "srun", "--nodelist=node2", "tc", "qdisc", "show", "dev", "eth0")


@pytest.mark.parametrize("rate", ["fast", "100", "100 mbit", "0mbit", "-1gbit", "1gbit; true", "1gibit"])
def test_a_rate_is_a_number_and_a_unit(linked: Cluster, rate: str) -> None:
    with pytest.raises(ClusterError, match="100mbit"):
        linked.shape(rate)


def test_only_nodes_of_the_cluster_lose_power(linked: Cluster) -> None:
    with pytest.raises(ClusterError, match="node1, node2"):
        linked.kill_node("node3")
