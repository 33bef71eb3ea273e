"""The git commit of the compendium, if it is known."""

from __future__ import annotations

import os
from pathlib import Path

from hpc_utils import paths

from .digest import cells
from .tools import read_text, run_tool

# Set while a git hook runs, these point git to the hook's repository.
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE")

CODE = ("hpc_utils", "companions", "notebooks")
EXPORTED = "COMMIT"  # the file of a bundle that names its commit


def commit(root: Path | None = None) -> str | None:
    """The full SHA of HEAD, or the one that a bundle was made from; None for any other copy of the tree."""
    root = root or paths.root()
    if exported := read_text(root / EXPORTED):
        return exported
    answer = (_git(root, "rev-parse", "--show-toplevel", "HEAD") or "").splitlines()
    if len(answer) != 2 or not Path(answer[0]).samefile(root):
        return None
    return answer[1]


def dirty(root: Path | None = None) -> bool | None:
    """Whether the code that measures and analyses differs from its commit; None if git does not know the tree.

    Runs record studies, options, and a digest of the user's own modules, which therefore do not count. Neither do notebooks that
    were only executed and saved, or are new.
    """
    root = root or paths.root()
    if commit(root) is None or (root / EXPORTED).exists():
        return None
    status = _git(root, "status", "--porcelain", "--untracked-files=normal", "--", *CODE)
    if status is None:
        return None
    return any(not _is_executed(root, line[3:]) for line in status.splitlines())


def _is_executed(root: Path, name: str) -> bool:
    """Whether a changed or new file is a notebook with the code of its commit, or with none there."""
    file = root / name
    if file.suffix != ".ipynb" or not file.exists():
        return False
    committed = _git(root, "show", f"HEAD:{name}")
    return committed is None or cells(committed) == cells(read_text(file))


def _git(root: Path, *arguments: str) -> str | None:
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    environment["GIT_OPTIONAL_LOCKS"] = "0"  # many ranks may read one clone at once
    return run_tool("git", "-C", str(root), "-c", "core.fsmonitor=false", *arguments, environment=environment)
