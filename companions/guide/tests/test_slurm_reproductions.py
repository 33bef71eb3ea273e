"""The symptoms that need a cluster, on the rehearsal's: each job fails as its symptom does, and passes with the fix.

`reproductions.py` has those that need none.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpc_utils.launch.symptoms import catalogue
from tests.slurm.conftest import Desk

JOIN = """
import os
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=5))
if dist.get_world_size() != int(os.environ["SLURM_NTASKS"]):
    raise RuntimeError(f"world size {dist.get_world_size()}, but {os.environ['SLURM_NTASKS']} were started")
dist.barrier()
"""
SCRIPT = """#!/bin/bash
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1) MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
"""
RANKS = "srun bash -c 'RANK=$SLURM_PROCID WORLD_SIZE={world} exec python join.py'"
TORCHRUN = "srun python -m torch.distributed.run --nproc-per-node=1 {meet} join.py"
MEET = "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"
TASKS = "srun bash -c '[ $SLURM_PROCID = 0 ] || {last}; sleep 3'"
# By symptom: the job's nodes, what fails, what passes.
JOBS = {
    "rank-variables": (2, "srun python join.py", RANKS.format(world="$SLURM_NTASKS")),
    "world-size": (2, RANKS.format(world=4), RANKS.format(world="$SLURM_NTASKS")),
    "alone": (2, TORCHRUN.format(meet="--standalone"), TORCHRUN.format(meet=MEET)),
    "killed": (2, TASKS.format(last="kill -9 $$"), TASKS.format(last="true")),
    "slurm-refused": (1, "srun --nodes=2 --ntasks=2 hostname", "srun --nodes=1 --ntasks=1 hostname"),
    "time-limit": (1, "sleep 300", "sleep 1"),
}


def run(desk: Desk, nodes: int, line: str, *options: str) -> str:
    """Submit a job of one line; its id."""
    (desk.folder / "join.py").write_text(JOIN)
    script = desk.folder / "job.sh"
    script.write_text(f"{SCRIPT}cd {desk.folder}\nexport PATH={Path(sys.executable).parent}:$PATH\n{line}\n")
    output = f"--output={desk.folder}/%j.log"
    shape = [f"--nodes={nodes}", "--ntasks-per-node=1", "--time=1", "--no-requeue"]
    return desk.run("sbatch", "--parsable", *shape, output, *options, script).stdout.strip()


def require_named(desk: Desk, job: str, symptom: str) -> None:
    """The diagnosis of the job's log names the symptom first."""
    done = desk.hpc("diagnose", desk.folder / f"{job}.log", check=False)
    assert done.returncode == 1, desk.log(job)
    assert done.stdout.startswith(catalogue()[symptom].title), done.stdout + desk.log(job)


def require_healthy(desk: Desk, nodes: int, line: str) -> None:
    job = run(desk, nodes, line)
    desk.wait_for(job, "COMPLETED", "FAILED", "TIMEOUT")
    assert desk.state(job) == "COMPLETED", desk.log(job)
    assert desk.hpc("diagnose", desk.folder / f"{job}.log").stdout.startswith("no sign of a failure")


@pytest.mark.soak
@pytest.mark.parametrize("symptom", JOBS)
def test_it_fails_without_its_fix_and_passes_with_it(desk: Desk, symptom: str) -> None:
    nodes, broken, fixed = JOBS[symptom]
    job = run(desk, nodes, broken)
    desk.wait_for(job, "FAILED", "TIMEOUT", "COMPLETED")
    assert desk.state(job) != "COMPLETED", desk.log(job)
    require_named(desk, job, symptom)
    require_healthy(desk, nodes, fixed)


@pytest.mark.soak
def test_a_job_that_is_cancelled(desk: Desk) -> None:
    job = run(desk, 1, "sleep 300")
    desk.wait_for(job, "RUNNING")
    desk.wait(lambda: (desk.folder / f"{job}.log").exists())
    desk.run("scancel", job)
    desk.wait_for(job, "CANCELLED")
    desk.wait(lambda: "CANCELLED" in desk.log(job))
    require_named(desk, job, "cancelled")
    require_healthy(desk, 1, "sleep 1")


@pytest.mark.soak
def test_a_node_that_fails(desk: Desk) -> None:
    job = run(desk, 2, "sleep 300", "--time=10")
    desk.wait_for(job, "RUNNING")
    desk.cluster.kill_node("node2")
    try:
        desk.wait_for(job, "NODE_FAIL")
        desk.wait(lambda: "NODE FAILURE" in desk.log(job))
    finally:
        desk.cluster.revive_node("node2")
    require_named(desk, job, "node-failed")
    require_healthy(desk, 2, "srun hostname")
