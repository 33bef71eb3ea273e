"""The project as a whole: files that must agree, and imports that stay light."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# conda-forge's names for what PyPI calls otherwise
CONDA = {"pytorch": "torch", "matplotlib-base": "matplotlib"}


def requirements(lines: list[str]) -> dict[str, Requirement]:
    return {requirement.name.lower(): requirement for requirement in map(Requirement, lines)}


def test_conda_and_pip_ask_for_the_same() -> None:
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = requirements([line for line in listed if isinstance(line, str)])
    wanted = requirements(PROJECT["dependencies"])
    assert str(conda.pop("python").specifier) == PROJECT["requires-python"]
    ranges = {CONDA.get(name, name): requirement.specifier for name, requirement in conda.items()}
    assert {name: requirement.specifier for name, requirement in wanted.items()}.items() <= ranges.items()
    assert ranges.keys() - wanted.keys() == {"pip", "git", "make"}


def test_the_pins_lie_within_the_ranges_and_name_no_build() -> None:
    lines = (ROOT / "env/constraints.txt").read_text().splitlines()
    pinned = requirements([line for line in lines if line and not line.startswith("#")])
    extras = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    for name, requirement in requirements(PROJECT["dependencies"] + extras).items():
        version = str(pinned[name].specifier).removeprefix("==")
        assert requirement.specifier.contains(version), f"{name}=={version} is outside {requirement.specifier}"
        assert "+" not in version, "a local version resolves on one kind of machine only"


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_chapters_without_outputs(notebook: Path) -> None:
    """They begin with a title, and cells are short, but for files that they write for the reader."""
    cells = json.loads(notebook.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert cells[0]["cell_type"] == "markdown" and "".join(cells[0]["source"]).startswith("# ")
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    code = [source for source in code if not source.startswith("%%writefile")]
    assert max(source.count("\n") for source in code) < 25
    assert not [source for source in code if re.search(r"^(def|class) ", source, re.M)], "logic belongs to hpc_utils"


def test_training_notebooks_have_a_parameters_cell_of_known_options() -> None:
    from hpc_utils.config import RunConfig
    from hpc_utils.launch import parameters

    for name in ("01_baseline", "02_ddp"):
        found = parameters.defaults(ROOT / f"notebooks/{name}.ipynb")
        assert found.keys() <= RunConfig.model_fields.keys()
        RunConfig(**found)


def imported(*statements: str) -> set[str]:
    code = f"{'; '.join(statements)}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("room", "never"),
    [
        ("hpc_utils.config", {"torch", "numpy", "pandas"}),
        ("hpc_utils.datasets", {"torch", "pandas", "pooch"}),
        ("hpc_utils.provenance", {"torch", "numpy", "pandas"}),
        ("hpc_utils.records", {"torch", "pandas"}),
        ("hpc_utils.launch.study", {"torch", "pandas"}),
        ("hpc_utils.analyze.profiles.nsys", {"torch", "pandas"}),
        ("hpc_utils.train", {"IPython", "papermill"}),
        ("hpc_utils.interactive.engines", {"torch", "pandas", "matplotlib"}),
        ("hpc_utils.cli", {"torch", "numpy", "pandas", "papermill", "IPython"}),
    ],
)
def test_an_import_loads_no_heavy_package(room: str, never: set[str]) -> None:
    """Importing a room is quick; what its functions may import is checked by import-linter (pyproject.toml)."""
    assert not imported(f"import {room}") & never


def test_make_help_names_every_target_and_clean_deletes_no_results() -> None:
    def make(*words: str) -> str:
        return subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout

    listed, clean = make("help"), make("-n", "clean")
    for target in ("study", "paper", "test", "lint", "lab", "data", "bench", "soak", "clean"):
        assert f"make {target} " in listed
    assert "rm -rf" in clean and not re.search(r"\b(results|data)\b", clean)
