"""Which errors are one message and an exit code, and which keep their traceback."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hpc_utils import cli, rehearsal
from hpc_utils.cli import common


def run(error: Exception) -> Result:
    def fail() -> None:
        raise error

    group = cli.LazyGroup()
    group.get_command = lambda context, name: click.Command(name, callback=fail)
    return CliRunner().invoke(group, ["any"])


@pytest.mark.parametrize("number", cli.REMEDIES)
def test_a_file_system_error_names_the_file_and_the_remedy(number: int) -> None:
    done = run(OSError(number, os.strerror(number), "/some/where"))
    assert done.exit_code == 1
    assert done.stderr.strip() == f"error: /some/where: {os.strerror(number)}: {cli.REMEDIES[number]}"


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (OSError(errno.EACCES, "Permission denied", "/from", None, "/to"), "error: /to: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "error: No space left on device: "),
    ],
)
def test_the_target_of_a_copy_and_a_full_disk(error: OSError, start: str) -> None:
    assert run(error).stderr.startswith(start)


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EPERM, "Operation not permitted"),
        FileNotFoundError(errno.ENOENT, "No such file", "lost"),
    ],
    ids=["of a process", "our own file"],
)
def test_other_errors_keep_their_traceback(error: OSError) -> None:
    assert run(error).exception is error


def test_an_output_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    words = ["export", "laptop-efficiency", "--results", "epyc-2core", "--output", str(tmp_path / "file/figures")]
    done = CliRunner().invoke(cli.main, words)
    assert done.exit_code == 1 and f"error: {tmp_path / 'file/figures'}" in done.stderr


def test_the_records_are_shown_without_a_whole_rehearsal_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> None:
        raise rehearsal.ClusterError("it has lost slurmctld")

    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(rehearsal, "find", find)
    assert not common.connect(True, start=False)
    with pytest.raises(rehearsal.ClusterError, match="lost"):
        common.connect(True)
