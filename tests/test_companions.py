"""The core without its companions: a copy of the project from which they are deleted, with their chapters and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.source_code import code_cells

from .support import soak

ROOT = paths.root()
COMPANIONS = sorted(package.parent.name for package in ROOT.glob("companions/*/__init__.py"))
LIMIT = 400  # s for one command
# Of plan, run and report, and of what pages say.
TESTS = (
    "tests/cli/test_help.py",
    "tests/launch/test_run.py::test_run_that_goes_well",
    "tests/launch/test_symptoms.py",
    "tests/publish/test_plan_table.py",
    "tests/publish/test_report.py",
    "tests/test_pages.py::test_every_command_can_be_parsed",
)


def copy_project(target: Path) -> None:
    """The files of the clone; the committed results are those of the clone, which nothing here writes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ":!results/reference"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("no clone, whose files git lists")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # not deleted since
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / "results").mkdir(exist_ok=True)
    (target / "results/reference").symlink_to(ROOT / "results/reference")


def delete_companions(project: Path, names: Iterable[str]) -> None:
    """Delete the folders of these companions, and the notebooks that import them."""
    for name in names:
        shutil.rmtree(project / "companions" / name)
        imports = re.compile(rf"^(?:from|import) companions\.{name}\b", re.MULTILINE)
        for notebook in project.glob("notebooks/*.ipynb"):
            if any(imports.search(cell) for cell in code_cells(notebook.read_text())):
                notebook.unlink()


@pytest.fixture
def run_in_copy(tmp_path: Path) -> Callable[..., str]:
    """Runs a tool of the environment in the copy, on the code of the copy; it must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(tmp_path)}

    def run(tool: str, *arguments: str) -> str:
        command = [str(Path(sys.executable).parent / tool), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == 0, f"{tool} {arguments}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        return done.stdout

    return run


@pytest.mark.timeout(900)
@pytest.mark.parametrize("names", [COMPANIONS, *(soak([name]) for name in COMPANIONS)], ids=" ".join)
def test_what_remains_works_without_companions(
    names: list[str], tmp_path: Path, run_in_copy: Callable[..., str]
) -> None:
    copy_project(tmp_path)
    delete_companions(tmp_path, names)
    run_in_copy("ruff", "check", "--no-cache", ".")
    run_in_copy("lint-imports", "--no-cache")
    run_in_copy("pytest", "-q", "--collect-only", "-p", "no:cacheprovider")  # no test imports what is deleted
    passed = run_in_copy(
        "pytest", "-q", "-m", "not soak", "-k", "not browser and not trained", "-p", "no:cacheprovider", *TESTS
    )
    assert re.search(r"\d+ passed", passed) and "failed" not in passed
