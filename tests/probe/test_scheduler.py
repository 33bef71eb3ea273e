"""What scontrol and sacct say: real text of Slurm 22.05, and every judgement of it."""

from __future__ import annotations

import pytest

from hpc_utils.probe import scheduler
from hpc_utils.probe.bench import Bench, Options
from hpc_utils.probe.check import Verdict

# `scontrol show job` of a job under way, Slurm 22.05.
JOB = """\
JobId=1 JobName=j.sh
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901759 Nice=0 Account=root QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=00:02:00 TimeMin=N/A
   SubmitTime=2026-11-21T08:58:56 EligibleTime=2026-11-21T08:58:56
   StartTime=2026-11-21T08:58:57 EndTime=2026-11-21T09:00:57 Deadline=N/A
   Partition=gpu AllocNode:Sid=localhost:5536
   NodeList=node[1-2]
   NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=2 ReqB:S:C:T=0:0:*:*
   TRES=cpu=4,mem=4000M,node=2,billing=4,gres/gpu=4
   Socks/Node=* NtasksPerN:B:S:C=1:0:*:* CoreSpec=*
   Power=
   TresPerNode=gres:gpu:2
"""
CONFIG = """\
Configuration data as of 2026-11-21T08:58:57
AccountingStorageType   = accounting_storage/slurmdbd
MinJobAge               = 300 sec
TaskPluginParam         = (null type)
"""
RUNNING = {
    "job": "1",
    "shown": {"JobState": "RUNNING", "TimeLimit": "00:02:00", "Requeue": "1", "Restarts": "0"},
    "accounting": {"known": True, "said": "1|RUNNING"},
    "storage": "accounting_storage/slurmdbd",
    "min_job_age": "300 sec",
    "faults": [],
}


def shown(**different: str | None) -> dict:
    return RUNNING | {"shown": RUNNING["shown"] | different}


def test_a_job_as_scontrol_shows_it() -> None:
    told = scheduler.parse(JOB)
    assert told["TimeLimit"] == "00:02:00"
    assert told["Requeue"] == "1"
    assert told["JobState"] == "RUNNING"
    assert told["TRES"] == "cpu=4,mem=4000M,node=2,billing=4,gres/gpu=4"
    assert told["Power"] == ""


def test_settings_as_scontrol_shows_them() -> None:
    told = scheduler.parse_settings(CONFIG)
    assert told["MinJobAge"] == "300 sec"
    assert told["AccountingStorageType"] == "accounting_storage/slurmdbd"


@pytest.mark.parametrize(
    ("facts", "verdict", "fix"),
    [
        (RUNNING, Verdict.PASS, ""),
        (shown(Requeue="0"), Verdict.FAIL, "#SBATCH --requeue"),
        (shown(TimeLimit="UNLIMITED"), Verdict.UNKNOWN, "--time"),
        (shown(TimeLimit=None, JobState=None), Verdict.UNKNOWN, "scontrol show job"),
        (shown(JobState="COMPLETED"), Verdict.FAIL, "fresh shell"),
        (
            shown(JobState=None, TimeLimit=None)
            | {"faults": ["scontrol failed: slurm_load_jobs error: Invalid job id"]},
            Verdict.FAIL,
            "fresh shell",
        ),
        ({"job": None}, Verdict.NOT_APPLICABLE, ""),
    ],
)
def test_time_limit_and_requeue(facts, verdict, fix) -> None:
    found = scheduler.judge_limit(facts)
    assert found.verdict is verdict
    assert fix in found.fix


@pytest.mark.parametrize(
    ("facts", "verdict", "says"),
    [
        (RUNNING, Verdict.PASS, "slurmdbd"),
        (
            RUNNING | {"accounting": {"known": False, "said": "sacct failed: Slurm accounting storage is disabled"}},
            Verdict.UNKNOWN,
            "disabled; without it Slurm forgets a job 300 sec after its end",
        ),
        (RUNNING | {"accounting": {"known": False, "said": ""}}, Verdict.UNKNOWN, "does not know this job"),
        (
            RUNNING | {"accounting": {"known": False, "said": "no sacct here"}, "min_job_age": None},
            Verdict.UNKNOWN,
            "no sacct here",
        ),
        ({"job": None}, Verdict.NOT_APPLICABLE, "not in a Slurm job"),
    ],
)
def test_accounting(facts, verdict, says) -> None:
    found = scheduler.judge_accounting(facts)
    assert found.verdict is verdict
    assert says in found.measured


def test_outside_slurm_nothing_is_asked(monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert scheduler.look(Bench(Options(), exchange=None)) == {"job": None}


def test_variables_of_a_job_that_is_over_are_found_out(tmp_path, monkeypatch) -> None:
    """What scontrol and sacct answer then, through programs of that name."""
    for name, script in {
        "scontrol": '[ "$2" = job ] || exit 0; echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1',
        "sacct": 'echo "Slurm accounting storage is disabled" >&2; exit 1',
    }.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    facts = scheduler.look(Bench(Options(), exchange=None))
    assert scheduler.judge_limit(facts).verdict is Verdict.FAIL
    assert "disabled" in scheduler.judge_accounting(facts).measured


def test_accounting_may_hear_of_a_job_late(tmp_path, monkeypatch) -> None:
    program = tmp_path / "sacct"
    program.write_text(f'#!/bin/sh\n[ -e {tmp_path}/again ] && echo "4711|RUNNING"\ntouch {tmp_path}/again\n')
    program.chmod(0o755)
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    facts = scheduler.look(Bench(Options(), exchange=None))
    assert facts["accounting"] == {"known": True, "said": "4711|RUNNING"}
