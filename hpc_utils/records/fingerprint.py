"""Fingerprints of a run's records and of other evidence: equal content, equal fingerprint, wherever it lies."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

from hpc_utils import paths

from . import packed

RECORDS = (
    "request.json", "run.json", "provenance.json", "status.json", "epochs.csv", "ranks.csv", "steps.csv.gz",
)  # fmt: skip


def of_run(folder: Path) -> str:
    """SHA-256 over `RECORDS` of a run's folder, or of a packed run; a file that is missing counts as such."""
    digest = hashlib.sha256()
    for name in RECORDS:
        own = ""
        with contextlib.suppress(OSError):
            own = of_file(folder / name)
        digest.update(f"{name}\0{own}\0".encode())
    return digest.hexdigest()


def watched(results: Path, runs: Iterable[str]) -> list[str]:
    """The files that profilers and monitors left in these runs, relative to their result set."""
    files = ((f"runs/{run}", name) for run in runs for name in packed.names(results / "runs" / run))
    return sorted(f"{run}/{name}" for run, name in files if re.fullmatch("(profile|monitor)/[^/]+", name))


def of_file(path: Path) -> str:
    """SHA-256 of a file's content: decompressed, and JSON without this machine's folders, as a kept copy has it.

    Raises:
        OSError: it cannot be read.
    """
    content = packed.content(path)
    if path.suffix == ".gz":
        with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):  # a damaged file's bytes differ anyway
            content = gzip.decompress(content)
    if path.name.removesuffix(".gz").endswith(".json"):
        content = portable(content.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    return hashlib.sha256(content).hexdigest()


def portable(text: str) -> str:
    """`text` with the clone's folder, the results' and the home folder taken out of its paths."""
    for folder, stands in ((paths.results(), "results"), (paths.root(), "."), (Path.home(), "~")):
        if folder != Path("/"):  # the home of some containers
            text = re.sub(re.escape(str(folder)) + r"(?![\w.-])", stands, text)
    return text
