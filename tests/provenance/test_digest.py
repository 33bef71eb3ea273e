from __future__ import annotations

import ast
import copy
import hashlib
import json
import shutil
from pathlib import Path

import pytest

import hpc_utils
from hpc_utils import source_code
from hpc_utils.provenance import analysis_digest, digest, measuring_digest
from hpc_utils.source_code import parsed
from tests.support import write_files

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
        "outputs": [{"text": ["loss 0.1"]}],
        "metadata": {"collapsed": True},
    }
    executed["cells"][1]["source"] = "train()  # a comment"
    executed["metadata"] = {"language_info": {"version": "3.13"}}
    (tree / "notebooks/01_baseline.ipynb").write_text(json.dumps(executed, indent=1))
    assert measuring_digest(root=tree) == before


@pytest.mark.parametrize(
    "name",
    [
        "hpc_utils/train/__pycache__/loop.cpython-311.pyc",
        "hpc_utils/publish/plots.py",
        "notebooks/03_scaling.ipynb",
        "jobs/studies/strong.toml",
        "pyproject.toml",
    ],
)
def test_other_files_do_not_change_the_digest(tree: Path, name: str) -> None:
    before = measuring_digest(root=tree)
    write_files(tree, {name: "{}"})
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
    write_files(tree, {name: text})
    assert measuring_digest(root=tree) != before


def test_the_code_of_a_cell_with_a_magic_is_parsed() -> None:
    codes = {parsed(f"%%px\n{rest}") for rest in ("a = 1", "a = 1  # why", "a=1\n")}
    assert len(codes) == 1
    assert parsed("%%px\na = 2") not in codes and parsed("%%time\na = 1") not in codes
    assert parsed("!ls  # all") == "!ls  # all"


def test_every_version_of_python_gives_the_same_digest() -> None:
    code = """def text(x: int = 1, *others, **options) -> str:
        return f"{x:{x}} {options['a']!r} {{}}" if others else "it's"
    """
    assert hashlib.sha256(parsed(code.strip()).encode()).hexdigest()[:8] == "4996881d"


def test_every_setting_that_training_imports_is_covered() -> None:
    """Of the modules beside the rooms; those left out hold no setting and no step of a measurement."""
    left_out = {"file_lock", "launcher", "paths", "profilers", "source_code", "toml_config", "workspace"}
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


CHAPTER = {"cells": [{"cell_type": "code", "source": "from hpc_utils.analyze import curves\ncurves.draw()"}]}
CHAPTER_CODE = {
    "notebooks/03_scaling.ipynb": json.dumps(CHAPTER),
    "hpc_utils/records/load.py": "from . import schema\n",
    "hpc_utils/records/schema.py": "",
    "hpc_utils/analyze/__init__.py": "",
    "hpc_utils/analyze/curves.py": "from hpc_utils.plural import counted\nfrom .stats import median\n",
    "hpc_utils/analyze/stats.py": "def median(): ...\n",
    "hpc_utils/analyze/stats.toml": "level = 0.95\n",
}
BESIDE = {
    "hpc_utils/analyze/other.py": "",
    "hpc_utils/launch/cluster.py": "",
    "hpc_utils/plural.py": "def counted(): ...\n",
    "hpc_utils/publish/plots/curves.py": "",
    "companions/course/grades.py": "",
}


def test_the_analysis_digest_covers_what_the_chapter_imports_of_analysis_and_records(tree: Path) -> None:
    write_files(tree, CHAPTER_CODE | BESIDE)
    before = analysis_digest("03_scaling", tree)
    assert before != analysis_digest("04_none", tree), "a chapter that does not exist has no cells"
    (tree / "hpc_utils/analyze/stats.py").write_text('"""Statistics."""\ndef median(): ...  # of some\n')
    for name in BESIDE:
        (tree / name).write_text("mean = 1\n")
    assert analysis_digest("03_scaling", tree) == before
    for name, text in CHAPTER_CODE.items():
        changed = text.replace("draw()", "draw(2)") if name.endswith("ipynb") else f"{text}mean = 1\n"
        (tree / name).write_text(changed)
        assert before != (before := analysis_digest("03_scaling", tree)), name


def test_a_companion_s_chapter_rests_on_its_analysis_and_not_on_its_plots(tree: Path) -> None:
    cells = [
        {"cell_type": "code", "source": f"%%time\nfrom companions.trees import {name}"}
        for name in ("analysis", "plots")
    ]
    modules = {f"companions/trees/{name}.py": "" for name in ("analysis", "plots")}
    write_files(tree, {"notebooks/10_trees.ipynb": json.dumps({"cells": cells}), **modules})
    before = analysis_digest("10_trees", tree)
    (tree / "companions/trees/plots.py").write_text("colour = 'red'\n")
    assert analysis_digest("10_trees", tree) == before
    (tree / "companions/trees/analysis.py").write_text("mean = 1\n")
    assert analysis_digest("10_trees", tree) != before


def test_a_workload_s_code_is_its_module_and_what_it_imports_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    modules = {
        "mine/__init__.py": "",
        "mine/net.py": "from .layers import block\n",
        "mine/layers.py": "import torch, helper\n",
    }
    write_files(tmp_path, modules | {"helper.py": "", "unused.py": ""})
    files = source_code.files("mine.net:build")
    assert {path.relative_to(tmp_path).as_posix() for path in files} == modules.keys() | {"helper.py"}
    before = source_code.digest("mine.net:build")
    (tmp_path / "unused.py").write_text("x = 1\n")
    assert source_code.digest("mine.net:build") == before
    (tmp_path / "helper.py").write_text("x = 1\n")
    assert source_code.digest("mine.net:build") != before
    assert source_code.files("gone:build") == source_code.files("cnn") == [] and source_code.digest("cnn") == ""


def test_the_users_own_workload_counts_wherever_it_lies(tree: Path, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine/net.py", tmp_path / "theirs/net.py"
    write_files(tmp_path, dict.fromkeys(("mine/net.py", "theirs/net.py"), "def build(): ...\n"))
    bare = measuring_digest(root=tree)
    with_mine = measuring_digest([mine], root=tree)
    assert with_mine != bare
    assert measuring_digest([theirs], root=tree) == with_mine
    assert measuring_digest([mine, mine], root=tree) == with_mine
    theirs.write_text("def build(): return 1\n")
    assert measuring_digest([mine, theirs], root=tree) == measuring_digest([theirs, mine], root=tree)
    assert measuring_digest([theirs], root=tree) != with_mine
    assert measuring_digest([tree / "hpc_utils/train/loop.py"], root=tree) == bare


def test_a_missing_workload_or_package_is_an_error(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        measuring_digest([tmp_path / "gone.py"], root=tree)
    with pytest.raises(FileNotFoundError, match="no measuring code"):
        measuring_digest(root=tmp_path)
