"""The folders that runs write to and read from: file system, space, speed, hard links, visibility on all nodes."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hpc_utils import datasets, paths

from .check import Context, Facts, Observations, Result, failed, locations, not_applicable, passed, unknown

MIB, GIB = 2**20, 2**30
MOST = 256 * MIB  # written and read, less where space is short
CHUNK = 8 * MIB
IN_MEMORY = ("tmpfs", "ramfs")
FILES = 10_000  # a run leaves some twenty
SLOWEST = 20e6  # byte/s: a ResNet-50's checkpoint, 200 MB with its momentum, in ten seconds
ELSEWHERE = (
    "set HPC_RESULTS to a folder on a file system that all nodes share and that is kept (project, work or scratch)"
)


def filesystem(folder: Path) -> str | None:
    """`lustre`, `nfs4`, `tmpfs`, ...: that of the innermost mount that holds `folder`; None if unknown."""
    import psutil

    mounts = psutil.disk_partitions(all=True)
    around = [mount for mount in mounts if folder.resolve().is_relative_to(mount.mountpoint)]
    # Of several mounts on one folder the last covers the others.
    return max(reversed(around), key=lambda mount: len(Path(mount.mountpoint).parts)).fstype if around else None


def space(folder: Path) -> Facts:
    """File system, free bytes and free files (None where it does not count them) of where `folder` lies."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = os.statvfs(existing)
    return {
        "filesystem": filesystem(existing),
        "free_bytes": free.f_bavail * free.f_frsize,
        "free_files": free.f_favail if free.f_files else None,
    }


def _describe(facts: Facts) -> str:
    """`lustre, 412.0 GiB and 3,100,000 files free`."""
    files = "" if facts["free_files"] is None else f" and {facts['free_files']:,} files"
    return f"{facts['filesystem'] or 'unknown file system'}, {facts['free_bytes'] / GIB:.1f} GiB{files} free"


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A temporary folder inside `folder`, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


def drop_cache(file: int) -> None:
    """Ask the kernel to drop the clean, unmapped pages of an open file from memory. Needs no root; macOS cannot."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def _write_speed(path: Path, seconds: float) -> float:
    """Byte/s of writing a new file, fsync included, for at most about `seconds`."""
    free = os.statvfs(path.parent)
    size = min(MOST, free.f_bavail * free.f_frsize // 8) // CHUNK * CHUNK or CHUNK
    content = os.urandom(CHUNK)
    began, written = time.perf_counter(), 0
    with path.open("wb", buffering=0) as file:
        while written < size and time.perf_counter() - began < seconds:
            written += file.write(content)
        os.fsync(file.fileno())
    return written / (time.perf_counter() - began)


def _read_speed(path: Path, seconds: float) -> float | None:
    """Byte/s of reading a file for at most `seconds` and `MOST`, its pages dropped before; None if it is empty.

    What a server caches itself stays unknown, and tmpfs is memory anyway.
    """
    with path.open("rb", buffering=0) as file:
        drop_cache(file.fileno())
        began, done = time.perf_counter(), 0
        while done < MOST and time.perf_counter() - began < seconds and (chunk := file.read(CHUNK)):
            done += len(chunk)
        return done / (time.perf_counter() - began) if done else None


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate / 1e6:.0f} MB/s"


WRITABLE = f"writable, 1 GiB and {FILES} files free, kept after the job, at least {SLOWEST / 1e6:.0f} MB/s"


def measure_results(context: Context) -> Facts:
    """The results folder's file system, written and read, and its links."""
    seconds = context.share(0.25, 3.0)
    try:
        with _scratch(paths.results()) as folder:
            file = folder / "speed"
            speeds = {"write": _write_speed(file, seconds), "read": _read_speed(file, seconds)}
            return space(folder) | speeds | {"link_failure": _link_failure(file)}
    except OSError as error:
        return space(paths.results()) | {"failure": error.strerror or str(error)}


def _link_failure(file: Path) -> str:
    """Why a claim fails: `link` must create a second name, and refuse a name that exists. "" if it does both."""
    name = file.with_name("link")
    try:
        os.link(file, name)
        if file.stat().st_nlink != 2:
            return "a link is a copy"
        os.link(file, name)
    except FileExistsError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return "a second claim on one name succeeds"


def judge_results(facts: Facts) -> Result:
    """One node's results folder."""
    measured = _describe(facts)
    if "failure" in facts:
        return failed(f"{facts['failure']} ({measured})", WRITABLE, ELSEWHERE)
    measured += f"; write {_rate(facts['write'])} with fsync, read {_rate(facts['read'])}"
    if facts["filesystem"] in IN_MEMORY:
        return failed(f"{measured}: memory, lost after the job", WRITABLE, ELSEWHERE)
    if facts["free_bytes"] < GIB or (facts["free_files"] is not None and facts["free_files"] < FILES):
        return failed(measured, WRITABLE, f"free space (`df -h`, `df -i`, your quota), or {ELSEWHERE}")
    if facts["write"] < SLOWEST:
        return failed(measured, WRITABLE, ELSEWHERE)
    return passed(measured, WRITABLE)


LINKS = "hard links, with which runs are claimed"


def judge_links(facts: Facts) -> Result:
    """One node's links in the results folder."""
    if failure := facts.get("failure") or facts["link_failure"]:
        return failed(f"no hard links in the results folder: {failure}", LINKS, ELSEWHERE)
    return passed("link works, and refuses a name that exists", LINKS)


SHARED = "a file that one node writes is seen by all"


def measure_shared(context: Context) -> Facts:
    """Seconds after which a file of rank 0 appears on this node; None: it does not."""
    if context.rank == 0:
        return {"seconds": 0.0, "failure": _share_file(context)}
    name = context.mailbox.get("shared/file", context.timeout)
    if not name:
        return {"failure": "rank 0 could not write"}
    seconds = _appears(Path(name), 0.6 * context.timeout)
    context.mailbox.put(f"shared/seen/{context.rank}", True)
    return {"seconds": seconds, "failure": ""}


def _share_file(context: Context) -> str:
    """Keep a file in the results folder until all other nodes have looked for it; why it cannot be written, or ""."""
    others = range(context.ranks_per_node, context.world_size, context.ranks_per_node)
    try:
        with _scratch(paths.results()) as folder:
            file = folder / uuid.uuid4().hex
            file.touch()
            context.mailbox.put("shared/file", str(file))
            context.mailbox.collect("shared/seen", others, 0.8 * context.timeout)
    except OSError as error:
        context.mailbox.put("shared/file", "")
        return error.strerror or str(error)
    return ""


def _appears(path: Path, seconds: float) -> float | None:
    """After how many seconds `path` exists; None if not in time."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds:
        with suppress(OSError):
            os.listdir(path.parent)  # makes NFS ask its server again
            if path.exists():
                return waited
        time.sleep(0.1)
    return None


def judge_shared(seen: Observations) -> Result:
    """All nodes' answers."""
    if failures := [one.facts["failure"] for one in seen if one.facts["failure"]]:
        return unknown(f"not tried: {failures[0]}", SHARED, "see results folder")
    if blind := [one for one in seen if one.facts["seconds"] is None]:
        return failed(f"not seen by {len(blind)} of {len(seen)} nodes", SHARED, ELSEWHERE, locations(blind))
    latest = max(one.facts["seconds"] for one in seen)
    return passed(f"seen by {len(seen)} nodes after at most {latest:.1f} s", SHARED)


FAST = f"a data set that is read at {SLOWEST / 1e6:.0f} MB/s or more (after the page cache has dropped it)"


def measure_data(context: Context) -> Facts:
    """The data folder's file system, how fast its largest file is read, and the data sets of this node."""
    files = [path for path in paths.data().glob("*/*") if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size, default=None)
    facts = space(paths.data()) | {"read": None}
    if largest:
        facts |= {"read": _read_speed(largest, context.share(0.25, 3.0)), "bytes": largest.stat().st_size}
    return facts | {"available": list(filter(available, datasets.DATASETS))}


def available(name: str) -> bool:
    """Whether the data set can be opened on this node."""
    try:
        datasets.load(name, "train")
    except (datasets.DataError, OSError, ImportError):
        return False
    return True


def judge_data(facts: Facts) -> Result:
    """One node's data folder."""
    measured = _describe(facts)
    if facts["read"] is None:
        return not_applicable(f"no data set in the data folder ({measured}); digits needs none")
    measured += f"; read {_rate(facts['read'])} of {facts['bytes'] / MIB:.0f} MiB"
    if facts["read"] < SLOWEST and facts["bytes"] > MIB:  # smaller files show only the latency
        fix = "copy the data to a disk of the node (`storage.node_local` in the cluster file)"
        return failed(measured, FAST, fix)
    return passed(measured, FAST)


FETCHED = "data sets fetched before, on every node: compute nodes need no internet"


def judge_datasets(seen: Observations) -> Result:
    """All nodes' data sets side by side."""
    names = sorted({name for one in seen for name in one.facts["available"]})
    for name in names:
        if lacking := [one for one in seen if name not in one.facts["available"]]:
            fix = "set HPC_DATA to a folder that all nodes see, or copy the data to every node's disk"
            return failed(f"{name} is not on every node", FETCHED, fix, locations(lacking))
    if not names:
        return unknown("no data set", FETCHED, "hpc data fetch cifar10 (on a node with internet)")
    return passed(", ".join(names), FETCHED)
