"""Processes of a cluster: whether one lives, what is below it, and what a killed cluster left."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from hpc_utils.launch.process_tree import descendants


def alive(process: psutil.Process) -> bool:
    """Whether it runs. A zombie does not: where process 1 does not reap, an ended daemon stays a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(process: psutil.Process) -> None:
    """SIGKILL, if it is alive."""
    with suppress(psutil.NoSuchProcess):
        process.kill()


def kill_descendants(pid: int) -> None:
    """SIGKILL everything below `pid` at once, until nothing is left.

    Reparented processes are below `pid` only if it adopts orphans.
    """
    while below := list(filter(alive, descendants(pid))):
        for descendant in below:
            kill(descendant)
        time.sleep(0.005)
    if pid == os.getpid():
        reap(0)


def kill_users(folder: Path) -> None:
    """SIGKILL every process that writes a file of `folder`, or is a batch script there, with all below it."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()[:2]  # the shell, and its script
            script = any(word.startswith(f"{folder}/") and word.endswith("/slurm_script") for word in words)
            written = (file.path for file in process.open_files() if file.mode != "r")
            if process.pid != os.getpid() and (script or any(path.startswith(f"{folder}/") for path in written)):
                kill_descendants(process.pid)
                kill(process)


def reap(wait: int = os.WNOHANG) -> None:
    """Collect the children that have ended, one's own and adopted ones; with 0, wait for all to end."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, wait)[0]:
            pass
