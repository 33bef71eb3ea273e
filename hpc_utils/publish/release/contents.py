"""What goes into a release: the commit's files, where they are in a clone, and beside them what is built from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from . import checksums, citation, crate, pdfs, reports
from .tree import Tree

ZENODO = ".zenodo.json"


@dataclass(frozen=True)
class Contents:
    """A release before it is written: {path: content}."""

    name: str  # of the folder and the zip: <project>-<version>
    files: Mapping[str, bytes]
    executable: frozenset[str]
    commit: str
    when: datetime


def gather(root: Path, tree: Tree) -> Contents:
    """The commit, its PDFs, a report a result set, and what describes and secures them.

    Raises:
        ReleaseRefused: the texts are not built, or of something else; CITATION.cff or pyproject.toml lack something.
    """
    project, cited = citation.project(tree.files), citation.read(tree.files)
    files = tree.files | pdfs.read(root, tree.commit, tree.files) | reports.write(tree.files)
    files[ZENODO] = (
        json.dumps(citation.zenodo(cited, tree.when.date()), indent=2, ensure_ascii=False) + "\n"
    ).encode()
    files[crate.FILE] = crate.metadata(files, tree.commit, tree.when)
    files[checksums.FILE] = checksums.write(files)
    return Contents(f"{project['name']}-{project['version']}", files, tree.executable, tree.commit, tree.when)
