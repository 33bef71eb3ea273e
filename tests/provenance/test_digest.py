from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hpc_utils
from hpc_utils.provenance import analysis_digest, measuring_digest

from .conftest import NOTEBOOK


def test_it_is_a_sha256_and_repeats(tree: Path) -> None:
    digest = measuring_digest(root=tree)
    assert len(digest) == 64 and int(digest, 16)
    assert measuring_digest(root=tree) == digest
    assert measuring_digest() == measuring_digest()


def test_moving_or_copying_the_tree_changes_nothing(tree: Path, tmp_path: Path) -> None:
    digest = measuring_digest(root=tree)
    shutil.copytree(tree, tmp_path / "another place/copy")
    assert measuring_digest(root=tmp_path / "another place/copy") == digest
    (tmp_path / "link").symlink_to(tree)
    assert measuring_digest(root=tmp_path / "link") == digest


def test_running_the_notebooks_changes_nothing(tree: Path) -> None:
    digest = measuring_digest(root=tree)
    executed = copy.deepcopy(NOTEBOOK)
    executed["cells"][1] |= {
        "execution_count": 7,
        "outputs": [{"output_type": "stream", "name": "stdout", "text": ["loss 0.1\n"]}],
        "metadata": {"collapsed": True},
        "source": "".join(executed["cells"][1]["source"]),
    }
    executed["metadata"] = {"language_info": {"version": "3.13"}}
    (tree / "notebooks/01_baseline.ipynb").write_text(json.dumps(executed, indent=1))
    assert measuring_digest(root=tree) == digest


def test_what_work_leaves_behind_changes_nothing(tree: Path) -> None:
    digest = measuring_digest(root=tree)
    for name in (
        "hpc_utils/__pycache__/loop.cpython-311.pyc",
        "hpc_utils/.DS_Store",
        "hpc_utils/train/.loop.py.swp",
        "hpc_utils/train/loop.py~",
        "notebooks/.ipynb_checkpoints/01_baseline-checkpoint.ipynb",
        "jobs/slurm-4711.out",
        "results/runs/a/record.json",
        "README.md",
        "tests/test_x.py",
    ):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("{}")
    (tree / "hpc_utils/dangling.py").symlink_to("nowhere")
    assert measuring_digest(root=tree) == digest


def test_line_endings_change_nothing(tree: Path) -> None:
    digest = measuring_digest(root=tree)
    for path in tree.rglob("*"):
        if path.is_file() and path.suffix != ".ipynb":
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert measuring_digest(root=tree) == digest


@pytest.mark.parametrize(
    "name",
    [
        "hpc_utils/train/loop.py",
        "hpc_utils/publish/page.j2",
        "jobs/studies/strong.toml",
        "pyproject.toml",
        "hpc_utils/new.py",
        "jobs/new.sbatch",
        "notebooks/new.ipynb",
    ],
)
def test_what_measures_changes_it(tree: Path, name: str) -> None:
    digest = measuring_digest(root=tree)
    with (tree / name).open("a") as file:
        file.write("# changed\n")
    assert measuring_digest(root=tree) != digest


def test_a_changed_cell_changes_it(tree: Path) -> None:
    digest = measuring_digest(root=tree)
    changed = json.dumps(NOTEBOOK).replace("train()", "train(2)")
    (tree / "notebooks/01_baseline.ipynb").write_text(changed)
    assert measuring_digest(root=tree) != digest


def test_what_computes_a_chapter_s_values_is_its_own_cells_and_the_analysis(tree: Path) -> None:
    for room in ("analyze", "records"):
        (tree / "hpc_utils" / room).mkdir()
        (tree / "hpc_utils" / room / "stats.py").write_text("def median(): ...\n")
    own, other = (analysis_digest(notebook, tree) for notebook in ("01_baseline", "02_ddp"))
    assert own != other, "a chapter that is not there has no cells"
    left = ("hpc_utils/analyze/stats.py.orig", "hpc_utils/analyze/#stats.py#", "hpc_utils/publish/page/parts.py")
    for name in ("hpc_utils/train/loop.py", "hpc_utils/publish/page.j2", "README.md", *left):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("changed")
    (tree / "notebooks/01_baseline.ipynb").write_text(json.dumps(NOTEBOOK).replace("One device.", "A device."))
    assert analysis_digest("01_baseline", tree) == own
    (tree / "notebooks/01_baseline.ipynb").write_text(json.dumps(NOTEBOOK).replace("train()", "train(2)"))
    assert analysis_digest("01_baseline", tree) != own and analysis_digest("02_ddp", tree) == other
    for name in (
        "collective.py",
        "analyze/stats.py",
        "analyze/nsys/read.py",
        "records/stats.py",
        "launch/prices.py",
        "publish/tables.py",
    ):
        before = analysis_digest("02_ddp", tree)
        (tree / "hpc_utils" / name).parent.mkdir(exist_ok=True)
        (tree / "hpc_utils" / name).write_text("def mean(): ...\n")
        assert analysis_digest("02_ddp", tree) != before, name


def test_renaming_and_moving_code_between_files_changes_it(tree: Path) -> None:
    digest = measuring_digest(root=tree)
    (tree / "hpc_utils/train/loop.py").rename(tree / "hpc_utils/train/loops.py")
    assert measuring_digest(root=tree) != digest


def test_the_users_own_workload_counts_wherever_it_lies(tree: Path, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine/net.py", tmp_path / "theirs/net.py"
    for path in (mine, theirs):
        path.parent.mkdir()
        path.write_text("def build(): ...\n")
    bare = measuring_digest(root=tree)
    with_mine = measuring_digest([mine], root=tree)
    assert with_mine != bare
    assert measuring_digest([theirs], root=tree) == with_mine
    assert measuring_digest([mine, mine], root=tree) == with_mine
    theirs.write_text("def build(): return 1\n")
    assert measuring_digest([mine, theirs], root=tree) == measuring_digest([theirs, mine], root=tree)
    assert measuring_digest([theirs], root=tree) != with_mine
    assert measuring_digest([tree / "hpc_utils/train/loop.py"], root=tree) == bare
    folder = measuring_digest([mine.parent], root=tree)
    (mine.parent / "weights.bin").write_bytes(b"not code")
    assert measuring_digest([mine.parent], root=tree) == folder != bare


def test_a_missing_workload_or_package_is_an_error(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        measuring_digest([tmp_path / "gone.py"], root=tree)
    with pytest.raises(FileNotFoundError, match="no measuring code"):
        measuring_digest(root=tmp_path)


def test_a_package_without_its_clone_is_digested_alone(tmp_path: Path) -> None:
    source = Path(hpc_utils.__file__).parent
    package = tmp_path / "site/hpc_utils"
    shutil.copytree(source / "provenance", package / "provenance", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "paths.py"):
        shutil.copy(source / name, package / name)

    def digest() -> str:
        script = "from hpc_utils.provenance import measuring_digest as d, commit as c; print(d(), c())"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", script]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60
        )
        return done.stdout.strip()

    first = digest()
    assert first.endswith(" None") and len(first) == 69
    (tmp_path / "site/jobs").mkdir()
    (tmp_path / "site/jobs/other.py").write_text("somebody else's package\n")
    assert digest() == first
    (package / "paths.py").write_text((package / "paths.py").read_text() + "# changed\n")
    assert digest() != first
