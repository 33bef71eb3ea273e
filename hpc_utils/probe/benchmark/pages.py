"""What of a file the kernel holds in memory, and having it forget that."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np


def drop(path: Path) -> None:
    """Ask the kernel to forget a file's pages, which needs no root: those that are written, and that nobody maps."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):  # not on macOS: `resident` tells
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(path: Path) -> float | None:
    """The share of a file's pages that are in memory (mincore); None where the system does not tell.

    What a server, a controller or a hypervisor keeps is not seen.
    """
    content = np.memmap(path, mode="r")
    pages = np.zeros(-(-content.size // mmap.PAGESIZE), np.uint8)
    try:
        mincore = ctypes.CDLL(None, use_errno=True).mincore
    except AttributeError:
        return None
    arguments = (
        ctypes.c_void_p(content.ctypes.data),
        ctypes.c_size_t(content.size),
        ctypes.c_void_p(pages.ctypes.data),
    )
    return float((pages & 1).mean()) if mincore(*arguments) == 0 else None
