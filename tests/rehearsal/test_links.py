"""Links between nodes are as fast as they are told to be, also for a node that lost its power."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hpc_utils.cli.common import as_rehearsed
from hpc_utils.launch import cluster as clusters
from hpc_utils.rehearsal import Cluster, ClusterError, network, rate_of
from hpc_utils.rehearsal.daemons import Daemon
from hpc_utils.rehearsal.keeper import Nodes
from tests.support import wait_for

from .support import slurm

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


def test_what_cannot_be_shaped_or_killed_is_refused(linked: Cluster) -> None:
    for rate in ("fast", "0mbit", "1gbit; true"):
        with pytest.raises(ClusterError, match="100mbit"):
            linked.shape(rate)
    with pytest.raises(ClusterError, match="node1, node2"):
        linked.kill_node("node3")


def test_links_are_limited_all_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """... but for nodes whose slurmd ended by itself, which get the rate with their power."""
    rates: dict[str, str | None] = {}
    broken: list[str] = []

    def shape(name: str, pid: int, rate: str | None) -> None:
        if name in broken:
            raise ClusterError(f"tc: {name}")
        rates[name] = rate

    monkeypatch.setattr(network, "shape", shape)
    nodes = Nodes(None)
    with subprocess.Popen(["true"]) as ended:
        gone = psutil.Process(ended.pid)
    for name, process in (("node1", psutil.Process()), ("node2", gone), ("node3", psutil.Process())):
        nodes.running[name] = Daemon(name, process, Path())
    nodes.shape("200mbit")
    assert rates == {"node1": "200mbit", "node3": "200mbit"}
    broken.append("node3")
    with pytest.raises(ClusterError, match="node3"):
        nodes.shape("1gbit")
    assert (nodes.rate, nodes.by_hand, rates["node1"]) == ("200mbit", "200mbit", "200mbit")


def test_who_measures_holds_the_links_until_the_end(linked: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """... and what is submitted meanwhile is named by what was set by hand."""
    monkeypatch.setenv("SLURM_CONF", str(linked.conf))
    linked.shape("200mbit")
    with linked.holding("100mbit", by="mine"):
        status = linked.status()
        assert (status.rate, status.held) == ("100mbit", ["mine"])
        assert as_rehearsed(clusters.read_cluster("rehearsal")).machine.links == "200mbit"
        with pytest.raises(ClusterError, match="while mine is measured"):
            linked.shape(None)
        with pytest.raises(ClusterError, match="while mine is measured"), linked.holding("1gbit", by="other"):
            pass
        with linked.holding("100mbit", by="beside"):
            pass
        assert linked.status().rate == "100mbit", "one of two has ended"
    wait_for(lambda: linked.status().rate == "200mbit")


def test_a_killed_holder_gives_the_links_back(linked: Cluster) -> None:
    code = "import sys, time; from hpc_utils import rehearsal\n"
    code += "with rehearsal.around().holding('100mbit', by='mine'): print(flush=True); time.sleep(600)"
    env = os.environ | linked.environment()
    holder = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
    assert holder.stdout.readline()
    assert linked.status().rate == "100mbit"
    holder.kill()
    wait_for(lambda: linked.status().rate is None)
    holder.communicate()


@pytest.mark.parametrize(
    ("gbit", "rate"),
    [(10, "10gbit"), (0.3, "300mbit"), (10 / 7, "1428.571mbit"), (0.00125, "1250kbit")],
)
def test_a_rate_in_gbit(gbit: float, rate: str) -> None:
    assert rate_of(gbit) == rate
    assert network.RATE.fullmatch(rate)
    with pytest.raises(ClusterError, match="kbit"):
        rate_of(gbit * 1e-9)
