"""A wheel of the clone: in a folder without one, `hpc` reads profiles, logs and tables of others, and says what needs a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hpc_utils import paths

pytestmark = pytest.mark.soak

LOG = "Traceback (most recent call last):\n  File 'train.py', line 3\nModuleNotFoundError: No module named 'torch'\n"
TRACE = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 900}]}'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("hpc_utils", "companions"):
        shutil.copytree(paths.root() / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(paths.root() / name, folder)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, folder], check=True, timeout=200)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["explain", "trace.json"], 0),
        (["diagnose", "job.log"], 1),
        (["import", "theirs.csv", "--map", "theirs.toml", "--dry-run"], 0),
        (["params"], 0),
        (["study", "run", "laptop"], 2),
        (["run", "notebooks/02_ddp.ipynb"], 2),
        (["submit", "laptop", "--cluster", "leonardo"], 2),
    ],
)
def test_a_command_in_an_empty_folder(site: Path, tmp_path: Path, command: list[str], code: int) -> None:
    (tmp_path / "trace.json").write_text(TRACE)
    (tmp_path / "job.log").write_text(LOG)
    (tmp_path / "theirs.csv").write_text("gpus,batch,images,seconds,speed\n1,8,1000,10,100\n2,16,1800,10,180\n")
    columns = (
        'world_size = "gpus"\nglobal_batch = "batch"\nsamples = "images"\nseconds = "seconds"\nthroughput = "speed"\n'
    )
    (tmp_path / "theirs.toml").write_text(
        f'title = "A colleague"\nsource = "a mail"\nthroughput_is = "global"\n[columns]\n{columns}[constants]\nparallel = "ddp"\n'
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HPC_")}
    environment["PYTHONPATH"] = str(site)
    done = subprocess.run(
        [sys.executable, "-m", "hpc_utils.cli", *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    if code == 2:
        assert "clone" in done.stderr and len(done.stderr.splitlines()) == 1
