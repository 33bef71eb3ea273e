"""A small compendium, real git repositories, and stand-ins for tools that this machine lacks."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpc_utils.provenance import machine
from tests.support import write_files

NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Baseline\n", "One device."]},
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": ["train()\n"]},
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A compendium in small: package, notebook, job, project file."""
    files = {
        "hpc_utils/__init__.py": "",
        "hpc_utils/config.py": "default = 1\n",
        "hpc_utils/train/loop.py": "def train():\n    return 1\n",
        "hpc_utils/publish/page.j2": "{{ title }}\n",
        "notebooks/01_baseline.ipynb": json.dumps(NOTEBOOK),
        "jobs/studies/strong.toml": "ranks = [1, 2]\n",
        "pyproject.toml": "[project]\nname = 'x'\n",
        "README.md": "# A study\n",
        ".gitignore": "__pycache__/\n/results/runs/\n",
    }
    return write_files(tmp_path / "compendium", files)


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run git as a stranger to this machine's own settings."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")

    def run(root: Path, *arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        command = ["git", "-C", str(root), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout.strip()

    return run


@pytest.fixture
def clone(tree: Path, git: Callable[..., str]) -> Path:
    """The small compendium, committed."""
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "first")
    return tree


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a shell script on PATH under a tool's name; no other vendor's tool is seen."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "sleep", "git", "lscpu"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return make


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing seen yet, and no cluster's name or patience from outside."""
    for name in ("HPC_CLUSTER", "HPC_PROBE_TIMEOUT", "HPC_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    machine.hardware.cache_clear()
    yield
    machine.hardware.cache_clear()
