"""Processes of a launch: where their output goes, and their common end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils.workspace import Launch

if TYPE_CHECKING:
    import psutil

GRACE = 10.0  # s between SIGTERM and SIGKILL


def die_with_parent(parent: int | None = None) -> None:
    """Linux: have the kernel end this process when its parent ends, even if the parent is killed.

    Args:
        parent: its process id, if the launcher has recorded it: it may have ended already.
    """
    parent = parent or os.getppid()
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl was called
        os._exit(1)


def start_bound(command: Sequence[str], environment: Mapping[str, str], **streams: Any) -> subprocess.Popen:
    """Start `command`, which ends with this process. Ctrl-C does not reach it: this process ends it."""
    parent = os.getpid()
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(parent),
        **streams,
    )


def adopt_orphans() -> None:
    """Linux: make this process the parent of descendants whose own parent ends, as process 1 is."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


def log_to(path: str | Path) -> None:
    """Send all that this process prints, from C++ too, to `path`, line by line."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        os.dup2(log, number)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    os.close(log)


def find_processes(matches: Callable[[Launch], bool]) -> Iterator[psutil.Process]:
    """The processes whose launch record matches."""
    import psutil

    for pid in psutil.pids():
        # Not `process_iter`, which caches the program: nsys' launcher has the rank's pid until it becomes Python.
        with contextlib.suppress(psutil.Error, OSError):  # ended meanwhile, or of another user
            process = psutil.Process(pid)
            if matches(Launch.of(process.environ())):
                yield process


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below `pid`, without itself."""
    import psutil

    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def end_tree(process: subprocess.Popen, owner: str, grace: float = GRACE) -> None:
    """SIGTERM to `process`; after `grace` seconds SIGKILL to it and to all other processes of the launch `owner`.

    Process groups are not enough: torchrun puts each rank into its own session, and processes that a rank started are
    reparented when the rank ends.
    """
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(grace)
    except subprocess.TimeoutExpired:
        pass
    finally:  # at once on a second Ctrl-C
        process.kill()
        process.wait()
        kill(list(find_processes(lambda launch: launch.owner == owner)))


def kill(processes: Sequence[psutil.Process]) -> None:
    """SIGKILL to all of them, and wait for their end."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=5)
