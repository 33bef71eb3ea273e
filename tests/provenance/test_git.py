from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_utils.provenance import commit, dirty
from tests.support import write_files

Git = Callable[..., str]


def test_changed_and_new_code_is_dirty(clone: Path, git: Git) -> None:
    assert (commit(clone), dirty(clone)) == (git(clone, "rev-parse", "HEAD"), False)
    (clone / "hpc_utils/train/loop.py").write_text("def train():\n    return 2\n")
    assert dirty(clone) is True
    git(clone, "checkout", "-q", ".")
    assert dirty(clone) is False
    for name in ("hpc_utils/new.py", "companions/mpi/new.py"):
        write_files(clone, {name: ""})
        assert dirty(clone) is True
        (clone / name).unlink()
    assert dirty(clone) is False


def test_results_studies_modules_of_users_and_ignored_files_are_not_dirty(clone: Path) -> None:
    new = "results/runs/a.json hpc_utils/__pycache__/x.pyc jobs/studies/mine.toml my_study.py paper/mine.md"
    write_files(clone, dict.fromkeys(new.split(), ""))
    assert dirty(clone) is False


def test_notebooks_are_dirty_only_if_their_code_changed(clone: Path) -> None:
    chapter = clone / "notebooks/01_baseline.ipynb"
    saved = json.loads(chapter.read_text())
    (clone / "notebooks/Untitled.ipynb").write_text(chapter.read_text())
    for cell in saved["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"execution_count": 1, "outputs": [{"output_type": "stream", "name": "stdout", "text": ["1"]}]}
    chapter.write_text(json.dumps(saved, indent=1))
    assert dirty(clone) is False
    next(cell for cell in saved["cells"] if cell["cell_type"] == "code")["source"] = "x = 2"
    chapter.write_text(json.dumps(saved))
    assert dirty(clone) is True
    chapter.unlink()
    assert dirty(clone) is True


def test_a_copy_has_no_commit_also_inside_another_repository(clone: Path, tmp_path: Path) -> None:
    for target in (tmp_path / "copied", clone / "vendor/compendium"):
        copied = shutil.copytree(clone, target, ignore=shutil.ignore_patterns(".git", "vendor"))
        assert (commit(copied), dirty(copied)) == (None, None)
    (copied / ".git").mkdir()  # damaged: git passes it by and finds the outer one
    assert commit(copied) is None


def test_inside_a_hook_of_another_repository(
    clone: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = commit(clone)
    (tmp_path / "other").mkdir()
    git(tmp_path / "other", "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert commit(clone) == sha


def test_status_takes_no_lock(clone: Path) -> None:
    index = clone / ".git/index"
    before = index.stat().st_mtime_ns
    (clone / "pyproject.toml").touch()
    assert dirty(clone) is False
    assert index.stat().st_mtime_ns == before
