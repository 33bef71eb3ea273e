from __future__ import annotations

import ast
import copy
import json
import shutil
from pathlib import Path

import pytest

import hpc_utils
from hpc_utils.provenance import analysis_digest, digest, measuring_digest
from hpc_utils.source_code import parsed

from .conftest import NOTEBOOK

PACKAGE = Path(hpc_utils.__file__).parent


def test_moving_or_copying_the_tree_changes_nothing(tree: Path, tmp_path: Path) -> None:
    before = measuring_digest(root=tree)
    shutil.copytree(tree, tmp_path / "another place/copy")
    assert measuring_digest(root=tmp_path / "another place/copy") == before
    (tree / "hpc_utils/train/loop.py").rename(tree / "hpc_utils/train/loops.py")
    assert measuring_digest(root=tree) != before


def test_running_the_notebooks_and_their_prose_change_nothing(tree: Path) -> None:
    before = measuring_digest(root=tree)
    executed = copy.deepcopy(NOTEBOOK)
    executed["cells"][0]["source"] = "Other words."
    executed["cells"][1] |= {
        "execution_count": 7,
        "outputs": [{"output_type": "stream", "name": "stdout", "text": ["loss 0.1\n"]}],
        "metadata": {"collapsed": True},
        "source": "".join(executed["cells"][1]["source"]) + "# a comment",
    }
    executed["metadata"] = {"language_info": {"version": "3.13"}}
    (tree / "notebooks/01_baseline.ipynb").write_text(json.dumps(executed, indent=1))
    assert measuring_digest(root=tree) == before


@pytest.mark.parametrize(
    "name",
    [
        "hpc_utils/train/__pycache__/loop.cpython-311.pyc",
        "hpc_utils/publish/plots.py",
        "hpc_utils/toml_config.py",
        "notebooks/03_scaling.ipynb",
        "jobs/studies/strong.toml",
        "jobs/clusters/leonardo.toml",
        "pyproject.toml",
    ],
)
def test_other_files_do_not_change_the_digest(tree: Path, name: str) -> None:
    before = measuring_digest(root=tree)
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("{}")
    (tree / "hpc_utils/train/dangling.py").symlink_to("nowhere")
    assert measuring_digest(root=tree) == before


def test_comments_docstrings_and_layout_change_nothing(tree: Path) -> None:
    before = measuring_digest(root=tree)
    loop = tree / "hpc_utils/train/loop.py"
    loop.write_text('"""About it."""\n# a note\n\n\ndef train( ):\n    """What it does."""\n    return 1  # so\n')
    assert measuring_digest(root=tree) == before
    for path in tree.rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert measuring_digest(root=tree) == before
    loop.write_text("def train():\n    'What it does.'\n")
    empty = measuring_digest(root=tree)
    loop.write_text("def train():\n    pass\n")
    assert measuring_digest(root=tree) == empty != before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hpc_utils/train/loop.py", "def train():\n    return 2\n"),
        ("hpc_utils/train/parallel/ddp.py", "x = 1\n"),
        ("hpc_utils/datasets/decode.py", "x = 1\n"),
        ("hpc_utils/config.py", "default = 2\n"),
        ("notebooks/01_baseline.ipynb", json.dumps(NOTEBOOK).replace("train()", "train(2)")),
        ("notebooks/02_ddp.ipynb", json.dumps(NOTEBOOK)),
    ],
)
def test_measuring_code_changes_the_digest(tree: Path, name: str, text: str) -> None:
    before = measuring_digest(root=tree)
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text(text)
    assert measuring_digest(root=tree) != before


def test_the_code_of_a_cell_with_a_magic_is_parsed() -> None:
    codes = {parsed(f"%%px\n{rest}") for rest in ("a = 1", "a = 1  # why", "a=1\n")}
    assert len(codes) == 1
    assert parsed("%%px\na = 2") not in codes and parsed("%%time\na = 1") not in codes
    assert parsed("!ls  # all") == "!ls  # all"


def test_every_setting_that_training_imports_is_covered() -> None:
    """Of the modules beside the rooms; those left out hold no setting and no step of a measurement."""
    left_out = {"paths", "profilers", "source_code", "toml_config", "workspace"}
    covered = {Path(name).stem for name in digest.SETTINGS}
    assert all((PACKAGE / name).is_file() for name in digest.SETTINGS)
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    for path in [*digest._modules(PACKAGE, digest.MEASURING), *(PACKAGE / name for name in digest.SETTINGS)]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in ("hpc_utils", None):
                beside = node.module or path.parent == PACKAGE
                named = {alias.name for alias in node.names} if beside else set()
            elif isinstance(node, ast.ImportFrom):
                inside = node.level == 1 and path.parent == PACKAGE
                named = {node.module if inside else node.module.removeprefix("hpc_utils.")}
            else:
                continue
            assert named & modules <= covered | left_out, path.name


def test_the_analysis_digest_covers_the_chapter_s_cells_and_the_analysis(tree: Path) -> None:
    for room in ("analyze", "records"):
        (tree / "hpc_utils" / room).mkdir()
        (tree / "hpc_utils" / room / "stats.py").write_text("def median(): ...\n")
    own, other = (analysis_digest(notebook, tree) for notebook in ("01_baseline", "02_ddp"))
    assert own != other, "a chapter that does not exist has no cells"
    for name in ("hpc_utils/train/loop.py", "hpc_utils/analyze/stats.py.orig", "hpc_utils/publish/page/parts.py"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("changed")
    (tree / "notebooks/01_baseline.ipynb").write_text(json.dumps(NOTEBOOK).replace("One device.", "A device."))
    (tree / "hpc_utils/analyze/stats.py").write_text('"""Statistics."""\ndef median(): ...  # of some\n')
    assert analysis_digest("01_baseline", tree) == own
    (tree / "notebooks/01_baseline.ipynb").write_text(json.dumps(NOTEBOOK).replace("train()", "train(2)"))
    assert analysis_digest("01_baseline", tree) != own and analysis_digest("02_ddp", tree) == other
    for name in (
        "collective.py",
        "analyze/nsys/read.py",
        "analyze/peaks.toml",
        "launch/prices.py",
        "publish/tables.py",
    ):
        before = analysis_digest("02_ddp", tree)
        (tree / "hpc_utils" / name).parent.mkdir(exist_ok=True)
        (tree / "hpc_utils" / name).write_text("mean = 1\n")
        assert analysis_digest("02_ddp", tree) != before, name


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
