"""What a run's records, or any other evidence, say: equal content has an equal fingerprint, wherever it lies."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

from .portable import portable

RECORDS = (
    "request.json", "run.json", "provenance.json", "status.json", "epochs.csv", "ranks.csv", "steps.csv.gz",
)  # fmt: skip


def of_run(folder: Path) -> str:
    """SHA-256 over `RECORDS` of a run's folder; one that is absent counts as such."""
    digest = hashlib.sha256()
    for name in RECORDS:
        path = folder / name
        digest.update(f"{name}\0{of_file(path) if path.is_file() else ''}\0".encode())
    return digest.hexdigest()


def watched(results: Path, runs: Iterable[str]) -> list[str]:
    """What profilers and monitors left in the folders of these runs, relative to their result set."""
    places = (results / "runs" / run / place for run in runs for place in ("profile", "monitor"))
    found = (path for place in places for path in place.glob("*") if path.is_file())
    return sorted(path.relative_to(results).as_posix() for path in found)


def of_file(path: Path) -> str:
    """SHA-256 of what the file says: unpacked, and JSON without this machine's folders, as a kept copy has it.

    Raises:
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    if path.suffix == ".gz":
        with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):  # a damaged file's bytes differ anyway
            content = gzip.decompress(content)
    if path.name.removesuffix(".gz").endswith(".json"):
        content = portable(content.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    return hashlib.sha256(content).hexdigest()
