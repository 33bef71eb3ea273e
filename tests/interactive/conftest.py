"""An IPython shell that runs `%%px` cells as a notebook does, and a look at what is left of a set."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell

from hpc_utils.workspace import Launch

HANG = 120  # s after which something that should have ended counts as hanging


KERNEL = """
import pathlib, time
from hpc_utils.interactive.engines import start
crew = start({arguments})
pathlib.Path("started").touch()
time.sleep(600)
"""


@dataclass
class Notebook:
    """Runs cells; a cell that raises raises here."""

    shell: InteractiveShell

    def run(self, cell: str) -> None:
        result = self.shell.run_cell(cell)
        if error := result.error_before_exec or result.error_in_exec:
            raise error

    def px(self, code: str, options: str = "") -> None:
        self.run(f"%%px {options}\n{code}")


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    InteractiveShell.clear_instance()
    yield Notebook(InteractiveShell.instance())
    InteractiveShell.clear_instance()


def members(folder: Path) -> list[psutil.Process]:
    """The processes on this machine that belong to the set of `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            if Launch.of(process.environ()).owner == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def wait_until_gone(folder: Path, within: float = HANG) -> None:
    """Fail unless the set's processes and its folder have gone `within` s."""
    until = time.monotonic() + within
    while members(folder) or folder.exists():
        assert time.monotonic() < until, f"left: {members(folder)}, folder: {folder.exists()}"
        time.sleep(0.1)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen]]:
    """`kernel(arguments)`: another process that starts engines; waits for its file `until`, by default for the engines."""
    processes = []

    def run(arguments: str, until: str = "started") -> subprocess.Popen:
        processes.append(subprocess.Popen([sys.executable, "-c", KERNEL.format(arguments=arguments)], cwd=tmp_path))
        deadline = time.monotonic() + HANG
        while not (tmp_path / until).exists():
            assert time.monotonic() < deadline, f"{until} did not come"
            time.sleep(0.05)
        return processes[0]

    yield run
    for process in processes:
        process.kill()
        process.wait()
