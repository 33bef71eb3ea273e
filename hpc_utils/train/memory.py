"""Memory of this rank: its peak, and how often the kernel must find it some."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path

import torch


def reset_peak(device: torch.device) -> None:
    """Forget the accelerator's peak so far."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> dict[str, int | None]:
    """Bytes: `peak_allocated_bytes`, `peak_reserved_bytes` (accelerator; None on a CPU), `peak_rss_bytes`."""
    gpu = device.type == "cuda"
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device) if gpu else None,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device) if gpu else None,
        "peak_rss_bytes": _peak_rss(),
    }


def minor_faults() -> int:
    """How often the kernel had to give this process a page so far, no disk involved."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def keep_freed() -> None:
    """Have glibc keep what is freed, for the next step: it would give it back and ask for it anew in each.

    Each page asked for anew is a fault: thousands a step, which cost a small model on a CPU a third of its time.
    glibc alone knows these settings (mallopt(3)), and forgets them only with the process.
    """
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return
    if glibc and glibc.startswith("glibc"):
        trim_threshold, mmap_threshold = -1, -3
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(trim_threshold, 2**31 - 1)  # never give back
        mallopt(mmap_threshold, 32 << 20)  # the largest that it takes: beyond it, blocks are mapped one by one


def _peak_rss() -> int:
    try:
        # Not getrusage: on Linux its peak survives exec, so a child inherits its parent's.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
