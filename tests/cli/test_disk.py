"""What the file system refuses is told with the file and what to do; only errors of ours have a traceback."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hpc_utils import cli


def _failing(error: OSError) -> click.Group:
    def fail() -> None:
        raise error

    group = cli.Rooms()
    group.get_command = lambda context, name: click.Command(name, callback=fail)
    return group


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "choose another place"),
        (errno.EROFS, "choose another place"),
        (errno.ENOSPC, "make room there"),
        (errno.EDQUOT, "make room there"),
        (errno.EISDIR, "remove it or rename it"),
        (errno.ENOTDIR, "something above it is a file"),
    ],
)
def test_file_reason_and_remedy_are_said(number: int, advice: str) -> None:
    done = CliRunner().invoke(_failing(OSError(number, os.strerror(number), "/some/where")), ["any"])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: /some/where: {os.strerror(number)}: ") and advice in done.stderr


def test_of_a_copy_the_target_is_named() -> None:
    done = CliRunner().invoke(_failing(OSError(errno.EACCES, "Permission denied", "/from", None, "/to")), ["any"])
    assert done.stderr.startswith("error: /to: Permission denied")


def test_what_names_no_file_may_be_about_a_process() -> None:
    done = CliRunner().invoke(_failing(PermissionError(errno.EPERM, "Operation not permitted")), ["any"])
    assert isinstance(done.exception, PermissionError)


def test_without_a_file_the_reason_stands_alone() -> None:
    done = CliRunner().invoke(_failing(OSError(errno.ENOSPC, "No space left on device")), ["any"])
    assert done.stderr.startswith("error: No space left on device: make room")


def test_a_file_that_we_lost_keeps_its_traceback() -> None:
    done = CliRunner().invoke(_failing(FileNotFoundError(errno.ENOENT, "No such file", "lost")), ["any"])
    assert isinstance(done.exception, FileNotFoundError)


def test_an_output_below_a_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here is a file")
    words = ["export", "laptop-efficiency", "--results", "epyc-2core", "--output", str(tmp_path / "file/figures")]
    done = CliRunner().invoke(cli.main, words)
    assert done.exit_code == 1 and f"error: {tmp_path / 'file/figures'}" in done.stderr
    assert "something above it is a file" in done.stderr
