"""The benches as jobs on a cluster's nodes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from hpc_utils.records import probes

from .conftest import Desk


@pytest.mark.soak  # tests/doctor measures links, tests/slurm/test_links.py limits them
def test_the_link_between_two_nodes_is_measured(desk: Desk) -> None:
    """... while nobody changes it, and the record says what it is limited to."""
    command = ["bench", "allreduce", "--cluster", "rehearsal", "--repeats=1", "--largest=1"]
    held: list[str] = []
    desk.cluster.shape("500mbit")
    try:
        with ThreadPoolExecutor() as pool:
            done = pool.submit(desk.hpc, *command, "--nodes=2", "--ranks-per-node=1")
            desk.wait(lambda: held.extend(desk.cluster.status().held) or held or done.done())
            said = done.result()
        desk.wait(lambda: not desk.cluster.status().held)
    finally:
        desk.cluster.shape(None)
    assert held == ["hpc bench allreduce"]
    record = probes.newest("allreduce", desk.results)
    assert (record["nodes"], record["ranks_per_node"]) == (2, 1)
    assert (record["hardware_id"].endswith("-500mbit"), record["link_gbit"]) == (True, 0.5)
    assert record["provenance"]["job"]["nodelist"] == "node[1-2]"
    assert list(record["groups"]) == ["all"] and "all: latency" in said.stdout


def test_more_ranks_than_a_node_has_devices_are_refused(desk: Desk) -> None:
    done = desk.hpc("bench", "allreduce", "--cluster", "rehearsal", "--ranks-per-node=99", check=False)
    assert done.returncode == 2
    assert "99 ranks on a node" in done.stderr
    assert not desk.results.exists()
