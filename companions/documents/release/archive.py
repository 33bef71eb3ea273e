"""Pack a release: git writes the archive of the commit, and adds what is built from it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hpc_utils.publish.report import bind
from hpc_utils.records import atomic

from ..build import build
from ..sets import read_context
from . import checklist, crate

SUMS = "SHA256SUMS"


def release(root: Path, output: Path) -> Path:
    """Write `output/<name>-<version>.zip` from the commit of `root`; returns its path. The same commit gives the same bytes.

    The archive contains the committed files, the documents of paper.toml, built from them, a report of each result set,
    `ro-crate-metadata.json` and `SHA256SUMS`.

    Raises:
        ReleaseRefused: an item of the checklist that this version needs does not hold.
    """
    project = crate.project(root)
    if faults := checklist.refused(checklist.items(root), project["version"]):
        raise crate.ReleaseRefused("\n".join(faults))
    commit, day = checklist.git(root, "log", "-1", "--format=%H %cs").decode().split()
    documents = build(read_context(root))
    added = {path.relative_to(root).as_posix(): path for path in documents if path.suffix in (".pdf", ".csv")}
    for folder in crate.result_sets(root):
        for page in bind(folder).parent.rglob("index.html"):
            added[page.relative_to(root).as_posix()] = page
    files = {name: root / name for name in checklist.tracked(root)} | added
    top = f"{project['name']}-{project['version']}"
    with tempfile.TemporaryDirectory() as scratch:

        def add(name: str, text: str) -> None:
            files[name] = added[name] = Path(scratch, name)
            added[name].write_text(text)

        add("ro-crate-metadata.json", json.dumps(crate.metadata(root, files, commit, day), indent=1))
        add(SUMS, checksums(files))
        options = []
        for name, file in sorted(added.items()):  # each file gets the prefix before it
            options += [f"--prefix={Path(top, name).parent}/", f"--add-file={file.absolute()}"]
        packed = checklist.git(root, "archive", "--format=zip", *options, f"--prefix={top}/", "HEAD")
    path = output / f"{top}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_file(path, lambda file: file.write(packed))
    return path


def checksums(files: Mapping[str, Path]) -> str:
    """The SHA-256 of each file, as `sha256sum --check` reads them."""
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n" for name, file in sorted(files.items())
    )
