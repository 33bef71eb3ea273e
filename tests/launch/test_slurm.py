"""Slurm's words read, and what its commands are given; the real Slurm is asked in tests/slurm."""

from __future__ import annotations

import os

import pytest

from hpc_utils.launch import slurm_commands
from hpc_utils.launch.slurm_commands import JobState
from hpc_utils.launch.status import Entry


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1:05", 65), ("1-00:00:01", 86401), ("UNLIMITED", None)],
)  # fmt: skip
def test_durations_as_slurm_writes_them(text: str, expected: int | None) -> None:
    assert slurm_commands.seconds(text) == expected


def test_nothing_of_the_job_or_the_launcher_around_us_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = {
        "PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURMD_NODENAME": "n1", "SRUN_DEBUG": "3",
        "SBATCH_TIMELIMIT": "5", "RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "1", "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "x", "CUDA_VISIBLE_DEVICES": "0", "HPC_LAUNCH": "{}", "PMIX_RANK": "0",
        "SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "me", "HPC_RESULTS": "/results",
    }  # fmt: skip
    kept = {"PATH", "SLURM_CONF", "SBATCH_ACCOUNT", "HPC_RESULTS"}
    monkeypatch.setattr(os, "environ", inside)
    assert slurm_commands.clean_environment() == {name: inside[name] for name in kept}


@pytest.mark.parametrize(
    ("state", "waits", "over"),
    [
        ("PENDING", True, False),
        ("RESV_DEL_HOLD", True, False),
        ("RUNNING", False, False),
        ("REVOKED", False, True),
        ("A_STATE_OF_A_LATER_SLURM", False, True),
    ],
)
def test_any_state_that_is_not_known_is_a_final_one(state: str, waits: bool, over: bool) -> None:
    found = JobState(state)
    assert (str(found), found.is_waiting, found.is_over) == (state, waits, over)
    assert Entry("1", "run", "study", found).is_over == over


def test_a_refusal_comes_with_slurms_words_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    refusing = tmp_path / "sbatch"
    refusing.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpuu' >&2; exit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(slurm_commands.SlurmError, match=r"no squeue here: .*hpc cluster up.*hpc study run"):
        slurm_commands.ask(["squeue"])
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(slurm_commands.SlurmError, match=r"(?s)sbatch refused .*partition specified: gpuu.*sinfo -s"):
        slurm_commands.sbatch(["--partition=gpuu"], tmp_path / "x.sbatch")


def test_tasks_of_an_array_that_never_started_are_known(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    rows = ["7_[0-1,3%2]|CANCELLED by 0|0:0|None|x|/f", "7_2|COMPLETED|0:0|n1|x|/f", "7_2.batch|FAILED|1:0|n1|x|/f"]
    for name, output in (("sacct", rows), ("squeue", []), ("sinfo", [])):
        (tmp_path / name).write_text("\n".join(["#!/bin/sh", *(f"echo '{row}'" for row in output), ""]))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = {name: str(job.state) for name, job in slurm_commands.jobs(["7"]).items()}
    assert found == {**dict.fromkeys(("7_0", "7_1", "7_3"), "CANCELLED"), "7_2": "COMPLETED"}
    with pytest.raises(slurm_commands.SlurmError, match="partition 'none-such'"):
        slurm_commands.nodes("none-such")


def test_no_argument_reaches_a_shell(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Whatever a name holds, the command gets it as it stands."""
    told = tmp_path / "told"
    listening = tmp_path / "sbatch"
    listening.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {told}; echo '17;cluster'\n")
    listening.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    hostile = "--comment=$(touch pwned); `touch pwned` 'x' \"y\""
    assert slurm_commands.sbatch([hostile], tmp_path / "a b.sbatch", ["-p", "x=; rm -rf ~"]) == "17"
    assert told.read_text().splitlines() == [
        "--parsable",
        hostile,
        str(tmp_path / "a b.sbatch"),
        "-p",
        "x=; rm -rf ~",
    ]
    assert not (tmp_path / "pwned").exists()
