"""Jobs on a rehearsal cluster meet what they would meet on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import provenance
from hpc_utils.rehearsal import Cluster, plan
from tests.support import wait_for

from .support import slurm, state

ON_BOTH = ("srun", "--nodes=2", "--ntasks-per-node=1")


def test_accounting_knows_what_became_of_a_job(cluster: Cluster) -> None:
    good = slurm(cluster, "sbatch", "--parsable", "--output=/dev/null", "--wrap", "true")
    bad = slurm(cluster, "sbatch", "--parsable", "--output=/dev/null", "--wrap", "exit 3")
    wait_for(lambda: state(cluster, good) == "COMPLETED")
    wait_for(lambda: state(cluster, bad) == "FAILED")
    assert slurm(cluster, "sacct", "-X", "-n", "-P", "-j", bad, "-o", "ExitCode") == "3:0"


def test_nodes_are_machines_of_their_own(cluster: Cluster, tmp_path: Path) -> None:
    """Host name, address, shared memory and processes; names that both resolve; files that both see."""
    if cluster.flat:
        pytest.skip("a flat cluster's nodes are one machine")
    own = ["$(hostname)", "$(hostname -I)", "$(getent hosts node1 node2 | wc -l)", "$(ls /dev/shm | grep -c ^node)"]
    own += ["$(tr '\\0' ' ' < /proc/1/cmdline)"]
    script = f"touch /dev/shm/$(hostname) {tmp_path}/$(hostname); sleep 0.5; echo {' '.join(own)}"
    for line, node in zip(
        sorted(slurm(cluster, *ON_BOTH, "bash", "-c", script).splitlines()), cluster.nodes, strict=True
    ):
        assert line.split()[:4] == [node, cluster.address(node), "2", "1"]
        assert line.split()[-1] == node, "a node's first process is its own"
    assert sorted(path.name for path in tmp_path.iterdir()) == list(cluster.nodes)


def test_a_node_keeps_to_its_own_cores(cluster: Cluster) -> None:
    """Whatever a job asks for, it runs on its node's share of the machine's physical cores, and nodes share none."""
    ask = "import os; print(os.environ['SLURMD_NODENAME'], *sorted(os.sched_getaffinity(0)))"
    said = slurm(cluster, *ON_BOTH, "--cpus-per-task=8", "python3", "-c", ask)
    mine = {name: {int(cpu) for cpu in cpus} for name, *cpus in map(str.split, said.splitlines())}
    found = provenance.core_groups()
    assert mine == dict(zip(cluster.nodes, map(set, plan.shares(2, found)), strict=True))
    assert len(found) < 2 or not mine["node1"] & mine["node2"]


def test_jobs_get_disjoint_gpus(cluster: Cluster, tmp_path: Path) -> None:
    script = (
        "echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE > gpus.$SLURM_JOB_ID; while [ ! -e done ]; do sleep 0.1; done"
    )
    job = ("sbatch", "--parsable", "--nodelist=node1", "--gpus-per-node=2", "--output=/dev/null", "--wrap", script)
    jobs = [slurm(cluster, *job, cwd=tmp_path) for _ in range(2)]
    wait_for(lambda: len(list(tmp_path.glob("gpus.*"))) == 2)
    (tmp_path / "done").touch()
    wait_for(lambda: {state(cluster, job) for job in jobs} == {"COMPLETED"})
    said = [(tmp_path / f"gpus.{job}").read_text().split() for job in jobs]
    assert [count for _, count in said] == ["2", "2"]
    assert sorted(",".join(devices for devices, _ in said).split(",")) == ["0", "1", "2", "3"]


def test_jobs_that_measure_take_turns(cluster: Cluster, tmp_path: Path) -> None:
    script = "mkdir alone || touch together; sleep 1; rmdir alone"
    job = ("sbatch", "--parsable", "--licenses=measure:1", "--output=/dev/null", "--wrap", script)
    jobs = [slurm(cluster, *job, cwd=tmp_path) for _ in range(2)]
    wait_for(lambda: {state(cluster, job) for job in jobs} == {"COMPLETED"})
    assert not (tmp_path / "together").exists()


def test_a_job_that_waits_for_a_failed_one_is_cancelled(cluster: Cluster) -> None:
    failing = slurm(cluster, "sbatch", "--parsable", "--output=/dev/null", "--wrap", "false")
    after = ("sbatch", "--parsable", f"--dependency=afterok:{failing}", "--output=/dev/null", "--wrap", "true")
    waiting = slurm(cluster, *after)
    wait_for(lambda: state(cluster, waiting) == "CANCELLED")
