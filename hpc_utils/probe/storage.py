"""The folders that runs write to and read from: room, speed, hard links, and whether all nodes see the same."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hpc_utils import paths

from . import filesystem
from .bench import Bench
from .check import Check, Facts, Seen, failed, not_applicable, passed, places, unknown

GIB = 2**30
FILES = 10_000  # a run leaves some twenty
SLOWEST = 20e6  # byte/s: a ResNet-50's checkpoint, 200 MB with its momentum, in ten seconds
RESULTS = f"writable, 1 GiB and {FILES} files free, kept after the job, at least {SLOWEST / 1e6:.0f} MB/s"
ELSEWHERE = (
    "set HPC_RESULTS to a folder on a file system that all nodes share and that is kept (project, work or scratch)"
)
LINKS = "hard links, which claims on runs are made with"
SHARED = "a file that one node writes is seen by all"


def look_results(bench: Bench) -> Facts:
    """The results folder's file system, written and read."""
    folder = paths.results()
    try:
        with filesystem.scratch(folder) as own:
            return filesystem.about(own) | filesystem.speed(own, bench.share(0.25, 3.0))
    except OSError as error:
        return filesystem.about(folder) | {"error": error.strerror or str(error)}


def judge_results(facts: Facts) -> Check:
    """One node's view of the results folder."""
    said = filesystem.describe(facts)
    if "error" in facts:
        return failed(f"{facts['error']} ({said})", RESULTS, ELSEWHERE)
    said += f"; write {_rate(facts['write'])} with fsync, read {_rate(facts['read'])}"
    if facts["kind"] in filesystem.IN_MEMORY:
        return failed(f"{said}: memory, gone with the job", RESULTS, ELSEWHERE)
    if facts["free_bytes"] < GIB or (facts["free_files"] is not None and facts["free_files"] < FILES):
        return failed(said, RESULTS, f"make room (`df -h`, `df -i`, your quota), or {ELSEWHERE}")
    if facts["write"] < SLOWEST:
        return failed(said, RESULTS, ELSEWHERE)
    return passed(said, RESULTS)


def look_data(bench: Bench) -> Facts:
    """The data folder's file system, and how fast its largest file is read."""
    folder = paths.data()
    files = [path for path in folder.glob("*/*") if path.is_file()] if folder.is_dir() else []
    largest = max(files, key=lambda path: path.stat().st_size, default=None)
    facts = filesystem.about(folder)
    if largest is None:
        return facts | {"read": None}
    return facts | {"read": filesystem.reading(largest, bench.share(0.25, 3.0)), "bytes": largest.stat().st_size}


def judge_data(facts: Facts) -> Check:
    """One node's view of the data folder."""
    said = filesystem.describe(facts)
    expected = f"a data set that is read at {SLOWEST / 1e6:.0f} MB/s or more (after the page cache has dropped it)"
    if facts["read"] is None:
        return not_applicable(f"no data set in the data folder ({said}); digits needs none")
    said += f"; read {_rate(facts['read'])} of {facts['bytes'] / 2**20:.0f} MiB"
    if facts["read"] < SLOWEST and facts["bytes"] > 2**20:  # of less only the latency is seen
        return failed(
            said, expected, "copy the data to a disk of the node (`storage.node_local` in the cluster file)"
        )
    return passed(said, expected)


def look_links(bench: Bench) -> Facts:
    """Whether `link` makes a second name, and refuses a name that exists: both are what a claim needs."""
    try:
        with filesystem.scratch(paths.results()) as own:
            first, second = own / "first", own / "second"
            first.touch()
            os.link(first, second)
            alike = first.stat().st_nlink == 2
            try:
                os.link(first, second)
            except FileExistsError:
                return {"works": alike, "error": "" if alike else "a link is a copy"}
            return {"works": False, "error": "a second claim on one name succeeds"}
    except OSError as error:
        return {"works": False, "error": error.strerror or str(error)}


def judge_links(facts: Facts) -> Check:
    """One node's answer."""
    if facts["works"]:
        return passed("link works, and refuses a name that exists", LINKS)
    return failed(f"no hard links in the results folder: {facts['error']}", LINKS, ELSEWHERE)


def look_shared(bench: Bench) -> Facts:
    """Rank 0 writes a file; the first rank of every other node waits for it, `seconds` long (None: in vain)."""
    facts: Facts = {"nodes": bench.nodes, "seconds": 0.0, "error": ""}
    if bench.nodes == 1:
        return facts
    if bench.is_main:
        _show(bench, facts)
        return facts
    name = bench.exchange.hear("shared/file", bench.patience)
    if not name:
        return facts | {"error": "rank 0 could not write"}
    facts["seconds"] = _appears(Path(name), 0.6 * bench.patience)
    bench.exchange.post("shared/seen", True)
    return facts


def _appears(path: Path, seconds: float) -> float | None:
    """After how many seconds `path` is there; None if not in time."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        with suppress(OSError):
            os.listdir(path.parent)  # has NFS ask its server again
            if path.exists():
                return time.monotonic() - began
        time.sleep(0.1)
    return None


def _show(bench: Bench, facts: Facts) -> None:
    """Rank 0's part: the file stays until all others have looked for it."""
    others = range(bench.ranks_per_node, bench.world, bench.ranks_per_node)
    try:
        with filesystem.scratch(paths.results()) as own:
            path = own / uuid.uuid4().hex
            path.touch()
            bench.exchange.announce("shared/file", str(path))
            bench.exchange.collect("shared/seen", others, 0.8 * bench.patience)
    except OSError as error:
        bench.exchange.announce("shared/file", "")
        facts["error"] = error.strerror or str(error)


def judge_shared(seen: Sequence[Seen]) -> Check:
    """All nodes' answers."""
    if seen[0].facts["nodes"] == 1:
        return not_applicable("one node sees its own files")
    broken = [one for one in seen if one.facts["error"]]
    if broken:
        return unknown(f"not tried: {broken[0].facts['error']}", SHARED, "see results folder")
    blind = [one for one in seen if one.facts["seconds"] is None]
    if blind:
        return failed(
            f"not seen by {len({one.host for one in blind})} of {len(seen)} nodes", SHARED, ELSEWHERE, places(blind)
        )
    return passed(
        f"seen by {len(seen)} nodes after at most {max(one.facts['seconds'] for one in seen):.1f} s", SHARED
    )


def _rate(rate: float | None) -> str:
    return "not known" if rate is None else f"{rate / 1e6:.0f} MB/s"
