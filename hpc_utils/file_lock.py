"""Locks of files. Some file systems have none: then work goes on without, and a line on stderr says so."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextlib.contextmanager
def tolerating(folder: Path) -> Iterator[None]:
    """End the block with a warning where `folder` has no locks."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        print(
            f"{folder} is on a file system without locks: start one command at a time there",
            file=sys.stderr,
            flush=True,
        )


@contextlib.contextmanager
def hold(path: Path, *, seconds: float = -1, wait: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold the lock `path` in the block, after the processes that hold it now; yields whether there are locks.

    Args:
        seconds: to wait at most; -1: without end. wait: called if another process holds it.

    Raises:
        filelock.Timeout: another process held it that long.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    with tolerating(path.parent):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            wait()
            lock.acquire(timeout=seconds, poll_interval=0.2)
    try:
        yield lock.is_locked
    finally:
        lock.release()
