"""The supported versions, a table in env/README.md: pages, pyproject.toml and CI agree with it, and `make test-versions` tries each row.

A row's environment in `.venv-versions` has what pip chooses for it within pyproject.toml's ranges; a row without an interpreter is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from hpc_utils import paths, records
from tests import pages
from tests.pages import ROOT, Desk

TABLE = (
    (ROOT / "env/README.md").read_text().partition("| Python | torch | NumPy | pandas |\n")[2].partition("\n\n")[0]
)
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "env/README.md", *ROOT.glob("paper/*.md")]
NEWEST = "newest"  # that pip finds

IMPORTS = """
import importlib.util, pkgutil
import papermill  # which imports the engine itself
import companions, hpc_utils
for package in (hpc_utils, companions):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if ".tests" in module.name or module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # of a package that an extra brings
            if importlib.util.find_spec(error.name.partition(".")[0]):
                raise
"""


class Row(NamedTuple):
    """Versions to try together, as their first numbers; of the packages also NEWEST."""

    python: str
    torch: str
    numpy: str
    pandas: str

    def __str__(self) -> str:
        return f"python{self.python}-torch{self.torch}-numpy{self.numpy}-pandas{self.pandas}"

    def requirements(self) -> list[str]:
        packages = {name: version for name, version in self._asdict().items() if name != "python"}
        return [name if version == NEWEST else f"{name}=={version}.*" for name, version in packages.items()]


EXTRAS = re.search(r"'(\.\[dev,.*?\])'", (ROOT / "Makefile").read_text())[1]  # that `make test` installs
ROWS = [Row(*re.findall(r"[\w.]+", line)) for line in TABLE.splitlines()[1:]]


def oldest(name: str) -> str:
    return min({getattr(row, name) for row in ROWS} - {NEWEST}, key=Version)


def interpreter(version: str) -> str | None:
    """The path of a Python of this version; pyenv's commands ask for it in a variable."""
    try:
        done = subprocess.run(
            [f"python{version}", "-c", "import sys; print(sys.executable)"],
            env=os.environ | {"PYENV_VERSION": version},
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


class Environment(NamedTuple):
    row: Row
    bin: Path
    desk: Desk

    def run(self, command: str) -> subprocess.CompletedProcess:
        """A command with the row's versions, which must succeed."""
        done = self.desk.run(command, PATH=f"{self.bin}{os.pathsep}{os.environ['PATH']}", PYTHONPATH="")
        assert done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture(scope="module", params=ROWS, ids=str)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    row = request.param
    python = interpreter(row.python)
    if python is None:
        pytest.skip(f"no python{row.python} here")
    folder = ROOT / ".venv-versions" / str(row)
    subprocess.run([python, "-m", "venv", folder], check=True)
    install = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--upgrade", *row.requirements()]
    subprocess.run([*install, "--editable", ROOT], check=True)
    with tempfile.TemporaryDirectory(prefix="hpc-") as clusters:
        yield Environment(row, folder / "bin", Desk(tmp_path_factory.mktemp("versions"), clusters))


def test_the_pages_the_project_and_ci_agree_with_the_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = project["requires-python"].removeprefix(">=")
    assert python.startswith(f"{oldest('python')}.")
    ranges = {found.name: found.specifier for found in map(Requirement, project["dependencies"])}
    for name in ("torch", "numpy", "pandas"):
        assert f">={oldest(name)}" in map(str, ranges[name]), name
    pythons = sorted({row.python for row in ROWS}, key=Version)
    assert re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])) == pythons
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert jobs["versions"]["strategy"]["matrix"]["python"] == pythons
    text = "\n".join(re.sub(r"\[|\]\{\.setting\}", "", page.read_text()) for page in PAGES)
    assert set(re.findall(r"Python (3[.\d]+)\s+or\s+newer", text)) == {python}
    assert set(re.findall(r"torch (2[.\d]+)\s+(?:or newer|and later)", text, re.I)) == {oldest("torch")}
    assert f"Python {pythons[0]} to {pythons[-1]}" in (ROOT / "README.md").read_text()


@pytest.mark.soak
@pytest.mark.timeout(3600)  # the first one installs the packages
class TestRow:
    """What each row must do."""

    def test_every_module_without_an_extra_is_imported(self, environment: Environment) -> None:
        (environment.desk.folder / "imports.py").write_text(IMPORTS)
        environment.run("python imports.py")

    def test_a_study_has_figures_and_a_report_and_others_read_its_records(self, environment: Environment) -> None:
        environment.run("hpc study run laptop --repeats 1 --only precision=fp32")
        results = environment.desk.results
        found = records.load(results, study="laptop")
        runs = found.runs
        assert len(runs) == 4 and not found.refused
        wanted = environment.row.torch
        assert runs.torch.nunique() == 1 and (wanted == NEWEST or runs.torch[0].startswith(f"{wanted}."))
        assert runs.test_accuracy.min() > 0.9, "it learns"
        assert (results / "report/laptop/index.html").read_text().count("<article") == 4
        if not runs.oversubscribed.any():
            assert (results / "figures/laptop-efficiency.pdf").exists()

    def test_profiles_are_explained(self, environment: Environment) -> None:
        """The page's, with its numbers, and one that this torch writes."""
        page = (ROOT / "docs/read-a-profile.md").read_text()
        unpack, explain, *_ = pages.commands(page, "sh")
        environment.run(unpack)
        pages.require_shown(pages.outputs(page)[explain], environment.run(explain).stdout, exact=True)
        environment.run("hpc run notebooks/02_ddp.ipynb --nproc 2 -p profile=torch")
        (run,) = {path.parent.parent for path in environment.desk.results.glob("runs/*/profile/rank1.*")}
        assert json.loads(environment.run(f"hpc explain {run} --json").stdout)["verdict"]

    @pytest.mark.parametrize(("kept", "study"), [("h200", "gpu-speed"), ("epyc-2core", "laptop")])
    def test_committed_records_give_the_committed_tables(
        self, environment: Environment, kept: str, study: str
    ) -> None:
        """Those of Python 3.12 with torch 2.11, and of 3.11 with 2.13; but for how NumPy rounds."""
        chapters_output = shutil.ignore_patterns("exports", "figures", "notebooks", "tables")
        copy = shutil.copytree(paths.reference() / kept, environment.desk.folder / kept, ignore=chapters_output)
        environment.run(f"hpc chapter 06_paper_figures --results {copy} -p study={study}")
        tables = list((paths.reference() / kept / "tables").glob(f"{study}-*.csv"))
        assert tables
        for table in tables:
            ours, theirs = (pd.read_csv(path) for path in (copy / "tables" / table.name, table))
            pd.testing.assert_frame_equal(ours, theirs, rtol=1e-12, atol=0)

    def test_the_pins_can_be_installed(self, environment: Environment) -> None:
        """With the build of torch that pip finds, which is CUDA's on most machines."""
        environment.run(
            f"python -m pip install --quiet --dry-run --constraint {ROOT}/env/constraints.txt {ROOT}/{EXTRAS}"
        )
