"""A lock of this machine's cores: a user's runs wait for each other instead of being measured against each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hpc_utils import file_lock, workspace
from hpc_utils.provenance.cpu import usable

RECORD = 256  # bytes of the file for each logical CPU: a run locks them, and describes itself there


@contextlib.contextmanager
def lock_cores(run: str) -> Iterator[None]:
    """Lock the logical CPUs that this process may use, in the block; wait for the runs that have locked any of them.

    The kernel releases the locks when this process ends. Jobs with cores of their own do not wait for each other, nor
    do different users, runs marked as shared (`HPC_SHARED`), and those that a run's own cells start.
    """
    if workspace.is_shared() or workspace.launch().owner:
        yield
        return
    cpus = usable()
    me = f"{run} (process {os.getpid()}) is measured on CPUs {cpus[0]} to {cpus[-1]}"
    path = Path(tempfile.gettempdir()) / f"hpc-cores-{os.getuid()}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with file_lock.tolerating(path.parent):
            for start in (cpu * RECORD for cpu in cpus):  # in ascending order, so that there is no deadlock
                _lock(handle, start)
                os.pwrite(handle, f"{me:{RECORD}.{RECORD}}".encode(), start)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, start: int) -> None:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, RECORD, start)
    except BlockingIOError:
        from tqdm import tqdm

        tqdm.write(f"waiting: {os.pread(handle, RECORD, start).decode().strip()}", file=sys.stderr)
        fcntl.lockf(handle, fcntl.LOCK_EX, RECORD, start)
