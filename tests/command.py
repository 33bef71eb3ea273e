"""`hpc` as a fork of the tests' forkserver, which has imported what it needs.

    python -m tests.command STDOUT STDERR ARGUMENTS

Its own forkserver is a fork of it for the same reason. Where a test is about what a new process reads, it starts `hpc` as a user does.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import util
from pathlib import Path

from hpc_utils.launch import forkserver


class Command:
    """A command under way, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.args, number = list(arguments), time.monotonic_ns()
        self._streams = [folder / f".{number}.{name}" for name in ("stdout", "stderr")]
        before = os.getcwd()
        os.chdir(folder)
        try:
            self._process = forkserver._fork(
                "tests.command", [*map(str, self._streams), *arguments], environment, log=None
            )
        finally:
            os.chdir(before)
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        out, err = (path.read_text() for path in self._streams)
        return out, err


def _fork_python(path: str, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
    """In place of a new Python, whose last argument is its code."""
    if pid := os.fork():
        return pid
    try:
        sys.modules.pop(forkserver.PRELOAD)  # so that it sets this process up
        exec(arguments[-1], {})
    finally:
        os._exit(1)


if __name__ == "__main__":
    for number, stream in enumerate(sys.argv[1:3], 1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.argv[1:3] = []
    util.spawnv_passfds = _fork_python
    runpy.run_module("hpc_utils.cli", run_name="__main__", alter_sys=True)
