"""Small notebooks, a workload that fails on demand, and `hpc` as a user runs it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest

from hpc_utils import provenance, workspace
from hpc_utils.launch import process_tree
from hpc_utils.records.folder import read_json
from tests.command import Command
from tests.support import wait_for

HPC = [sys.executable, "-m", "hpc_utils.cli"]
HANG = 150  # s after which a run that should have ended counts as hung

PARAMETERS = """
workload = "faulty:workload"
epochs = 1
steps_per_epoch = 6
lr_warmup_epochs = 0
warmup_steps = 0
evaluate_every = 0
"""
TRAIN = """
from hpc_utils.config import RunConfig
from hpc_utils.train import train

config = RunConfig.from_notebook(globals())
result = train(config)
"""
# $FAULT is what goes wrong, on rank $FAULT_RANK, in the third forward pass: inside training, others in a collective.
FAULTY = """
import ctypes, os, signal, sys, time

import torch
from hpc_utils.train import Workload


def misbehave(how):
    if how == "raise":
        raise ValueError("step three went wrong")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        open("hanging", "w").close()
        time.sleep(600)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = torch.nn.Linear(4, 2), 0

    def forward(self, inputs):
        self.calls += 1
        if self.calls == 3 and os.environ.get("RANK", "0") == os.environ.get("FAULT_RANK", "1"):
            misbehave(os.environ.get("FAULT"))
        return self.linear(inputs)


def workload():
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(256, 4), torch.randint(2, (256,)))
    return Workload(Model, data, data, torch.nn.functional.cross_entropy)
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float


class Started:
    """A command under way."""

    def __init__(self, process: subprocess.Popen | Command) -> None:
        self.process, self.begun = process, time.monotonic()

    def end(self) -> Outcome:
        try:
            out, err = self.process.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"still running after {HANG} s: {self.process.args}")
        return Outcome(self.process.returncode, out, err, time.monotonic() - self.begun)


class Bench:
    """A working folder with results of its own.

    Attributes:
        folder: where notebooks lie and commands run. results: what HPC_RESULTS says.
        server: the process that commands are forked from; 0: they start as a user's do.
    """

    def __init__(self, folder: Path, server: int = 0) -> None:
        self.folder, self.results, self.server = folder, folder / "results", server
        self._commands: list[Started] = []
        (folder / "faulty.py").write_text(FAULTY)

    def notebook(self, *cells: str | tuple[str, str], name: str = "nb", parameters: str | None = PARAMETERS) -> Path:
        """A notebook of code cells, each its source or (source, tag)."""
        front = [] if parameters is None else [(parameters.strip(), "parameters")]
        path = self.folder / f"{name}.ipynb"
        nbformat.write(notebook([*front, *cells]), path)
        return path

    def start(self, *arguments: object, **env: object) -> Started:
        """Start `hpc` with `arguments`."""
        command = [str(argument) for argument in arguments]
        ours = {"HPC_RESULTS": self.results, "IPYTHONDIR": self.folder / "ipython"}
        environment = workspace.child_environment() | {name: str(value) for name, value in (ours | env).items()}
        if self.server:
            process = Command(command, self.folder, environment)
        else:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = subprocess.Popen([*HPC, *command], cwd=self.folder, env=environment, **pipes)
        self._commands.append(Started(process))
        return self._commands[-1]

    def hpc(self, *arguments: object, **env: object) -> Outcome:
        """`hpc` with `arguments`, to its end."""
        return self.start(*arguments, **env).end()

    @property
    def runs(self) -> list[Path]:
        return sorted(self.results.glob("runs/*"))

    @property
    def run(self) -> Path:
        """The one run's folder."""
        (run,) = self.runs
        return run

    @property
    def hpc_pid(self) -> int:
        """The process id of the last command."""
        return self._commands[-1].process.pid

    def status(self) -> dict:
        return read_json(self.run / "status.json")

    wait_for = staticmethod(wait_for)

    def left(self) -> list[psutil.Process]:
        """What commands have started and is still there; after their end it has a moment to end too."""
        running = {command.process.pid for command in self._commands if command.process.returncode is None}
        deadline = time.monotonic() + 5
        while (found := self._descendants(running)) and not running and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def _descendants(self, commands: set[int]) -> list[psutil.Process]:
        found = {process.pid: process for pid in commands - {None} for process in _children(pid)}
        found |= {process.pid: process for process in (_children(self.server) if self.server else ())}
        owned = process_tree.find_processes(lambda launch: launch.owner.startswith(str(self.results)))
        found |= {process.pid: process for process in owned}
        return [process for pid, process in found.items() if pid not in commands]


@pytest.fixture
def bench(tmp_path: Path, server: int) -> Iterator[Bench]:
    """A fresh bench; whatever a test left running is ended."""
    bench = Bench(tmp_path, server)
    yield bench
    process_tree.kill([*bench.left(), *_children(server)])


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def notebook(cells: Sequence[str | tuple[str, str]]) -> nbformat.NotebookNode:
    """Code cells, each its source or (source, tag)."""
    new = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    for cell in cells:
        source, *tags = [cell] if isinstance(cell, str) else cell
        new.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": tags}))
    return new


def kept(run: Path) -> nbformat.NotebookNode:
    """The executed notebook that a run kept."""
    return nbformat.read(run / "notebook.ipynb", 4)


def is_marked_failed(run: Path) -> bool:
    """Whether the kept notebook says on top that the run failed."""
    first = kept(run).cells[0]
    return first.cell_type == "markdown" and "FAILED" in first.source and "incomplete" in first.source


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """`write(text)`: a study file's path, on a machine whose processor has bf16, with an empty result set."""
    monkeypatch.setattr(provenance, "emulates_bf16", lambda: False)
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))

    def write(text: str) -> str:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return str(path)

    return write
