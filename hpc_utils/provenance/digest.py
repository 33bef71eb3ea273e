"""Digests of code: of the code that measures, and of the code that computes a chapter's values from records.

The first covers fixed folders and the user's own workload, the second what the chapter imports. Both hash the parsed
source, so that comments, docstrings and layout change nothing, and the names of the files, not their places on this
machine. `RULE` counts the rules of the measuring digest: only digests of one rule can be compared. Rule 1 (the runs that
record none) covered the whole package, every notebook, the jobs and pyproject.toml, with their comments; rule 2 depended on
the version of Python.
"""

from __future__ import annotations

import functools
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_utils import source_code
from hpc_utils.source_code import parsed

PACKAGE = Path(__file__).resolve().parents[1]
RULE = 3
# The code that decides what a step computes and how long it takes: training, its data, and the options of a run.
MEASURING = ("train/**/", "datasets/**/")
SETTINGS = ("capability.py", "config.py", "device_share.py", "signals.py")
TRAINING = ("01_baseline", "02_ddp", "02b_ddp_interactive")  # notebooks that train
ANALYSING = ("hpc_utils.analyze", "hpc_utils.records")  # of what a chapter imports, besides companions


def measuring_digest(extra_files: Iterable[Path] = (), root: Path | None = None) -> str:
    """SHA-256 of the code that measures (`MEASURING`, `SETTINGS`), and of the code cells of the notebooks `TRAINING`.

    Args:
        extra_files: the user's own workload: modules, or folders whose modules count.
        root: the clone, or the folder that holds an installed package.

    Raises:
        OSError: there is no code, or it cannot be read.
    """
    home = (root or PACKAGE.parent).resolve()
    package = home / "hpc_utils"
    files = [
        *_modules(package, MEASURING, (".py", ".toml")),
        *filter(Path.is_file, (package / name for name in SETTINGS)),
    ]
    if not files:
        raise FileNotFoundError(f"no measuring code in {home}")
    notebooks = [home / f"notebooks/{name}.ipynb" for name in TRAINING]
    extra = {file: name for path in extra_files for file, name in _extra(Path(path).resolve())}
    return _digest(extra | _named(home, [*files, *filter(Path.is_file, notebooks)]))


def analysis_digest(notebook: str, root: Path | None = None) -> str:
    """SHA-256 of the code that computes a chapter's values: its code cells, the reading of records, and of the modules that it
    imports, directly or not, those of `ANALYSING` and of companions, with the TOML files beside them.

    `notebook`: its name, such as `03_scaling`. Raises OSError if a file cannot be read.
    """
    home = (root or PACKAGE.parent).resolve()
    chapter = home / f"notebooks/{notebook}.ipynb"
    reading = home / "hpc_utils/records/load.py"
    imported = source_code.imported(filter(Path.is_file, (chapter, reading)), home, ANALYSING)
    modules = [path for path in imported if path.stem != "plots"]  # a companion's
    tables = filter(Path.is_file, [path.with_suffix(".toml") for path in modules])
    return _digest(_named(home, [*modules, *tables]))


def of_rule(record: Mapping[str, Any]) -> str:
    """The suffix of a provenance record's digest: empty for the present rule."""
    return "" if record.get("digest_rule") == RULE else " (former rule)"


def _modules(package: Path, folders: Iterable[str], suffixes: tuple[str, ...] = (".py",)) -> list[Path]:
    files = (path for folder in folders for path in package.glob(f"{folder}*") if path.suffix in suffixes)
    return [path for path in files if path.is_file() and not path.name.startswith(".")]


def _named(home: Path, files: Iterable[Path]) -> dict[Path, str]:
    return {path: path.relative_to(home).as_posix() for path in files}


def _extra(path: Path) -> Iterator[tuple[Path, str]]:
    """A workload's files, with names that do not depend on its folder."""
    for file in _modules(path, ["**/"]) if path.is_dir() else [path]:
        yield file, f"extra/{file.relative_to(path.parent).as_posix()}"


def _digest(files: Mapping[Path, str]) -> str:
    digest = hashlib.sha256()
    for name, code in sorted((name, _code(path)) for path, name in files.items()):
        digest.update(f"{name}\0{len(code)}\0{code}".encode())
    return digest.hexdigest()


def _code(path: Path) -> str:
    stat = path.stat()
    return _code_then(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=1024)
def _code_then(path: Path, *_: int) -> str:
    """Read once for each time of change and size, since every page of a report is compared with the same files."""
    text = path.read_text(encoding="utf-8", errors="backslashreplace")  # with "\n" for every line ending
    if path.suffix == ".py":
        return parsed(text)
    if path.suffix == ".toml":
        return json.dumps(tomllib.loads(text), sort_keys=True, default=str)
    return cells(text) if path.suffix == ".ipynb" else text


def cells(notebook: str) -> str:
    """A notebook's code: prose, outputs and metadata are omitted. A broken notebook is hashed as text."""
    try:
        code = source_code.code_cells(notebook)
    except (ValueError, KeyError, TypeError):
        return notebook
    return json.dumps([parsed("\n".join(source.splitlines())) for source in code])
