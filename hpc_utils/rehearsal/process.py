"""Processes by id, as /proc shows them: alive, descended from, ended."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class Process(NamedTuple):
    """One process: its start, in clock ticks since boot, distinguishes it from a later one with the same id."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this id now: oneself, or a child not yet waited for."""
        if (fields := _stat(pid)) is None:
            raise ProcessLookupError(f"no process {pid}")
        return cls(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        """Whether it runs. A zombie does not: where process 1 does not reap, an ended daemon stays a zombie."""
        fields = _stat(self.pid)
        return fields is not None and fields[0] not in "ZX" and int(fields[19]) == self.started

    def kill(self) -> None:
        """SIGKILL, if it is alive."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Every living process below `pid`, without itself."""
    children = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) and fields[0] not in "ZX":
            children[int(fields[1])].append(int(entry))
    found, front = [], [pid]
    while front:
        front = [child for parent in front for child in children[parent]]
        found += front
    return found


def kill_descendants(pid: int) -> None:
    """SIGKILL everything below `pid` at once, until nothing is left.

    Reparented processes are below `pid` only if it adopts orphans.
    """
    while below := descendants(pid):
        for one in below:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.005)
    if pid == os.getpid():
        reap(0)


def writers(folder: Path) -> list[int]:
    """Every process that this one may look into and that has a file of `folder` open for writing; without itself."""

    def writes(process: Path) -> bool:
        return any(
            os.readlink(opened).startswith(f"{folder}/") and _is_written(process / "fdinfo" / opened.name)
            for opened in (process / "fd").iterdir()
        )

    return [pid for pid in _those(writes) if pid != os.getpid()]


def scripts(folder: Path) -> list[int]:
    """Every batch script that a node whose spool is in `folder` started."""

    def is_script(process: Path) -> bool:
        words = (process / "cmdline").read_bytes().split(b"\0")[:2]  # the shell, and its script
        return any(word.startswith(f"{folder}/".encode()) and word.endswith(b"/slurm_script") for word in words)

    return _those(is_script)


def _those(are: Callable[[Path], bool]) -> list[int]:
    """The processes whose folder in /proc `are` accepts, without those that end meanwhile."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if are(process):
                found.append(int(process.name))
    return found


def _is_written(fdinfo: Path) -> bool:
    flags = next(line.split()[1] for line in fdinfo.read_text().splitlines() if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def reap(wait: int = os.WNOHANG) -> None:
    """Collect the children that have ended, one's own and adopted ones; with 0, wait for all to end."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, wait)[0]:
            pass


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ended, as process 1 is."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from the state on: [0] state, [1] parent, [19] start time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
