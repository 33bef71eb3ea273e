"""Processes that never outlive the one that started them, and how to end a whole tree of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

GRACE = 10.0  # s that processes get to end by themselves after SIGTERM
PARENT = "HPC_PARENT"  # whose end is a child's end: set for it by the process that starts it


def die_with_parent() -> None:
    """Linux: have the kernel end this process with its parent, even if that is killed."""
    parent = int(os.environ.pop(PARENT, os.getppid()))
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)


def end_tree(process: subprocess.Popen, mark: tuple[str, str], grace: float = GRACE) -> None:
    """SIGTERM to `process`; after `grace` seconds SIGKILL to it and to whatever is left of what it started.

    That is known by `mark`, a variable of its environment and the value: torchrun puts each rank into a session
    of its own, so process groups do not reach them, and what a rank started is nobody's child once it is gone.
    """
    import psutil

    try:
        if process.poll() is None:
            process.terminate()
            process.wait(grace)
    except subprocess.TimeoutExpired:
        pass
    finally:  # at once if Ctrl-C is pressed again
        process.kill()
        process.wait()
        left = list(_marked(*mark))
        for orphan in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()
        psutil.wait_procs(left, timeout=5)


def _marked(name: str, value: str) -> Iterator[psutil.Process]:
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or somebody else's
            if process.environ().get(name) == value:
                yield process
