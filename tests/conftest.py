"""A reader's desk, where the commands of the project's pages are executed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .pages import Desk


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with tempfile.TemporaryDirectory(prefix="hpc-") as clusters:  # short: sockets lie in it
        desk = Desk(tmp_path_factory.mktemp("desk"), clusters)
        yield desk
        desk.run("hpc cluster down")


@pytest.fixture
def execute(desk: Desk, request: pytest.FixtureRequest) -> Callable[..., subprocess.CompletedProcess]:
    """Execute a command, which must end with one of `codes`; skip without the data set or the Slurm that it needs."""

    def execute(
        command: str, folder: Path | None = None, codes: tuple[int, ...] = (0,), **environment: str
    ) -> subprocess.CompletedProcess:
        needs_data = any(name in command for name in ("cifar10", "mnist", "tiny-imagenet", "make data"))
        if needs_data and not os.environ.get("HPC_DATA_MIRROR"):
            if os.environ.get("CI"):
                pytest.fail("CI sets HPC_DATA_MIRROR to a folder with the data sets")
            pytest.skip("a data set would be downloaded: set HPC_DATA_MIRROR to a local copy")
        if "cluster" in command or "--against" in command:
            request.getfixturevalue("slurm_installed")
        done = desk.run(command, folder, **environment)
        assert done.returncode in codes, done.stdout + done.stderr
        return done

    return execute
