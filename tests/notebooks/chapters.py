"""Chapters executed on a copy of a result set, as `hpc chapter` does."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from hpc_utils import workspace
from hpc_utils.launch.parameters import options
from tests.launch.conftest import HPC

HANG = 400  # s; chapter 03 takes some 20 s, chapter 12 some 90 s
MADE = ("figures", "notebooks", "tables", "exports")  # what chapters made of a set


def said(notebook: Path) -> str:
    """All text that the cells put out."""
    cells = json.loads(notebook.read_text())["cells"]
    parts = [output for cell in cells for output in cell.get("outputs", ())]
    shown = [output.get("data", {}) for output in parts]
    tables = [data.get("text/markdown") or ("text/html" in data and data["text/plain"]) for data in shown]
    texts = [output.get("text") or table for output, table in zip(parts, tables, strict=True)]
    return "\n".join("".join(text) for text in texts if text)


def hpc(folder: Path, results: Path, *arguments: str) -> str:
    """What `hpc` prints, called in a folder, which must succeed."""
    environment = workspace.child_environment()
    environment |= {"HPC_RESULTS": str(results), "HPC_SHARED": ""}  # figures are drawn of these runs
    # A temporary folder of its own has the lock of the cores: no other test's runs are waited for.
    with tempfile.TemporaryDirectory(prefix="hpc-") as own:
        done = subprocess.run(
            [*HPC, *arguments],
            cwd=folder,
            env=environment | {"TMPDIR": own},
            capture_output=True,
            text=True,
            timeout=HANG,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def executed(tmp_path: Path):
    def execute_on(results: Path, chapter: str = "03_scaling", **parameters: object) -> tuple[str, set[str]]:
        """What the chapter says of a copy of `results`, and which figures it draws."""
        copy = tmp_path / "results"
        shutil.copytree(results, copy, ignore=shutil.ignore_patterns(*MADE), dirs_exist_ok=True)
        *_, output = hpc(tmp_path, copy, "chapter", chapter, *options(parameters)).splitlines()
        return said(Path(output)), {path.stem for path in (copy / "figures").glob("*.pdf")}

    return execute_on
