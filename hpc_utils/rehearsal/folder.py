"""The folder of a cluster's state, and the process that owns it.

`/tmp/hpc-cluster-UID/NAME`, or `$HPC_REHEARSAL/NAME`: short, since the path of a Unix socket ends at 107 bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from hpc_utils import file_lock
from hpc_utils.records.claim import started

from . import processes
from .host import ClusterError

# The longest socket in it is slurmstepd's: /spool/NODE/NODE_JOB.STEP.
LONGEST = 107 - len("/spool/node64/node64_67108863.4294967291")
PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,23}")
# What a cluster makes in its folder: one that holds anything else is not deleted.
MADE = {
    ".owner", "control", "dev", "etc", "log", "mariadb", "munge", "owner", "plan.json", "run", "spool", "state",
}  # fmt: skip


def of(name: str) -> Path:
    """The folder of the cluster `name`; ClusterError if the name or the folder is not possible."""
    if not NAME.fullmatch(name):
        raise ClusterError(f"cluster name {name!r}: 1 to 24 of a-z, 0-9, _ and -, the first a letter")
    folder = Path(os.environ.get("HPC_REHEARSAL") or f"/tmp/hpc-cluster-{os.getuid()}").absolute() / name
    # Sockets of the cluster need a short path; each node has a /dev/shm of its own.
    if not PLAIN.fullmatch(str(folder)) or len(str(folder)) > LONGEST or folder.is_relative_to("/dev/shm"):
        raise ClusterError(
            f"{folder}: set HPC_REHEARSAL to a path of at most {LONGEST} letters, digits and /._+-, not in /dev/shm"
        )
    return folder


def claim(folder: Path) -> None:
    """Create `folder` for this process; ClusterError if a living process owns it. Remains of a dead one are removed."""
    with _alone(folder.parent):
        if (owner := living_owner(folder)) is not None:
            raise ClusterError(f"cluster {folder.name} is being started or ended by process {owner.pid}")
        delete(folder)
        folder.mkdir(mode=0o700)
        give(folder, os.getpid())


def give(folder: Path, pid: int) -> None:
    """Make `pid` the owner: the cluster lives as long as it does."""
    temporary = folder / ".owner"
    temporary.write_text(json.dumps([pid, started(pid)]))
    temporary.replace(folder / "owner")


def living_owner(folder: Path) -> psutil.Process | None:
    """The owner, if it is alive."""
    with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
        pid, start = json.loads((folder / "owner").read_text())
        if start == started(pid):
            return psutil.Process(pid)
    return None


def remove(folder: Path) -> None:
    """Delete `folder` unless another living process owns it by now; the default parent too if it is empty then."""
    with _alone(folder.parent):
        if living_owner(folder) in (None, psutil.Process()):
            delete(folder)
        if "HPC_REHEARSAL" not in os.environ:
            with contextlib.suppress(OSError):
                folder.parent.rmdir()


def delete(folder: Path) -> None:
    """Delete `folder`; ending processes may still write for a moment, so it is tried again until nothing is left.

    Where every process of a flat cluster's head and nodes was killed, the slurmstepd of its jobs, which write its logs, or
    the jobs' scripts may still run: they are killed.

    Raises:
        ClusterError: it holds what no cluster makes.
    """
    if folder.exists():
        if foreign := sorted({entry.name for entry in folder.iterdir()} - MADE):
            raise ClusterError(
                f"{folder} is no cluster's folder: it holds {foreign[0]}; use another name or HPC_REHEARSAL"
            )
        processes.kill_users(folder)
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.02)
    shutil.rmtree(folder)


def leave_only_logs(folder: Path) -> None:
    """Delete all but the logs: a failed start leaves the reader these."""
    for entry in folder.iterdir():
        if entry.name != "log":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock on `folder`, which is created, private, where it is missing."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.lstat().st_uid != os.getuid():  # of the link itself, if it is one: anyone may make one in /tmp
            raise ClusterError(f"{folder} belongs to another user: set HPC_REHEARSAL to a folder of your own")
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # the last cluster in it was removed just now
            continue
        try:
            with file_lock.tolerating(folder):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                yield
                return
        finally:
            os.close(handle)
