"""What scontrol and sacct print: real text of Slurm 22.05, and every judgement of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.doctor import slurm
from hpc_utils.doctor.check import Verdict

from .conftest import alone

# `scontrol show job` of a running job, Slurm 22.05.
JOB = """\
JobId=1 JobName=j.sh
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=00:02:00 TimeMin=N/A
   NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=2 ReqB:S:C:T=0:0:*:*
   TRES=cpu=4,mem=4000M,node=2,billing=4,gres/gpu=4
   Power=
"""
RUNNING = {
    "job": "1",
    "shown": {"JobState": "RUNNING", "TimeLimit": "00:02:00", "Requeue": "1"},
    "faults": [],
}


def shown(**different: str) -> dict:
    return RUNNING | {"shown": RUNNING["shown"] | different}


def test_output_of_scontrol() -> None:
    assert slurm.parse_job(JOB) == RUNNING["shown"]


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
    found = slurm.judge_job(facts)
    assert found.verdict is verdict
    assert fix in found.fix


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes programs named scontrol and sacct."""

    def make(**scripts: str) -> None:
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    return make


def test_outside_slurm_nothing_is_called(monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for measure, judge in ((slurm.measure_job, slurm.judge_job), (slurm.measure_accounting, slurm.judge_accounting)):
        assert judge(measure(alone())).verdict is Verdict.NOT_APPLICABLE


def test_variables_of_an_ended_job_are_found(tools) -> None:
    tools(
        scontrol='echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1',
        sacct='echo "Slurm accounting storage is disabled" >&2; exit 1',
    )
    assert slurm.judge_job(slurm.measure_job(alone())).verdict is Verdict.FAIL
    found = slurm.judge_accounting(slurm.measure_accounting(alone()))
    assert found.verdict is Verdict.UNKNOWN and "disabled" in found.measured


def test_accounting_may_list_a_job_late(tools, tmp_path) -> None:
    tools(sacct=f'[ -e {tmp_path}/again ] && echo "4711|RUNNING"\ntouch {tmp_path}/again')
    context = alone()
    context.timeout = 10.0
    assert slurm.judge_accounting(slurm.measure_accounting(context)).verdict is Verdict.PASS
