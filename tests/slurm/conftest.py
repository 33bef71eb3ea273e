"""`hpc` as a user of a real cluster runs it: jobs, arrays, dependencies, faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.launch.slurm_commands import clean_environment
from hpc_utils.records.folder import read_json
from hpc_utils.rehearsal import Cluster
from tests.support import wait_for

HANG = 200  # s after which a job that should have come to something counts as hung

STUDY = """
title = "A small study"
repeats = {repeats}

[parameters]
workload = "cnn"
dataset = "digits"
epochs = 2
steps_per_epoch = 6
lr_warmup_epochs = 0
warmup_steps = 1

[[series]]
name = "strong"
notebook = "02_ddp"
ranks = {ranks}
parameters = {{ global_batch = 64 }}
matrix = {{ lr = {rates} }}
"""


class Desk:
    """A user's session on the cluster's login node, with results of its own.

    Attributes:
        folder: where commands run. results: what HPC_RESULTS says. cluster: where jobs go.
    """

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.results, self.cluster = folder, folder / "results", cluster
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        ours = {"HPC_RESULTS": str(self.results), "HPC_DATA": str(self.folder / "data")}
        ours |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        return clean_environment() | self.cluster.environment() | ours

    def run(self, *command: object, check: bool = True, **env: object) -> subprocess.CompletedProcess:
        """A command to its end, from the clone's folder as jobs expect it."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=paths.root(),
            env=self.environment | {name: str(value) for name, value in env.items()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG * 2,
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def hpc(self, *arguments: object, check: bool = True, **env: object) -> subprocess.CompletedProcess:
        return self.run(sys.executable, "-m", "hpc_utils.cli", *arguments, check=check, **env)

    def study(self, *, ranks: str = "[1, 2]", rates: str = "[0.1]", repeats: int = 1, name: str = "small") -> Path:
        """A study file."""
        path = self.folder / f"{name}.toml"
        path.write_text(STUDY.format(ranks=ranks, rates=rates, repeats=repeats))
        return path

    def submit_training(
        self,
        *options: object,
        parameters: dict[str, object],
        nodes: int = 2,
        notebook: object = None,
        script: str = "jobs/train.sbatch",
        **env: object,
    ) -> str:
        """`sbatch jobs/train.sbatch` as a person types it; the job's id."""
        assignments = [word for name, value in parameters.items() for word in ("-p", f"{name}={value}")]
        command = ["sbatch", "--parsable", f"--nodes={nodes}", "--cpus-per-task=1", "--licenses=measure"]
        command += [f"--output={self.folder / '%j.log'}", *options, script]
        command += [notebook] if notebook else []
        return self.run(*command, "-p", "device=cpu", *assignments, **env).stdout.strip()

    def log(self, job: str) -> str:
        path = self.folder / f"{job}.log"
        return path.read_text() if path.exists() else ""

    @property
    def runs(self) -> list[Path]:
        return sorted(self.results.glob("runs/*"))

    def state(self, job: str) -> str:
        """Slurm's word on a job: the queue's, else the accounting's."""
        queue = self.run("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}", check=False)
        return queue.stdout.partition("\n")[0]

    def status(self) -> dict:
        """status.json of the one run."""
        return (read_json(self.runs[0] / "status.json") or {}) if self.runs else {}

    def step(self) -> int:
        """How far the one run is."""
        return (read_json(self.runs[0] / "progress.json") or {}).get("step", 0) if self.runs else 0

    def wait(self, what: Callable[[], object], seconds: float = HANG, every: float = 0.1) -> None:
        """Until `what()` is true."""
        try:
            wait_for(what, seconds, every)
        except AssertionError as error:
            logs = "\n".join(path.read_text(errors="replace") for path in self.folder.rglob("*.log"))
            pytest.fail(f"{error}; logs:\n{logs[-4000:]}")

    def wait_for(self, job: str, *states: str, seconds: float = HANG) -> None:
        self.wait(lambda: self.state(job) in states, seconds, every=0.5)  # each look starts a program


@pytest.fixture
def desk(cluster: Cluster, tmp_path: Path) -> Iterator[Desk]:
    """A fresh session; jobs that a test left are cancelled."""
    desk = Desk(tmp_path / "desk", cluster)
    yield desk
    desk.run("scancel", "--me", check=False)
    desk.wait(lambda: not desk.run("squeue", "--me", "--noheader").stdout.strip())


def submissions(desk: Desk) -> list[dict]:
    """What was submitted."""
    return [json.loads(path.read_text()) for path in sorted(desk.results.glob("submissions/*/submission.json"))]
