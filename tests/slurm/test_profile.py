"""A real Nsight Systems on both ranks of a job, two nodes: window, report, export, phases."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import nbformat
import pytest

from hpc_utils import paths, records
from hpc_utils.analyze.profiles import phases, readers
from hpc_utils.analyze.profiles.judge import judge
from hpc_utils.analyze.profiles.verdict import Bound
from tests.launch.conftest import TRAIN, notebook

from .conftest import Desk

PHASES = ["data", "forward", "backward", "optimizer"]
RUN = {"workload": "cnn", "epochs": 1, "steps_per_epoch": 12, "warmup_steps": 1, "evaluate_every": 0}

RANGES = """
    SELECT coalesce(n.text, s.value), n.start, n.end FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
    WHERE n.eventType IN (59, 60) ORDER BY n.start, -n.end
"""


@pytest.fixture(scope="module")
def nsys() -> str:
    """The folder of an nsys: this machine's, or Debian's."""
    if found := shutil.which("nsys"):
        return str(Path(found).parent)
    done = subprocess.run([paths.root() / "env/nsight.sh"], capture_output=True, text=True)
    if done.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"no nsys: {done.stderr}")
        pytest.skip(f"no nsys here: {done.stderr.strip()}")
    return done.stdout.strip()


def bare(desk: Desk) -> Path:
    """A notebook that trains and draws nothing."""
    path = desk.folder / "bare.ipynb"
    nbformat.write(notebook([("epochs = 1", "parameters"), TRAIN]), path)
    return path


def test_both_ranks_of_a_job_are_profiled_and_exported(desk: Desk, nsys: str) -> None:
    path = f"{nsys}{os.pathsep}{desk.environment['PATH']}"
    asked = RUN | {"profile": "nsys", "profile_steps": 4}
    job = desk.submit_training(parameters=asked, notebook=bare(desk), PATH=path)
    desk.wait_for(job, "COMPLETED", "FAILED")
    assert desk.status().get("state") == "complete", desk.log(job)
    (run,) = desk.runs
    about = json.loads((run / "run.json").read_text())
    assert about["remarks"] == []
    assert (about["profiled"]["first_step"], about["profiled"]["steps"]) == (3, 4)
    for rank in (0, 1):
        assert {f"rank{rank}.nsys-rep", f"rank{rank}.sqlite"} <= set(about["profiled"]["files"])
        with sqlite3.connect(run / f"profile/rank{rank}.sqlite") as tables:
            ranges = tables.execute(RANGES).fetchall()
        assert [name for name, *_ in ranges] == ["window", *["step", *PHASES] * 4]
    profiles = readers.gather([run])
    assert [(timeline.rank, timeline.device) for timeline in profiles.timelines] == [(0, None), (1, None)]
    for timeline in profiles.timelines:
        counts = phases.phase_table([timeline]).set_index("phase")["count"]
        assert counts.to_dict() == dict.fromkeys(["step", *PHASES], 4)
    assert judge(profiles).bound != Bound.NOT_ENOUGH
    assert len(list((run / "monitor").iterdir())) == 2, "one a node"
    (row,) = records.load(desk.results).runs.itertuples()
    assert (row.profile, row.world_size, row.nodes) == ("nsys", 2, 2)


@pytest.mark.soak  # tests/launch passes signals through all but the profiler
def test_signals_reach_the_rank_behind_the_profiler(desk: Desk, nsys: str) -> None:
    """USR1: checkpoint, queue again, and go on to the end; nothing is left of the first attempt's processes."""
    path = f"{nsys}{os.pathsep}{desk.environment['PATH']}"
    long = RUN | {"steps_per_epoch": 4000, "global_batch": 8, "profile": "nsys"}
    job = desk.submit_training(parameters=long, notebook=bare(desk), PATH=path)
    desk.wait(lambda: desk.step() > 20)
    desk.run("scancel", "--signal=USR1", "--batch", job)
    desk.wait(lambda: "requeued" in desk.log(job))
    assert desk.status()["state"] == "stopped" and desk.status()["reason"].startswith("SIGUSR1 at epoch 1")
