"""The folders that runs write to and read from: file system, space, speed, hard links, visibility on all nodes."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil

from hpc_utils import datasets, paths

from .check import Context, Facts, Observations, Result, failed, judge, locations, passed, unknown

IN_MEMORY = ("tmpfs", "ramfs")  # file systems
IMAGES = "train-images.npy"
BATCH = 128  # images of a read that is like the loader's
MOST = 256 * 2**20  # written, less where space is short
CHUNK = 8 * 2**20
FILES = 10_000  # a run leaves some twenty
SLOWEST = 20e6  # byte/s: a ResNet-50's checkpoint, 200 MB with its momentum, in ten seconds
ELSEWHERE = (
    "set HPC_RESULTS to a folder on a file system that all nodes share and that is kept (project, work or scratch)"
)


def filesystem(folder: Path) -> str | None:
    """`lustre`, `nfs4`, `tmpfs`, ...: that of the innermost mount that holds `folder`; None if unknown."""
    mounts = psutil.disk_partitions(all=True)
    around = [mount for mount in mounts if folder.resolve().is_relative_to(mount.mountpoint)]
    # Of several mounts on one folder the last covers the others.
    return max(reversed(around), key=lambda mount: len(Path(mount.mountpoint).parts)).fstype if around else None


def space(folder: Path) -> Facts:
    """File system, free bytes and free files (None where it does not count them) of where `folder` lies."""
    free = os.statvfs(next(path for path in (folder, *folder.parents) if path.exists()))
    return {
        "filesystem": filesystem(folder),
        "free_bytes": free.f_bavail * free.f_frsize,
        "free_files": free.f_favail if free.f_files else None,
    }


def _describe(facts: Facts) -> str:
    """`lustre, 412.0 GiB and 3,100,000 files free`."""
    files = "" if facts["free_files"] is None else f" and {facts['free_files']:,} files"
    return f"{facts['filesystem'] or 'unknown file system'}, {facts['free_bytes'] / 2**30:.1f} GiB{files} free"


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


def measure_results(context: Context) -> Facts:
    """The results folder: its file system, the byte/s of writing a new file with fsync, and whether hard links
    work."""
    facts = space(paths.results())
    content = os.urandom(CHUNK)
    size = min(MOST, facts["free_bytes"] // 8)
    seconds = context.share(0.25, 3.0)
    try:
        with _scratch(paths.results()) as folder:
            path = folder / "speed"
            began = time.perf_counter()
            written = 0
            with path.open("wb", buffering=0) as file:
                while not written or (written < size and time.perf_counter() - began < seconds):
                    written += file.write(content)
                os.fsync(file.fileno())
            speed = written / (time.perf_counter() - began)
            return facts | {"write": speed, "failure": _link_failure(path)}
    except OSError as error:
        return facts | {"write": 0.0, "failure": error.strerror or str(error)}


def _link_failure(file: Path) -> str:
    """Why a claim fails: `link` must create a second name, and refuse a name that exists. "" if it does both."""
    name = file.with_name("link")
    try:
        os.link(file, name)
        if file.stat().st_nlink != 2:
            return "a hard link is a copy"
        os.link(file, name)
    except FileExistsError:
        return ""
    except OSError as error:
        return f"no hard links ({error.strerror})"
    return "a second hard link of one name succeeds"


@judge(
    "results folder",
    f"writable with hard links, which claim runs; 1 GiB and {FILES} files free; kept after the job; {SLOWEST / 1e6:.0f} MB/s",
    each=True,
)
def judge_results(facts: Facts) -> Result:
    """One node's results folder."""
    measured = f"{_describe(facts)}; write {facts['write'] / 1e6:.0f} MB/s with fsync"
    if facts["failure"]:
        return failed(f"{facts['failure']} ({measured})", ELSEWHERE)
    if facts["filesystem"] in IN_MEMORY:
        return failed(f"{measured}: memory, lost after the job", ELSEWHERE)
    if facts["free_bytes"] < 2**30 or (facts["free_files"] is not None and facts["free_files"] < FILES):
        return failed(measured, f"free space (`df -h`, `df -i`, your quota), or {ELSEWHERE}")
    return passed(measured) if facts["write"] >= SLOWEST else failed(measured, ELSEWHERE)


def measure_shared(context: Context) -> Facts:
    """Seconds after which a file of rank 0 appears on this node; None: it does not."""
    if context.rank == 0:
        file = context.cleanup.enter_context(_scratch(paths.results())) / uuid.uuid4().hex
        file.touch()
        context.mailbox.put("shared/file", str(file))
        return {"seconds": 0.0}
    name = context.mailbox.get("shared/file", 0.4 * context.timeout)
    return {"seconds": _appears(Path(name), 0.5 * context.timeout)}


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


@judge("shared results", "a file that one node writes is seen by all")
def judge_shared(observations: Observations) -> Result:
    """All nodes' answers."""
    if blind := [observation for observation in observations if observation["seconds"] is None]:
        return failed(f"not seen by {len(blind)} of {len(observations)} nodes", ELSEWHERE, locations(blind))
    latest = max(observation["seconds"] for observation in observations)
    return passed(f"seen by {len(observations)} nodes after at most {latest:.1f} s")


def measure_data(context: Context) -> Facts:
    """The data folder's file system, how fast its largest data set is read, and the data sets of this node."""
    files = paths.data().glob(f"*/{IMAGES}")
    largest = max(files, key=lambda path: path.stat().st_size, default=None)
    return {
        "filesystem": filesystem(paths.data()),
        "read": _read_speed(largest, context.share(0.25, 3.0)) if largest else None,
        "bytes": largest.stat().st_size if largest else 0,
        "available": list(filter(available, datasets.DATASETS)),
    }


def _read_speed(path: Path, seconds: float) -> float:
    """Byte/s of reading images for at most `seconds`, their pages dropped before.

    What a server caches itself stays unknown, and tmpfs is memory anyway.
    """
    with path.open("rb") as file:
        drop_cache(file.fileno())
    count = len(np.load(path, mmap_mode="r"))
    duration, size, _ = read_batches(path, np.random.default_rng(0).permutation(count), seconds=seconds)
    return size / duration


def read_batches(path: Path, order: np.ndarray, *, seconds: float, most: int = 0) -> tuple[float, int, int]:
    """(seconds, bytes, reads) of the images `order`, batch by batch, each copied out of the mapped file as the loader
    does.

    `most`: reads; for 0 as many as `seconds` allow.
    """
    images = np.load(path, mmap_mode="r")
    begin = time.perf_counter()
    size = reads = 0
    for start in range(0, len(order), BATCH):
        size += images[order[start : start + BATCH]].nbytes
        reads += 1
        if reads == most or (not most and time.perf_counter() - begin > seconds):
            break
    return time.perf_counter() - begin, size, reads


def available(name: str) -> bool:
    """Whether the data set can be opened on this node."""
    try:
        datasets.load(name, "train")
    except (datasets.DataError, OSError, ImportError):
        return False
    return True


@judge(
    "data sets",
    f"fetched before, on every node, and read at {SLOWEST / 1e6:.0f} MB/s or more: nodes need no internet",
)
def judge_data(observations: Observations) -> Result:
    """All nodes' data sets side by side, and how fast they are read."""
    names = sorted({name for observation in observations for name in observation["available"]})
    for name in names:
        if nodes_without := [observation for observation in observations if name not in observation["available"]]:
            fix = "set HPC_DATA to a folder that all nodes see, or copy the data to every node's disk"
            return failed(f"{name} is not on every node", fix, locations(nodes_without))
    if not names:
        return unknown("no data set", "hpc data fetch cifar10 (on a node with internet)")
    slow = [
        observation for observation in observations if observation["bytes"] > 2**20 and observation["read"] < SLOWEST
    ]
    facts = (slow or observations)[0].facts
    measured = ", ".join(names)
    if facts["bytes"] > 2**20:  # smaller files show only the latency
        measured += f"; {facts['filesystem'] or 'unknown file system'}, read {facts['read'] / 1e6:.0f} MB/s"
    if slow:
        fix = "copy the data to a disk of the node (`storage.node_local` in the cluster file)"
        return failed(measured, fix, locations(slow))
    return passed(measured)
