"""Slurm's words read, and what its commands are given; the real Slurm is asked in tests/slurm."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from hpc_utils.launch import slurm_commands
from hpc_utils.launch.slurm_commands import JobState


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1:05", 65), ("1-00:00:01", 86401), ("UNLIMITED", None)],
)  # fmt: skip
def test_durations_as_slurm_writes_them(text: str, expected: int | None) -> None:
    assert slurm_commands.seconds(text) == expected


def test_nothing_of_the_job_or_the_launcher_around_us_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ("PATH", "SLURM_CONF", "SBATCH_ACCOUNT", "HPC_RESULTS")
    dropped = ("SLURM_JOB_ID", "SLURMD_NODENAME", "SRUN_DEBUG", "SBATCH_TIMELIMIT", "RANK", "MASTER_ADDR")
    dropped += ("TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES", "HPC_LAUNCH", "PMIX_RANK")
    monkeypatch.setattr(os, "environ", dict.fromkeys(kept + dropped, "x"))
    assert slurm_commands.clean_environment() == dict.fromkeys(kept, "x")


@pytest.mark.parametrize(
    ("state", "waits", "over"),
    [("PENDING", True, False), ("RUNNING", False, False), ("A_STATE_OF_A_LATER_SLURM", False, True)],
)
def test_any_state_that_is_not_known_is_a_final_one(state: str, waits: bool, over: bool) -> None:
    job_state = JobState(state)
    assert (str(job_state), job_state.is_waiting, job_state.is_over) == (state, waits, over)


@pytest.fixture
def tool(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """`tool(name, script)`: one of Slurm's tools; there are no others."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return write


def test_a_refusal_comes_with_slurms_words_and_what_to_do(tool, tmp_path) -> None:
    tool("sbatch", "echo 'sbatch: error: invalid partition specified: gpuu' >&2; exit 1")
    with pytest.raises(slurm_commands.SlurmError, match=r"no squeue here: .*hpc cluster up.*hpc study run"):
        slurm_commands.ask(["squeue"])
    with pytest.raises(slurm_commands.SlurmError, match=r"(?s)sbatch refused .*partition specified: gpuu.*sinfo -s"):
        slurm_commands.sbatch(["--partition=gpuu"], tmp_path / "x.sbatch", [], {})


def test_tasks_of_an_array_that_never_started_are_known(tool) -> None:
    rows = ["7_[0-1,3%2]|CANCELLED by 0|0:0|None|x|/f", "7_2|COMPLETED|0:0|n1|x|/f", "7_2.batch|FAILED|1:0|n1|x|/f"]
    for name, output in (("sacct", rows), ("squeue", []), ("sinfo", [])):
        tool(name, "\n".join(f"echo '{row}'" for row in output))
    found = {name: str(job.state) for name, job in slurm_commands.jobs(["7"]).items()}
    assert found == {**dict.fromkeys(("7_0", "7_1", "7_3"), "CANCELLED"), "7_2": "COMPLETED"}
    with pytest.raises(slurm_commands.SlurmError, match="partition 'none-such'"):
        slurm_commands.nodes("none-such")


def test_the_queue_knows_what_is_active_and_the_accounting_which_lags_how_it_ended(tool) -> None:
    """sacct has the first task waiting for seconds after squeue has its end."""
    accounted = ["7_0|PENDING|0:0|None assigned|x|/f", "7_1|FAILED|3:0|n1|x|/f", "7_2|RUNNING|0:0|n1|x|/f",
                 "8|PENDING|0:0|None assigned|x|/f"]  # fmt: skip
    queued = ["7_0|COMPLETED|None|0:00|n1|x|/f", "7_1|FAILED|NonZeroExitCode|0:00|n1|x|/f",
              "7_2|RUNNING|None|1:00|n1|x|/f"]  # fmt: skip
    for name, output in (("sacct", accounted), ("squeue", queued)):
        tool(name, "\n".join(f"echo '{row}'" for row in output))
    jobs = slurm_commands.jobs(["7", "8"])
    assert {name: (str(job.state), job.reason) for name, job in jobs.items()} == {
        "7_0": ("COMPLETED", ""),
        "7_1": ("FAILED", "exit code 3:0"),
        "7_2": ("RUNNING", ""),
        "8": ("PENDING", ""),
    }
    assert jobs["7_2"].left == 60


@pytest.mark.parametrize("answer", ["17", "17;leonardo", "Your quota: 3 of 10 h\nsbatch: lua: ok\n17"])
def test_the_last_line_of_sbatch_is_the_id_whatever_a_wrapper_prints_before(tool, tmp_path, answer: str) -> None:
    tool("sbatch", f"printf '%s\\n' '{answer}'")
    assert slurm_commands.sbatch([], tmp_path / "x.sbatch", [], {}) == "17"


@pytest.mark.parametrize("answer", ["", "17\nPlease cite us", "Submitted batch job 17", "17 18", "job 3 queued\n"])
def test_any_other_answer_of_sbatch_is_refused_with_what_was_printed(tool, tmp_path, answer: str) -> None:
    tool("sbatch", f"printf '%s\\n' '{answer}'; echo 'sbatch: a word on stderr' >&2")
    with pytest.raises(slurm_commands.SlurmError) as refused:
        slurm_commands.sbatch([], tmp_path / "x.sbatch", [], {})
    message = str(refused.value)
    assert all(line in message for line in [*answer.splitlines(), "a word on stderr"])
    assert "\n" not in message


def test_no_argument_reaches_a_shell(tool, tmp_path) -> None:
    """Whatever a name holds, the command gets it as it stands."""
    received = tmp_path / "received"
    tool("sbatch", f"printf '%s\\n' \"$@\" > {received}; echo '17;cluster'")
    hostile = "--comment=$(touch pwned); `touch pwned` 'x' \"y\""
    assert slurm_commands.sbatch([hostile], tmp_path / "a b.sbatch", ["-p", "x=; rm -rf ~"], {}) == "17"
    assert received.read_text() == f"--parsable\n{hostile}\n{tmp_path}/a b.sbatch\n-p\nx=; rm -rf ~\n"
