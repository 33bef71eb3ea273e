"""What scontrol prints: real text of Slurm 22.05, and every judgement of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.doctor import environment
from hpc_utils.doctor.check import Verdict

from .conftest import alone

# `scontrol show job` of a running job, Slurm 22.05.
JOB = """\
JobId=1 JobName=j.sh
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=00:02:00 TimeMin=N/A
"""
RUNNING = {
    "job": "1",
    "shown": {"JobState": "RUNNING", "TimeLimit": "00:02:00", "Requeue": "1"},
    "faults": [],
}


def shown(**different: str) -> dict:
    return RUNNING | {"shown": RUNNING["shown"] | different}


def test_output_of_scontrol() -> None:
    assert environment.parse_job(JOB) == RUNNING["shown"]


@pytest.mark.parametrize(
    ("facts", "verdict", "fix"),
    [
        (RUNNING, Verdict.PASS, ""),
        (shown(Requeue="0"), Verdict.FAIL, "#SBATCH --requeue"),
        (shown(TimeLimit="UNLIMITED"), Verdict.UNKNOWN, "--time"),
        (RUNNING | {"shown": {}}, Verdict.UNKNOWN, "scontrol show job"),
        (shown(JobState="COMPLETED"), Verdict.FAIL, "new shell"),
        (RUNNING | {"shown": {}, "faults": ["scontrol failed: Invalid job id"]}, Verdict.FAIL, "new shell"),
        ({"job": None}, Verdict.NOT_APPLICABLE, ""),
    ],
)
def test_time_limit_and_requeue(facts, verdict, fix) -> None:
    found = environment.judge_job(facts)
    assert found.verdict is verdict
    assert fix in found.fix


def test_variables_of_an_ended_job_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert environment.judge_job(environment.measure_job(alone())).verdict is Verdict.NOT_APPLICABLE
    (tmp_path / "scontrol").write_text(
        '#!/bin/sh\necho "slurm_load_jobs error: Invalid job id specified" >&2; exit 1\n'
    )
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert environment.judge_job(environment.measure_job(alone())).verdict is Verdict.FAIL
