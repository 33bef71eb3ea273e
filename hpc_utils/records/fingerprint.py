"""Fingerprints of a run's records and of other evidence: equal content has an equal fingerprint in any place."""

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
ROUNDS = "rounds.csv"


def of_run(folder: Path) -> str:
    """SHA-256 over `RECORDS` of a run's folder, or of a packed run; a missing one counts too, but not that of turns."""
    digest = hashlib.sha256()
    for name in [*RECORDS, *[ROUNDS] * (packed.holder(folder / ROUNDS) is not None)]:
        file_digest = ""
        with contextlib.suppress(OSError):
            file_digest = of_file(folder / name)
        digest.update(f"{name}\0{file_digest}\0".encode())
    return digest.hexdigest()


def profile_files(results: Path, runs: Iterable[str]) -> list[str]:
    """The files of profilers and monitors in these runs, relative to their result set."""
    files = ((f"runs/{run}", name) for run in runs for name in packed.names(results / "runs" / run))
    return sorted(f"{run}/{name}" for run, name in files if re.fullmatch("(profile|monitor)/[^/]+", name))


def of_file(path: Path) -> str:
    """SHA-256 of a file's content, decompressed; JSON without the paths of this machine (`portable`).

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
    """`text` with the results', the clone's and the home folder in its paths replaced."""
    for folder, name in ((paths.results(), "results"), (paths.root(), "."), (Path.home(), "~")):
        if folder != Path("/"):  # the home of some containers
            text = re.sub(re.escape(str(folder)) + r"(?![\w.-])", name, text)
    return text
