"""The built texts: PDFs that belong to this commit's sources and result sets, by the manifest of their build.

`paper/build/manifest.json` = {"schema": 1, "documents": {name: {"file": "paper.pdf", "sha256": of the file, "commit": SHA,
"sources": {path in the clone: SHA-256}, "sets": {path in the clone: fingerprint of what it hands on}}}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_utils.publish import ledger

from .tree import ReleaseRefused

BUILD = "paper/build"
MANIFEST = f"{BUILD}/manifest.json"
SCHEMA = 1
AGAIN = "`make paper` builds the texts anew"


def of_set(folder: Path) -> str:
    """Fingerprint of all that a result set hands on to texts: of its pages' own fingerprints.

    Raises:
        LedgerError: a page cannot be read.
    """
    pages = ledger.read(folder).pages
    return hashlib.sha256(
        "".join(f"{stem} {page['fingerprint']}\n" for stem, page in sorted(pages.items())).encode()
    ).hexdigest()


def read(root: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """{path: content} of the built PDFs and their manifest; `files`: the commit's.

    Raises:
        ReleaseRefused: nothing was built, or a text is not of these sources and sets; a line a fault.
    """
    path = root / MANIFEST
    try:
        documents = json.loads(path.read_text())
        if documents["schema"] != SCHEMA:
            raise ValueError(f"its version is {documents['schema']}, ours {SCHEMA}")
        told = {name: _entry(one) for name, one in documents["documents"].items()}
    except FileNotFoundError:
        raise ReleaseRefused(f"the texts are not built ({MANIFEST} is missing): {AGAIN}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseRefused(f"{MANIFEST} cannot be read ({type(error).__name__}: {error}): {AGAIN}") from None
    if not told:
        raise ReleaseRefused(f"{MANIFEST} lists no text: {AGAIN}")
    if faults := [line for name, one in told.items() for line in _faults(root, files, name, one)]:
        raise ReleaseRefused("\n".join(faults))
    built = {f"{BUILD}/{one['file']}": (root / BUILD / one["file"]).read_bytes() for one in told.values()}
    return built | {MANIFEST: path.read_bytes()}


def _entry(one: Mapping[str, Any]) -> dict[str, Any]:
    if Path(one["file"]).name != one["file"]:
        raise ValueError(f"{one['file']} is no file of the build folder")
    return {"file": one["file"], "sha256": one["sha256"], "sources": dict(one["sources"]), "sets": dict(one["sets"])}


def _faults(root: Path, files: Mapping[str, bytes], name: str, one: Mapping[str, Any]) -> Iterator[str]:
    try:
        if _sha256((root / BUILD / one["file"]).read_bytes()) != one["sha256"]:
            yield f"{BUILD}/{one['file']} is not the file that the build of {name} wrote: {AGAIN}"
    except OSError:
        yield f"{BUILD}/{one['file']} is missing: {AGAIN}"
    for path, digest in one["sources"].items():
        if path not in files:
            yield f"{name} was built from {path}, which is not in this commit: commit it, or {AGAIN}"
        elif _sha256(files[path]) != digest:
            yield f"{name} was built from another {path} than this commit's: {AGAIN}"
    for path, fingerprint in one["sets"].items():
        try:
            same = (
                (root / path).is_dir()
                and any(own.startswith(f"{path}/") for own in files)
                and of_set(root / path) == fingerprint
            )
        except ledger.LedgerError:
            same = False
        if not same:
            yield f"{name} was built on another state of {path} than this commit's: {AGAIN}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
