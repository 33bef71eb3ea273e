"""A folder's file system: its kind, its room, and how fast it writes and reads."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hpc_utils.provenance.tools import read

from .check import Facts

MIB = 2**20
MOST = 256 * MIB  # written and read, less where space is short
CHUNK = 8 * MIB
IN_MEMORY = ("tmpfs", "ramfs")


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder of our own inside `folder`, which is made if need be; removed with its content at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


def about(folder: Path) -> Facts:
    """Kind, free bytes and free files (None where the file system does not count them) of where `folder` lies."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    room = os.statvfs(there)
    return {
        "kind": kind(there),
        "free_bytes": room.f_bavail * room.f_frsize,
        "free_files": room.f_favail if room.f_files else None,
    }


def kind(folder: Path, mounts: str | None = None) -> str | None:
    """`lustre`, `nfs4`, `tmpfs`, ...: that of the innermost mount that holds `folder`; None if not known.

    Args:
        mounts: what /proc/self/mounts says: `DEVICE FOLDER KIND OPTIONS 0 0`, spaces written as \\040.
    """
    lines = ((read(Path("/proc/self/mounts")) or "") if mounts is None else mounts).splitlines()
    found = [(_plain(fields[1]), fields[2]) for line in lines if len(fields := line.split()) >= 3]
    around = [(Path(place), name) for place, name in found if folder.resolve().is_relative_to(place)]
    deepest = max((len(place.parts) for place, _ in around), default=0)
    kinds = [name for place, name in around if len(place.parts) == deepest]
    return kinds[-1] if kinds else None  # the last one mounted covers those before


def speed(folder: Path, seconds: float) -> Facts:
    """{"write", "read"} in byte/s of a fresh file in `folder`, each for at most about `seconds`.

    Writing includes fsync. Before reading, the page cache is asked to drop the file (posix_fadvise), so that the
    device or the server is read; what a server caches itself stays unknown, and tmpfs is memory anyway.
    """
    room = os.statvfs(folder)
    size = min(MOST, room.f_bavail * room.f_frsize // 8) // CHUNK * CHUNK or CHUNK
    path, content = folder / "speed", os.urandom(CHUNK)
    began, written = time.perf_counter(), 0
    with path.open("wb", buffering=0) as file:
        while written < size and time.perf_counter() - began < seconds:
            written += file.write(content)
        os.fsync(file.fileno())
    return {"write": written / (time.perf_counter() - began), "read": reading(path, seconds)}


def reading(path: Path, seconds: float) -> float | None:
    """Byte/s of reading `path` from its beginning, for at most `seconds` and `MOST`; None for an empty file."""
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began, done = time.perf_counter(), 0
        while done < MOST and time.perf_counter() - began < seconds and (chunk := file.read(CHUNK)):
            done += len(chunk)
        return done / (time.perf_counter() - began) if done else None


def describe(facts: Facts) -> str:
    """`lustre, 412 GiB and 3.1 million files free`."""
    files = f" and {_count(facts['free_files'])} files" if facts["free_files"] is not None else ""
    return f"{facts['kind'] or 'kind not known'}, {facts['free_bytes'] / 2**30:.1f} GiB{files} free"


def _count(number: int) -> str:
    return f"{number / 1e6:.1f} million" if number >= 1e6 else str(number)


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
