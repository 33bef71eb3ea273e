"""What a cluster does to jobs: the time limit, a node's power cut, scancel. Each ends in a resume with the same weights.

A run is slow here because its work is (steps enough for a fault to hit it), never because it sleeps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hpc_utils import paths, records
from hpc_utils.launch.forkserver import RANK
from hpc_utils.launch.parameters import options
from hpc_utils.records.folder import read_json
from tests.train.support import Weights, same, saved

from .conftest import Desk, submissions

LONG = {"workload": "cnn", "dataset": "digits", "epochs": 3, "steps_per_epoch": 300, "global_batch": 64}
LONG |= {"device": "cpu", "lr_warmup_epochs": 0, "evaluate_every": 2, "save_weights": True, "optimizer": "adamw"}
LONG |= {"lr": 0.002}


@pytest.fixture(scope="module")
def uninterrupted(cluster, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """The weights of the same run on two ranks of this machine, which nothing interrupts."""
    desk = Desk(tmp_path_factory.mktemp("calm") / "desk", cluster)
    desk.hpc("run", paths.notebooks() / "02_ddp.ipynb", "--nproc", 2, *options(LONG), HPC_SHARED=1)
    return saved(desk.runs[0])


def assert_same_end(desk: Desk, calm: Weights) -> None:
    (run,) = desk.runs
    assert len(records.load_run(run)["epochs"]) == LONG["epochs"]
    assert same(saved(run), calm)


def ranks(desk: Desk) -> list[psutil.Process]:
    """Those of the desk's run, without srun and torchrun."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            command = process.cmdline()
            is_rank = RANK in command and Path(command[0]).name != "srun" and "--nnodes" not in " ".join(command)
            if is_rank and process.environ().get("HPC_RESULTS") == str(desk.results):
                processes.append(process)
    assert len(processes) == 2
    return processes


@contextlib.contextmanager
def halted(desk: Desk) -> Iterator[None]:
    """The ranks of the desk's run stand still meanwhile."""
    held = ranks(desk)
    for rank in held:
        rank.suspend()
    try:
        yield
    finally:
        for rank in held:
            rank.resume()


def limit(desk: Desk, job: str, minutes: int) -> None:
    """Give the job another time limit."""
    desk.run("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")


@pytest.mark.soak
def test_time_limit_then_checkpoint_requeue_and_resume(desk: Desk, uninterrupted: Weights) -> None:
    """USR1 before the time limit; the job goes back into the queue and ends as if nothing had been. Each attempt copies the data sets to
    the nodes' disk."""
    disk = desk.folder / "node's disk"
    (desk.folder / "data").mkdir()
    (desk.folder / "data/set").write_text("images")
    job = desk.submit_training("--time=60", "--signal=B:USR1@1200", parameters=LONG, HPC_NODE_LOCAL=disk)
    desk.wait(lambda: desk.step() > 20)
    # On any machine the training outlasts the limit: it is halted until Slurm has given notice (it looks every 30 s).
    with halted(desk):
        limit(desk, job, 10)
        desk.wait(lambda: "forwarded USR1" in desk.log(job))
        (shown,) = [line for line in desk.hpc("status").stdout.splitlines() if desk.runs[0].name in line]
        steps = LONG["epochs"] * LONG["steps_per_epoch"]
        assert shown.split()[:2] == ["RUNNING", job] and f"of {steps}" in shown, "a job submitted by hand"
        limit(desk, job, 60)
    desk.wait_for(job, "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")
    assert desk.state(job) == "COMPLETED", desk.log(job)
    log = desk.log(job)
    assert "requeued" in log
    assert "attempt 2" in log
    assert log.count("data sets are read from") == 2 and not list(disk.iterdir()), "a copy ends with its attempt"
    desk.wait(lambda: f"COMPLETED     {job}" in desk.hpc("status", "--all").stdout)  # the accounting lags behind
    assert "COMPLETED" not in desk.hpc("status", "--all", HPC_RESULTS=desk.folder / "other", check=False).stdout
    assert read_json(desk.runs[0] / "provenance.json")["job"]["restart_count"] >= 1
    assert_same_end(desk, uninterrupted)


@pytest.mark.soak  # tests/rehearsal cuts nodes' power, the test above resumes
def test_a_node_that_loses_power_is_replaced_and_the_run_resumes(desk: Desk, uninterrupted: Weights) -> None:
    """Slurm notices, requeues, and the run goes on from its last checkpoint once there are two nodes again."""
    job = desk.submit_training(parameters=LONG | {"checkpoint_every": 1})
    desk.wait(lambda: desk.step() > 1.5 * LONG["steps_per_epoch"])
    desk.cluster.kill_node("node2")
    try:
        desk.wait(lambda: desk.state(job) in ("PENDING", "CONFIGURING"))
    finally:
        desk.cluster.revive_node("node2")
    desk.wait_for(job, "COMPLETED", "FAILED", "NODE_FAIL")
    assert desk.state(job) == "COMPLETED", desk.log(job)
    assert_same_end(desk, uninterrupted)


@pytest.mark.soak  # tests/launch sends the same SIGTERM, without Slurm
def test_scancel_is_final_but_nothing_is_lost(desk: Desk, uninterrupted: Weights) -> None:
    job = desk.submit_training(parameters=LONG)
    desk.wait(lambda: desk.step() > 20)
    with halted(desk):
        desk.run("scancel", job)
    desk.wait_for(job, "CANCELLED")
    desk.wait(lambda: desk.status().get("state") == "stopped")
    time.sleep(3)
    assert desk.state(job) == "CANCELLED", "it does not come back"
    again = desk.submit_training(parameters=LONG)
    desk.wait_for(again, "COMPLETED", "FAILED")
    assert desk.state(again) == "COMPLETED", desk.log(again)
    assert "continued at epoch" in desk.log(again)
    assert_same_end(desk, uninterrupted)


@pytest.mark.soak
def test_of_an_array_only_the_task_whose_time_is_up_is_queued_again(desk: Desk) -> None:
    """The last task's own id is the array's number, which to scontrol means all of them."""
    study = desk.study(ranks="[1]", rates="[0.1, 0.05]")
    study.write_text(study.read_text().replace("steps_per_epoch = 6", "steps_per_epoch = 400"))
    desk.hpc("submit", study, "--cluster", "rehearsal")
    array = submissions(desk)[0]["jobs"][0]["id"]
    desk.wait(lambda: desk.state(f"{array}_1") == "RUNNING")
    desk.wait(lambda: any((run / "progress.json").exists() for run in desk.runs))
    desk.run("scancel", "--batch", "--signal=USR1", f"{array}_1")
    desk.wait(lambda: len(records.load(desk.results).runs) == 2)
    (logs,) = desk.results.glob("submissions/*/logs")
    assert [(logs / f"{array}_{task}.log").read_text().count("attempt") for task in (0, 1)] == [1, 2]
