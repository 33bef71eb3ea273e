"""Which errors are one message and an exit code, and which keep their traceback."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hpc_utils import cli


def run(error: Exception) -> Result:
    def fail() -> None:
        raise error

    return CliRunner().invoke(cli.Commands(commands=[click.Command("any", callback=fail)]), ["any"])


@pytest.mark.parametrize("number", sorted(cli.OF_FILES))
def test_a_file_system_error_names_the_file(number: int) -> None:
    done = run(OSError(number, os.strerror(number), "/some/where"))
    assert done.exit_code == 1 and done.stderr.strip() == f"error: /some/where: {os.strerror(number)}"


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (OSError(errno.EACCES, "Permission denied", "/from", None, "/to"), "error: /to: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "error: No space left on device"),
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


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["submit", "laptop"], 2, "--cluster NAME is required: leonardo, "),
        (["verify", "x", "--tolerance", "nan"], 2, "nan is not a finite number"),
        (["export", "laptop-efficiency", "--results", "epyc-2core", "--output", "{}/figures"], 1, "error: {}"),
        (["export"], 2, "either a FIGURE or --list"),
    ],
)
def test_an_invalid_request_is_one_message(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    file = tmp_path / "file"
    file.write_text("a file")
    done = CliRunner().invoke(cli.main, [word.format(file) for word in words])
    assert done.exit_code == code and message.format(file) in done.stderr
