"""Memory of this rank: its peak, its level while training, and how often the kernel must find it some."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

MIB = 2**20
LEVELS = ("allocated", "rss")


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


class Level:
    """How much memory this rank holds at the ends of its steps, where it is asked: some ten microseconds each time.

    There the step's activations are gone: what is left are weights, gradients, the optimizer's state and a batch.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums = {name: 0 for name in LEVELS}
        self._seen = {name: Counter() for name in LEVELS}  # rounded to MiB

    def sample(self) -> None:
        """Look once."""
        self._count("rss", _rss())
        if self._device.type == "cuda":
            self._count("allocated", _allocated(self._device))

    def summary(self) -> dict[str, int | None]:
        """Bytes: `mean_` and `mode_` of `allocated_bytes` (accelerator; None on a CPU) and of `rss_bytes`.

        The mode is of values rounded to MiB; of those equally common the largest.
        """
        found: dict[str, int | None] = {}
        for name, seen in self._seen.items():
            mode = max(seen, key=lambda size, seen=seen: (seen[size], size)) if seen else None
            found[f"mean_{name}_bytes"] = round(self._sums[name] / seen.total()) if seen else None
            found[f"mode_{name}_bytes"] = mode * MIB if seen else None
        return found

    def state(self) -> dict[str, Any]:
        """What was seen so far, as plain values, for a checkpoint."""
        return {"sums": dict(self._sums), "seen": {name: dict(seen) for name, seen in self._seen.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Count on from where `state` was taken."""
        self._sums = dict(state["sums"])
        self._seen = {name: Counter(seen) for name, seen in state["seen"].items()}

    def _count(self, name: str, size: int) -> None:
        self._sums[name] += size
        self._seen[name][round(size / MIB)] += 1


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


def _rss() -> int:
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import psutil

        return psutil.Process().memory_info().rss


def _allocated(device: torch.device) -> int:
    # Not torch.cuda.memory_allocated: it flattens and sorts all statistics for this one.
    held = torch.cuda.memory_stats_as_nested_dict(device)
    return held["allocated_bytes"]["all"]["current"] if held else 0


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
