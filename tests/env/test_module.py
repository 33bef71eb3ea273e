"""The module file, loaded and unloaded by a real Lmod."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "env/modules/scaling-compendium.lua"
INIT = Path("/usr/share/lmod/lmod/init/bash")  # Debian's


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with the module file and an environment whose `hpc` says where it lies."""
    root = tmp_path / "clone"
    (root / "env/modules").mkdir(parents=True)
    shutil.copy(MODULE, root / "env/modules")
    (root / ".venv/bin").mkdir(parents=True)
    for name in ("python", "hpc"):
        (root / ".venv/bin" / name).write_text("#!/bin/sh\necho here\n")
        (root / ".venv/bin" / name).chmod(0o755)
    return root


def shell(clone: Path, script: str, **environment: str) -> subprocess.CompletedProcess:
    """What a user's bash with Lmod says to `script`."""
    if not INIT.exists():
        if os.environ.get("CI") and sys.platform == "linux":
            pytest.fail("CI installs lmod")
        pytest.skip("Lmod is not installed (Debian: apt-get install lmod)")
    known = {"PATH": "/usr/bin:/bin", "HOME": str(clone.parent), "MODULES": str(clone / "env/modules")}
    script = f"source {INIT}\nmodule use $MODULES\n{script}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script],
        env=known | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def variables(said: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in said.splitlines() if re.match(r"\w+=", line))


def test_loading_gives_the_clones_environment(clone: Path) -> None:
    load = "module load scaling-compendium && command -v hpc && hpc && env"
    done = shell(clone, load, PYTHONHOME="/theirs", HPC_RESULTS="/mine")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [str(clone / ".venv/bin/hpc"), "here"]
    found = variables(done.stdout)
    assert found["VIRTUAL_ENV"] == str(clone / ".venv")
    assert found["HPC_COMPENDIUM"] == str(clone)
    assert found["PYTHONNOUSERSITE"] == "1"
    assert not {"PYTHONHOME", "HPC_DATA"} & found.keys()
    assert found["HPC_RESULTS"] == "/mine"


def test_unloading_takes_it_back(clone: Path) -> None:
    done = shell(clone, "env; echo ---; module load scaling-compendium; module unload scaling-compendium; env")
    before, after = (variables(part) for part in done.stdout.split("---\n"))
    assert after["PATH"] == before["PATH"]
    assert not {"VIRTUAL_ENV", "HPC_COMPENDIUM", "PYTHONNOUSERSITE", "HPC_RESULTS"} & after.keys()


def test_without_an_environment_it_states_what_to_do(clone: Path) -> None:
    shutil.rmtree(clone / ".venv")
    done = shell(clone, "module load scaling-compendium || exit 7")
    assert done.returncode == 7 and "env/README.md" in done.stderr


def test_a_copy_elsewhere_gets_the_clone_from_a_variable(clone: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(MODULE, site)
    load = "module load scaling-compendium && command -v hpc || exit 7"
    assert "lies outside a clone" in " ".join(shell(clone, load, MODULES=str(site)).stderr.split())
    done = shell(clone, load, MODULES=str(site), HPC_COMPENDIUM=str(clone))
    assert done.stdout.strip() == str(clone / ".venv/bin/hpc")


def test_whatis_is_in_step() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f'whatis("Version: {version}")' in MODULE.read_text()
