"""What was submitted to a cluster that has ended, after another one has started and counts its jobs from 1 again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpc_utils import rehearsal

from .conftest import Desk, submissions


@pytest.fixture
def name(slurm_installed: None) -> Iterator[str]:
    name = f"again-{os.getpid()}"
    yield name
    rehearsal.down(name)


@pytest.mark.soak
def test_a_job_of_the_next_cluster_is_not_the_one_that_had_its_id(name: str, tmp_path: Path) -> None:
    before = Desk(tmp_path / "desk", rehearsal.up(name, nodes=1, lasting=False))
    study = before.study(ranks="[1]")
    before.run("scontrol", "update", "NodeName=node1", "State=drain", "Reason=test")  # nothing runs
    before.hpc("submit", study, "--cluster", "rehearsal")
    (array, _) = submissions(before)[0]["jobs"]
    assert "PENDING" in before.hpc("status").stdout
    before.cluster.down()

    after = Desk(tmp_path / "desk", rehearsal.up(name, nodes=1, lasting=False))
    after.run("sbatch", "--array=0", "--output=/dev/null", "--wrap", "sleep 100")
    after.wait_for(f"{array['id']}_0", "RUNNING")
    (line,) = [line for line in after.hpc("status").stdout.splitlines() if array["tasks"][0][0] in line]
    assert line.startswith("LOST")
    after.hpc("cancel", study.stem)
    assert after.state(f"{array['id']}_0") == "RUNNING", "the other job runs on"
    planned = after.hpc("submit", study, "--cluster", "rehearsal", "--dry-run").stdout
    assert "0 in the queue, 1 to submit" in planned
