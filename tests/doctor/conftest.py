"""`hpc doctor` as a user runs it, its ranks as a job script starts them, and facts as ranks measure them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpc_utils.doctor.check import Context, Facts, Observation, Options
from hpc_utils.workspace import RANK_VARIABLES

HANG = 150  # s after which a doctor counts as hung
HERE = Path(__file__).parent


def seen(*facts: Facts, per_node: int = 1) -> list[Observation]:
    """The facts of ranks 0, 1, ..., `per_node` of them on each of node0, node1, ..."""
    return [Observation(f"node{rank // per_node}", rank, one) for rank, one in enumerate(facts)]


def alone(**options: object) -> Context:
    """One rank without a launcher."""
    return Context(Options(**options), mailbox=None, timeout=1.0)


@dataclass(frozen=True)
class Examined:
    """How `hpc doctor` ended."""

    code: int
    out: str
    err: str
    report: dict[str, Any] | None

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The check of that name."""
        assert self.report, self.out + self.err
        return next(check for check in self.report["checks"] if check["name"] == name)

    def verdict(self, name: str) -> str:
        return self[name]["verdict"]


class Doctor:
    """Runs `hpc doctor` with its results and temporary files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"

    def environment(self, **more: object) -> dict[str, str]:
        outer = re.compile(rf"{RANK_VARIABLES.pattern}|HPC_CLUSTER|.*SLURM.*")
        clean = {name: value for name, value in os.environ.items() if not outer.fullmatch(name)}
        mine = {"HPC_RESULTS": self.results, "TMPDIR": self.folder} | more
        return clean | {name: str(value) for name, value in mine.items()}

    def sabotage(self, code: str) -> str:
        """A folder for PYTHONPATH in which `code` is run by every Python as it starts."""
        folder = self.folder / "sabotage"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(textwrap.dedent(code))
        return str(folder)

    def start(self, command: list[str], **env: object) -> subprocess.Popen:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environment(**env), stdout=pipe, stderr=pipe, text=True)

    def end(self, process: subprocess.Popen, copy: Path | None = None) -> Examined:
        try:
            out, err = process.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"still running after {HANG} s: {process.args}")
        kept = sorted(self.results.glob("doctor/*/doctor.json"))
        path = copy or (kept[-1] if kept else None)
        report = json.loads(path.read_text()) if path and path.exists() else None
        return Examined(process.returncode, out, err, report)

    def hpc(self, *arguments: str, prefix: tuple[str, ...] = (), **env: object) -> Examined:
        """`hpc doctor`, under `prefix` if given, to its end."""
        return self.end(self.start([*prefix, sys.executable, "-m", "hpc_utils.cli", "doctor", *arguments], **env))

    def ranks(self, number: int, *arguments: str, **env: object) -> Examined:
        """The module alone on `number` ranks, as a job script starts it; the report is its copy."""
        copy = self.folder / "copy.json"
        launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        ranks = [f"--nproc-per-node={number}", "-m", "hpc_utils.doctor", f"--copy={copy}", *arguments]
        return self.end(self.start([sys.executable, *launcher, *ranks], OMP_NUM_THREADS=1, **env), copy)

    def two_nodes(self, *arguments: str, rate: str = "", on_b: str = "") -> Examined:
        """One rank on each of two nodes with a network and a name of their own; `on_b`: bash to run on the second."""
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.99.0.1 nodea\n10.99.0.2 nodeb\n")
        (self.folder / "rate").write_text(rate)
        copy = self.folder / "copy.json"
        for name, address, before in (("nodea", "10.99.0.1", ""), ("nodeb", "10.99.0.2", on_b)):
            launcher = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
            launcher += ["--rdzv-endpoint=10.99.0.1:29411", f"--local-addr={address}"]
            command = [sys.executable, *launcher, "-m", "hpc_utils.doctor", f"--copy={copy}", *arguments]
            program = self.folder / name
            program.write_text(f"#!/bin/bash\nset -e\n{before}\nexec {shlex.join(command)}\n")
            program.chmod(0o755)
        apart = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.results.mkdir()
        return self.end(self.start([*apart, str(HERE / "nodes.sh"), str(self.folder)]), copy)

    def left(self) -> list[psutil.Process]:
        """Processes of this folder's doctors that are still there."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HPC_RESULTS") == str(self.results):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found


@pytest.fixture
def doctor(tmp_path: Path) -> Iterator[Doctor]:
    """A doctor; what it left running is ended."""
    doctor = Doctor(tmp_path)
    yield doctor
    for process in doctor.left():
        process.kill()


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where no network, name and mounts apart can be had; in CI on Linux as root that is a failure."""
    tools = [name for name in ("unshare", "nsenter", "ip", "tc") if not shutil.which(name)]
    trial = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    works = not tools and subprocess.run(trial, capture_output=True).returncode == 0
    if works:
        return
    if os.environ.get("CI") and sys.platform == "linux" and os.geteuid() == 0:
        pytest.fail(f"namespaces do not work here (missing: {tools})")
    pytest.skip("needs root on Linux, util-linux and iproute2")
