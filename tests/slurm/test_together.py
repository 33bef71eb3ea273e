"""Several at once, from inside jobs, and refusals."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from hpc_utils import records

from .conftest import Desk, submissions


def test_two_who_submit_at_once_submit_each_run_once(desk: Desk) -> None:
    study = desk.study(ranks="[1]", rates="[0.1, 0.05]")
    command = [sys.executable, "-m", "hpc_utils.cli", "submit", str(study), "--cluster", "rehearsal"]
    both = [subprocess.Popen(command, env=desk.environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=250)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    runs = [run for one in submissions(desk) for job in one["jobs"] for task in job["tasks"] for run in task]
    assert len(runs) == len(set(runs)) == 2, said


def test_a_failed_run_comes_with_its_last_line_and_what_to_do(desk: Desk) -> None:
    study = desk.study(ranks="[1]", rates="[1e30]")
    ended = desk.hpc("submit", study, "--cluster", "rehearsal", "--wait", check=False)
    assert ended.returncode == 1, ended.stdout
    said = desk.hpc("status").stdout
    assert "the loss became" in said
    assert "smaller lr" in said


@pytest.mark.soak
def test_cancelled_stays_cancelled_until_it_is_retried(desk: Desk) -> None:
    study = desk.study(ranks="[2]")
    desk.hpc("submit", study, "--cluster", "rehearsal")
    assert "2 cancelled" in desk.hpc("cancel", "small").stdout
    desk.wait(lambda: "CANCELLED" in (shown := desk.hpc("status").stdout) and "PENDING" not in shown)
    time.sleep(2)
    assert not desk.run("squeue", "--me", "--noheader").stdout.strip(), "it does not come back by itself"
    assert "1 submitted again" in desk.hpc("retry", "small").stdout
    desk.wait(lambda: len(records.load(desk.results).runs) == 1)
