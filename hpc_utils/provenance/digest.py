"""Digests of the code that measures, and of that which analyses: equal for equal code, wherever and however it was copied."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# What running the code leaves beside it (byte code, Slurm's output files, the environment that `hpc cluster use` wrote)
# does not change what it measures.
LEFTOVERS = (".pyc", ".pyo", ".out", ".err", ".log", "~", "environment.sh")
# The code between a record and a value or figure: analysis, what it rests on, plans and prices, and drawing.
READING = ("", "analyze/**/", "records/**/", "launch/", "publish/")


def measuring_digest(extra_files: Iterable[Path] = (), root: Path | None = None) -> str:
    """SHA-256 of the package, the notebooks' code cells, the jobs and `pyproject.toml`.

    `extra_files` adds the user's own workload: modules, or folders whose modules count. A package installed
    without its clone is digested alone. Raises OSError when there is nothing to read, or it cannot be read.
    """
    files = _measuring((root or PACKAGE.parent).resolve())
    for path in extra_files:
        files = dict(_extra(Path(path).resolve())) | files
    return _digest(files)


def analysis_digest(notebook: str, root: Path | None = None) -> str:
    """SHA-256 of what computes a chapter's values from records: the rooms `READING`, and its own code cells, if it is there.

    `notebook`: its name, such as `03_scaling`. Raises OSError if something cannot be read.
    """
    home = (root or PACKAGE.parent).resolve()
    files = [
        path
        for room in READING
        for path in (home / "hpc_utils").glob(f"{room}*")
        if path.suffix in (".py", ".toml") and _counts(path.name)
    ]
    own = home / "notebooks" / f"{notebook}.ipynb"
    return _digest({path: path.relative_to(home).as_posix() for path in [*files, *filter(Path.is_file, [own])]})


def _digest(files: Mapping[Path, str]) -> str:
    """Over the files' names, which are not their places on this machine, and contents."""
    digest = hashlib.sha256()
    for name, content in sorted((name, _content(path)) for path, name in files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _measuring(home: Path) -> dict[Path, str]:
    files = list(_walk(home / "hpc_utils"))
    if not files:
        raise FileNotFoundError(f"no measuring code in {home}")
    project = home / "pyproject.toml"
    if project.is_file():  # else an installed copy: what lies beside it belongs to others
        notebooks = sorted((home / "notebooks").glob("*.ipynb"))
        files += [project, *_walk(home / "jobs"), *(path for path in notebooks if _counts(path.name))]
    return {path: path.relative_to(home).as_posix() for path in files}


def _extra(path: Path) -> Iterator[tuple[Path, str]]:
    """Named by what does not depend on where it lies."""
    modules = (file for file in _walk(path) if file.suffix == ".py") if path.is_dir() else [path]
    for file in modules:
        yield file, f"extra/{file.relative_to(path.parent).as_posix()}"


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _counts(name)]
        yield from (path for name in names if _counts(name) and (path := Path(place, name)).is_file())


def _counts(name: str) -> bool:
    return not name.startswith((".", "__pycache__")) and not name.endswith(LEFTOVERS)


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".ipynb":
        content = _sources(content)
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _sources(notebook: bytes) -> bytes:
    """A notebook's code: prose, outputs and metadata measure nothing; a broken notebook stands for itself."""
    try:
        cells = json.loads(notebook)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        return notebook
    return json.dumps([source.replace("\r\n", "\n").replace("\r", "\n") for source in code]).encode()
