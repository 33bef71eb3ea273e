"""The built texts: PDFs that belong to this commit's sources and result sets, as the manifest of their build says."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_utils import provenance
from hpc_utils.publish import exports, manifest

from .tree import ReleaseRefused

BUILD = "paper/build"
MANIFEST = f"{BUILD}/{manifest.FILE}"
LIST = "paper/paper.toml"
AGAIN = "`make paper` builds the texts anew"


def read(root: Path, commit: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """{path: content} of the built PDFs and their manifest; `files`: the commit's. The texts say in their
    colophon which commit they are of, so it has to be this one.

    Raises:
        ReleaseRefused: nothing was built, or a text is not of this commit, its sources and sets; a line a fault.
    """
    try:
        told = manifest.read(root / BUILD)
    except manifest.NoManifest as error:
        raise ReleaseRefused(f"the texts are not built, {BUILD}/{error}: {AGAIN}") from None
    faults = [f"{name} of {LIST} is not built: {AGAIN}" for name in _wanted(files) if name not in told]
    faults += [line for name, one in told.items() for line in _faults(root, commit, files, name, one)]
    if faults:
        raise ReleaseRefused("\n".join(faults))
    names = [manifest.FILE, *(one["file"] for one in told.values())]
    return {f"{BUILD}/{name}": (root / BUILD / name).read_bytes() for name in names}


def _wanted(files: Mapping[str, bytes]) -> list[str]:
    """The documents that there should be."""
    try:
        return list(tomllib.loads(files[LIST].decode())["document"])
    except (KeyError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ReleaseRefused(
            f"{LIST} is missing or lists no documents ({error}): paper/README.md says what it holds"
        ) from None


def _faults(root: Path, commit: str, files: Mapping[str, bytes], name: str, one: Mapping[str, Any]) -> Iterator[str]:
    if one["commit"] != commit:
        at = (
            f"at commit {one['commit'][: provenance.SHORT]}"
            if one["commit"]
            else "from files that were not committed"
        )
        yield f"{name} was built {at}, and says so: {AGAIN} at {commit[: provenance.SHORT]}"
    try:
        if manifest.of_bytes((root / BUILD / one["file"]).read_bytes()) != one["sha256"]:
            yield f"{BUILD}/{one['file']} is not the file that the build of {name} wrote: {AGAIN}"
    except OSError:
        yield f"{BUILD}/{one['file']} is missing: {AGAIN}"
    for path, digest in one["sources"].items():
        if path not in files:
            yield f"{name} was built from {path}, which is not in this commit: commit it, or {AGAIN}"
        elif manifest.of_bytes(files[path]) != digest:
            yield f"{name} was built from another {path} than this commit's: {AGAIN}"
    for path, fingerprint in one["sets"].items():
        if not any(own.startswith(f"{path}/") for own in files):
            yield f"{name} draws on {path}, which is not in this commit: commit it, or take it out of paper/paper.toml"
        elif _of_set(root / path) != fingerprint:
            yield f"{name} was built on another state of {path} than this commit's: {AGAIN}"


def _of_set(folder: Path) -> str | None:
    try:
        return manifest.of_set(folder)
    except exports.ExportError:
        return None
