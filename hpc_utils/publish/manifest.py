"""`manifest.json`, next to the PDFs: the sources of each document. A release checks its PDFs against it.

{"schema": 2, "documents": {name: {"files": {"paper.pdf": SHA-256}, "commit": SHA,
 "sources": {path in the clone: SHA-256}, "sets": {path in the clone: fingerprint of what the set exports}}}}

`commit` is null without git, or if the code has uncommitted changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hpc_utils import provenance
from hpc_utils.records import atomic
from hpc_utils.records.folder import read_json

from . import exports

FILE = "manifest.json"
SCHEMA = 2


class NoManifest(ValueError):
    """The manifest is missing or of another version."""

    exit_code = 2


def note(files: Sequence[Path], root: Path, sources: Iterable[Path], sets: Iterable[Path]) -> None:
    """Add a document, its PDF first, to the manifest next to it: built now from `sources` and the result sets `sets` of the
    clone `root`."""
    pdf = files[0]
    entry = {
        "files": {path.name: of_file(path) for path in files},
        "commit": None if provenance.dirty(root) else provenance.commit(root),
        "sources": {_inside(path, root): of_file(path) for path in sorted(sources)},
        "sets": {_inside(folder, root): of_set(folder) for folder in sorted(sets)},
    }
    _write(pdf.parent, _documents(pdf.parent) | {pdf.stem: entry})


def forget(pdf: Path) -> None:
    """Remove `pdf` from the manifest next to it."""
    if documents := _documents(pdf.parent):
        _write(pdf.parent, {name: entry for name, entry in documents.items() if name != pdf.stem})


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """{name: entry} of the manifest in `folder`.

    Raises:
        NoManifest: there is none, or it is of another version.
    """
    if not (documents := _documents(folder)):
        raise NoManifest(f"{FILE} is missing or of another version")
    return documents


def of_set(folder: Path) -> str:
    """The fingerprint of all exports of a result set.

    Raises:
        ExportError: a page cannot be read.
    """
    pages = exports.read_exports(folder).pages
    return of_bytes("".join(f"{stem} {page['fingerprint']}\n" for stem, page in sorted(pages.items())).encode())


def of_file(path: Path) -> str:
    """SHA-256 of a file."""
    return of_bytes(path.read_bytes())


def of_bytes(content: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(content).hexdigest()


def _documents(folder: Path) -> dict[str, dict[str, Any]]:
    content = read_json(folder / FILE)
    return content["documents"] if isinstance(content, dict) and content.get("schema") == SCHEMA else {}


def _write(folder: Path, documents: dict[str, Any]) -> None:
    atomic.write_json(folder / FILE, {"schema": SCHEMA, "documents": dict(sorted(documents.items()))})


def _inside(path: Path, root: Path) -> str:
    """The path in the clone; outside of it the name."""
    path = path.resolve()
    root = root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
