"""Programs under a real mpiexec."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from companions.mpi.launcher import Mpi

Mpiexec = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def mpiexec(tmp_path: Path) -> Mpiexec:
    """Run code on that many ranks; one that hangs fails the test."""
    pytest.importorskip("mpi4py")

    def run(ranks: int, code: str) -> subprocess.CompletedProcess:
        program = tmp_path / "program.py"
        program.write_text(code)
        command = [*Mpi().command(ranks), sys.executable, program]
        environment = os.environ | {"UCX_LOG_FILE": "stderr"}  # else UCX warns on stdout, among the program's lines
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )

    return run
