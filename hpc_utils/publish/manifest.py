"""`manifest.json`, next to the PDFs: the sources of each document. A release checks its PDFs against it.

{"schema": 1, "documents": {name: {"file": "paper.pdf", "sha256": of the file, "commit": SHA,
 "sources": {path in the clone: SHA-256}, "sets": {path in the clone: fingerprint of what the set exports}}}}

`commit` is null without git, or if the tree has uncommitted changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpc_utils import provenance
from hpc_utils.records import atomic

from . import exports

FILE = "manifest.json"
SCHEMA = 1


class NoManifest(ValueError):
    """The manifest is missing or damaged."""

    exit_code = 2


def note(pdf: Path, root: Path, sources: Iterable[Path], sets: Iterable[Path]) -> None:
    """Add `pdf` to the manifest next to it: built now from `sources` and the result sets `sets` of the clone `root`."""
    entry = {
        "file": pdf.name,
        "sha256": of_file(pdf),
        "commit": None if provenance.dirty(root) else provenance.commit(root),
        "sources": {_inside(path, root): of_file(path) for path in sorted(sources)},
        "sets": {_inside(folder, root): of_set(folder) for folder in sorted(sets)},
    }
    _change(pdf, {pdf.stem: entry})


def forget(pdf: Path) -> None:
    """Remove `pdf` from the manifest next to it."""
    if (pdf.parent / FILE).is_file():
        _change(pdf, {})


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """{name: entry} of the manifest in `folder`.

    Raises:
        NoManifest: it is missing or damaged.
    """
    try:
        content = json.loads((folder / FILE).read_text())
        if content["schema"] != SCHEMA:
            raise ValueError(f"its version is {content['schema']}, not {SCHEMA}")
        for entry in content["documents"].values():
            if Path(entry["file"]).name != entry["file"] or not {"sha256", "commit"} <= entry.keys():
                raise ValueError(f"{entry['file']} is not in its folder, or has no digest")
            dict(entry["sources"]), dict(entry["sets"])
    except FileNotFoundError:
        raise NoManifest(f"{FILE} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoManifest(f"{FILE} cannot be read ({type(error).__name__}: {error})") from None
    return content["documents"]


def of_set(folder: Path) -> str:
    """The fingerprint of all exports of a result set.

    Raises:
        ExportError: a page cannot be read.
    """
    pages = exports.read(folder).pages
    return of_bytes("".join(f"{stem} {page['fingerprint']}\n" for stem, page in sorted(pages.items())).encode())


def of_file(path: Path) -> str:
    """SHA-256 of a file."""
    return of_bytes(path.read_bytes())


def of_bytes(content: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(content).hexdigest()


def _change(pdf: Path, entry: dict[str, Any]) -> None:
    documents: dict[str, Any] = {}
    with contextlib.suppress(NoManifest):  # it is written again
        documents = read(pdf.parent)
    documents.pop(pdf.stem, None)
    atomic.write_json(pdf.parent / FILE, {"schema": SCHEMA, "documents": dict(sorted((documents | entry).items()))})


def _inside(path: Path, root: Path) -> str:
    """The path in the clone; outside of it the name."""
    path, root = path.resolve(), root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
