"""Pack a release: git writes the archive of the commit, with what is built from it beside."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from hpc_utils.publish.chapters import bind
from hpc_utils.records import atomic

from . import checklist, crate

SUMS = "SHA256SUMS"


def release(root: Path, output: Path) -> Path:
    """Write `output/<name>-<version>.zip` from the commit of `root`; returns its path. The same commit gives the same bytes.

    The archive holds the committed files, the documents of `make paper`, a report of each result set, `.zenodo.json`,
    `ro-crate-metadata.json` and `SHA256SUMS`.

    Raises:
        ReleaseRefused: an item of the checklist that this version needs does not hold.
    """
    project = crate.project(root)
    if faults := checklist.refused(checklist.items(root), project["version"]):
        raise crate.ReleaseRefused("\n".join(faults))
    commit, seconds = checklist.git(root, "log", "-1", "--format=%H %ct").decode().split()
    when = datetime.fromtimestamp(int(seconds), UTC)
    committed = {name: root / name for name in checklist.tracked(root)}
    built = {name: root / name for name in checklist.built(root)}
    for folder in crate.result_sets(committed):
        if (root / folder / "notebooks").is_dir():
            built[f"{folder}/report/index.html"] = bind(root / folder)
    top = f"{project['name']}-{project['version']}"
    with tempfile.TemporaryDirectory() as scratch:

        def add(name: str, text: str) -> None:
            built[name] = Path(scratch, name)
            built[name].write_text(text)

        def described(content: dict) -> str:
            return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

        add(".zenodo.json", described(crate.zenodo(root, when)))
        add("ro-crate-metadata.json", described(crate.metadata(root, committed | built, commit, when)))
        add(SUMS, _sums(committed | built))
        packed = checklist.git(
            root, "archive", "--format=zip", *_added(top, built), f"--prefix={top}/", "HEAD", TZ="UTC"
        )
    path = output / f"{top}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, lambda file: file.write(packed))
    return path


def _sums(files: Mapping[str, Path]) -> str:
    """As `sha256sum --check` reads it."""
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n" for name, file in sorted(files.items())
    )


def _added(top: str, files: Mapping[str, Path]) -> list[str]:
    """Options of `git archive` that put files beside those of the commit: each takes the prefix before it."""
    return [
        option
        for name, file in sorted(files.items())
        for option in (f"--prefix={(Path(top) / name).parent.as_posix()}/", f"--add-file={file.absolute()}")
    ]
