"""The HTML report of each committed result set, written for the release: it is made of executed chapters, not kept in git."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

REFERENCE = "results/reference"
PAGE = "report/index.html"


def sets(files: Mapping[str, bytes]) -> list[str]:
    """The folders of the committed result sets."""
    parts = (path.split("/") for path in files if path.startswith(f"{REFERENCE}/"))
    return sorted({"/".join(part[:3]) for part in parts if len(part) > 3})


def write(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """{path: page} of each set's report, from the commit's files alone; a set without executed chapters has none."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (path for path in files if path.startswith(f"{REFERENCE}/")):
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files[path])
        pages = {f"{own}/{PAGE}": _page(Path(folder) / own) for own in sets(files)}
    return {path: page for path, page in pages.items() if page}


def _page(folder: Path) -> bytes:
    from hpc_utils.publish.chapters import bind

    return bind(folder).read_bytes() if (folder / "notebooks").is_dir() else b""
