"""What the tests of the Open OnDemand app share: the app, a dashboard that launches it, and the Slurm that runs it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpc_utils.launch.slurm_commands import clean_environment
from hpc_utils.rehearsal import Cluster
from tests.support import wait_for

HERE = Path(__file__).parent
APP = HERE.parents[1] / "env/ondemand"
VALUES = {  # what a browser sends: strings
    "bc_queue": "gpu", "bc_account": "", "reservation": "", "gpus": "1", "cores": "2", "memory": "2", "bc_num_hours": "1",
}  # fmt: skip


class RefusedError(Exception):
    """The dashboard shows this above the form and submits nothing."""


def program(name: str) -> str:
    """Where a program is; a test that needs it is skipped without, and fails in CI, which installs it."""
    if found := shutil.which(name):
        return found
    if os.environ.get("CI") and sys.platform == "linux":
        pytest.fail(f"no {name} on PATH: the CI installs it, so that the Open OnDemand app is tried for real")
    pytest.skip(f"no {name} on PATH")


def dashboard(*arguments: str | Path, values: dict[str, str] | None = None) -> str:
    """What `dashboard.rb` prints, with every warning of Ruby's an error."""
    command = [program("ruby"), "-w", HERE / "dashboard.rb", *arguments]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RefusedError(done.stderr.strip())
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="session")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, list[str]]]:
    """`launch(working_dir, **values)`: the staged session's folder, and sbatch's arguments."""

    def launch(working_dir: Path | str, **values: Any) -> tuple[Path, list[str]]:
        folder = tmp_path_factory.mktemp("ood") / "session"
        sent = VALUES | {"working_dir": str(working_dir)} | values
        return folder, json.loads(dashboard("launch", APP, folder, values=sent))

    return launch


@pytest.fixture(scope="session")
def slurm(cluster: Cluster) -> Callable[..., str]:
    """Run one of Slurm's commands for that cluster; what it prints."""
    environment = clean_environment() | cluster.environment()

    def slurm(*command: str | Path, script: str | None = None) -> str:
        done = subprocess.run(
            [str(part) for part in command], input=script, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return slurm


@contextlib.contextmanager
def submitted(
    slurm: Callable[..., str], folder: Path, arguments: list[str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A launched session's job until the end of the block: its id, its node, and what connection.yml says."""
    job = slurm("sbatch", *arguments, script=(folder / "job_script_content.sh").read_text())
    log, connection = folder / "output.log", folder / "connection.yml"
    try:

        def settled() -> bool:
            written = connection.exists() and connection.stat().st_size > 0
            return written or not slurm("squeue", "--noheader", "--jobs", job, "--states=PENDING,RUNNING")

        wait_for(settled, every=0.2)
        assert connection.exists(), log.read_text() if log.exists() else slurm("scontrol", "show", "job", job)
        node = slurm("squeue", "--noheader", "--jobs", job, "--format=%N")
        yield job, node, yaml.safe_load(connection.read_text())
    finally:
        slurm("scancel", "--quiet", job)
