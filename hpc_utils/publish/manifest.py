"""What each built text was built from: `manifest.json` beside the PDFs, by which a release knows that they belong to it.

{"schema": 1, "documents": {name: {"file": "paper.pdf", "sha256": of the file, "commit": SHA,
 "sources": {path in the clone: SHA-256}, "sets": {path in the clone: fingerprint of what the set exports}}}}

The commit is null where there was none, or the tree was not as committed.
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
    """There is no manifest, or it is none."""

    exit_code = 2


def note(pdf: Path, root: Path, sources: Iterable[Path], sets: Iterable[Path]) -> None:
    """Note in the manifest beside `pdf` that it was built just now, from `sources` (files) and what `sets` (folders of
    result sets) export, all of the clone at `root`."""
    _change(
        pdf,
        {
            "file": pdf.name,
            "sha256": of_bytes(pdf.read_bytes()),
            "commit": None if provenance.dirty(root) else provenance.commit(root),
            "sources": {_called(path, root): of_bytes(path.read_bytes()) for path in sorted(sources)},
            "sets": {_called(folder, root): of_set(folder) for folder in sorted(sets)},
        },
    )


def forget(pdf: Path) -> None:
    """Take `pdf` out of the manifest beside it, because it is no more."""
    if (pdf.parent / FILE).is_file():
        _change(pdf, None)


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """{name: entry} of the manifest in `folder`.

    Raises:
        NoManifest: it is missing, or damaged.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text())
        if content["schema"] != SCHEMA:
            raise ValueError(f"its version is {content['schema']}, ours {SCHEMA}")
        return {name: _checked(entry) for name, entry in content["documents"].items()}
    except FileNotFoundError:
        raise NoManifest(f"{path.name} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoManifest(f"{path.name} cannot be read ({type(error).__name__}: {error})") from None


def of_set(folder: Path) -> str:
    """Fingerprint of all that a result set exports: over its pages' own fingerprints.

    Raises:
        LedgerError: a page cannot be read.
    """
    pages = exports.read(folder).pages
    return of_bytes("".join(f"{stem} {page['fingerprint']}\n" for stem, page in sorted(pages.items())).encode())


def of_bytes(content: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(content).hexdigest()


def _change(pdf: Path, entry: dict[str, Any] | None) -> None:
    documents: dict[str, Any] = {}
    with contextlib.suppress(NoManifest):  # the PDFs that it told of are built anew
        documents = read(pdf.parent)
    documents.pop(pdf.stem, None)
    if entry:
        documents[pdf.stem] = entry
    atomic.write_json(pdf.parent / FILE, {"schema": SCHEMA, "documents": dict(sorted(documents.items()))})


def _checked(entry: dict[str, Any]) -> dict[str, Any]:
    if Path(entry["file"]).name != entry["file"]:
        raise ValueError(f"{entry['file']} is no file beside it")
    return {
        **entry,
        "sha256": entry["sha256"],
        "commit": entry["commit"],
        "sources": dict(entry["sources"]),
        "sets": dict(entry["sets"]),
    }


def _called(path: Path, root: Path) -> str:
    """As it is called in the clone; what lies outside has a name that no commit knows."""
    path, root = path.resolve(), root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
