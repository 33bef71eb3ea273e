"""What the tests of the Open OnDemand app share: the app, and a dashboard that launches it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
