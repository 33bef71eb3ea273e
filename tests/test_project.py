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


def pins() -> dict[str, str]:
    lines = (ROOT / "env/constraints.txt").read_text().splitlines()
    found = requirements([line for line in lines if line and not line.startswith("#")])
    return {name: str(requirement.specifier) for name, requirement in found.items()}


def test_conda_and_pip_ask_for_the_same() -> None:
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = requirements([line for line in listed if isinstance(line, str)])
    wanted = requirements(PROJECT["dependencies"])
    tools = {"python", "pip", "git", "make"}
    assert {CONDA.get(name, name): found.specifier for name, found in conda.items() if name not in tools} == {
        name: found.specifier for name, found in wanted.items()
    }
    assert str(conda["python"].specifier) == PROJECT["requires-python"]


def test_the_pins_lie_within_the_ranges_and_name_no_build() -> None:
    pinned = pins()
    extras = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    for name, requirement in requirements(PROJECT["dependencies"] + extras).items():
        version = pinned[name].removeprefix("==")
        assert requirement.specifier.contains(version), f"{name}=={version} is outside {requirement.specifier}"
    assert (pinned["torch"], pinned["torchvision"]) == ("==2.13.0", "==0.28.0")
    assert not [name for name, pin in pinned.items() if "+" in pin], (
        "a local version resolves on one kind of machine only"
    )


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


def test_nothing_committed_names_this_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if listed.returncode:
        pytest.skip("not a git checkout: nothing is committed")
    home = str(Path.home())
    for name in listed.stdout.splitlines():
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        assert str(ROOT).encode() not in content, f"{name} holds this checkout's path"
        assert home == "/" or f"{home}/".encode() not in content, f"{name} holds this user's home"
