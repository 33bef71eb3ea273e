"""Which errors are one message and an exit code, and which keep their traceback."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hpc_utils import cli, rehearsal, workspace
from hpc_utils.launch import slurm_commands
from hpc_utils.launch.slurm_commands import JobState
from hpc_utils.launch.submit import Submission


@pytest.mark.parametrize(
    ("error", "message"),
    [
        *(
            (OSError(number, os.strerror(number), "/some/where"), f"/some/where: {os.strerror(number)}")
            for number in cli.OF_FILES
        ),
        (OSError(errno.EACCES, "Permission denied", "/from", None, "/to"), "/to: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EPERM, "Operation not permitted"), None),  # of a process
        (FileNotFoundError(errno.ENOENT, "No such file", "lost"), None),  # our own file
    ],
)
def test_a_file_system_error_names_the_file_and_others_keep_their_traceback(
    error: OSError, message: str | None
) -> None:
    def fail() -> None:
        raise error

    done = CliRunner().invoke(cli.Commands(commands=[click.Command("any", callback=fail)]), ["any"])
    assert done.exit_code == 1
    if message:
        assert done.stderr.startswith(f"error: {message}")
    else:
        assert done.exception is error


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["submit", "laptop"], 2, "--cluster NAME is required: ibex, "),
        (["export", "laptop-efficiency", "--results", "epyc-2core", "--output", "{}/figures"], 1, "error: {}"),
        (["cancel", "strogn"], 2, "no job of 'strogn'"),
        (["bench", "compute", "--batches", "8,x"], 2, "'8,x': give whole numbers"),
        (["study", "plan", "./my-net.toml"], 2, "no file ./my-net.toml"),
        (["cluster", "init", "rehearsal"], 2, "rehearsal.toml exists already"),  # needs no Slurm
    ],
)
def test_an_invalid_request_is_one_message(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    file = tmp_path / "file"
    file.write_text("a file")
    done = CliRunner().invoke(cli.main, [word.format(file) for word in words])
    assert done.exit_code == code and message.format(file) in done.stderr


def test_a_dry_run_names_what_the_cluster_file_leaves_open(results: Path) -> None:
    done = CliRunner().invoke(cli.main, ["submit", "laptop", "--cluster", "leonardo", "--dry-run"])
    assert done.exit_code == 0 and ": account;" in done.stderr


def test_what_a_cluster_has_is_shown_by_its_file(results: Path) -> None:
    done = CliRunner().invoke(cli.main, ["cluster", "show", "leonardo"])
    assert done.exit_code == 0
    facts = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    assert (facts["gpus"], facts["gpu"], facts["unit"]) == (["4"], ["a100"], ["core-hours"])
    assert facts["network:"] == ["interface", "=", "ib0,", "link_gbit", "=", "400.0"]
    assert any("python/3.11.7" in word for word in facts["software:"])


def test_the_status_next_to_a_half_dead_rehearsal_cluster_is_that_of_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find() -> None:
        raise rehearsal.ClusterError("cluster rehearsal has lost slurmdbd")

    monkeypatch.setattr(rehearsal, "find_cluster", find)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    with workspace.using(HPC_RESULTS=str(tmp_path)):
        Submission.begin("strong", "strong", "rehearsal", "cpu").add("7", [["a-run"]])
        done = CliRunner().invoke(cli.main, ["status"])
        assert done.exit_code == 0 and done.stderr.startswith("cluster rehearsal has lost slurmdbd")
        assert done.stdout.endswith("1 LOST\n") and "`hpc retry`" in done.stdout
        assert CliRunner().invoke(cli.main, ["submit", "strong", "--cluster", "rehearsal"]).exit_code == 2


def test_a_watched_status_shows_each_change_once_and_ends_with_the_last_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([JobState("PENDING"), JobState("RUNNING"), JobState("RUNNING"), JobState("FAILED")])
    monkeypatch.setattr(cli.jobs, "connect_to_submissions", lambda study: ())
    monkeypatch.setattr(slurm_commands, "pauses", lambda: itertools.repeat(0))
    with workspace.using(HPC_RESULTS=str(tmp_path)):
        made = Submission.begin("strong", "strong-there", "there", "cpu")
        made.add("7", [])
        named = {"name": f"{made.job_name}-report"}
        monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {"7": slurm_commands.Job("7", next(states), **named)})
        done = CliRunner().invoke(cli.main, ["status", "--watch"])
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[:-1]] == ["PENDING", "RUNNING", "FAILED"]
    assert done.stdout.splitlines()[-1] == "1 FAILED"
