"""Memory of this rank: its peak, its level during training, and how often the kernel must provide pages."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from .observer import Observer

MIB = 2**20

Bytes = dict[str, int | None]


class MemoryMeter(Observer):
    """Peak memory, and the level at the end of sampled steps: some ten microseconds each time.

    At the end of a step its activations are gone: what is left are weights, gradients, the optimizer's state and a batch.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._former: Bytes = {}  # peaks of former attempts
        self._levels: dict[str, Counter[int]] = {"allocated": Counter(), "rss": Counter()}  # how often each was seen

    def on_start(self, run: Path) -> None:
        reset_peak(self._device)

    def on_step(self, sampled: bool) -> None:
        if sampled:
            self._levels["rss"][_rss()] += 1
            if self._device.type == "cuda":
                self._levels["allocated"][_allocated(self._device)] += 1

    def columns(self) -> Bytes:
        """Of `ranks.csv`, in bytes: peaks, and `mean_` and `mode_` of the levels `allocated_bytes` (accelerator; None on a
        CPU) and `rss_bytes`.

        The mode is of values rounded to MiB; of those equally common the largest.
        """
        found = self._peaks()
        for name, seen in self._levels.items():
            rounded: Counter[int] = Counter()
            for size, times in seen.items():
                rounded[round(size / MIB)] += times
            mode = max(rounded, key=lambda size, rounded=rounded: (rounded[size], size), default=0)
            total = sum(size * times for size, times in seen.items())
            found[f"mean_{name}_bytes"] = round(total / seen.total()) if seen else None
            found[f"mode_{name}_bytes"] = mode * MIB if seen else None
        return found

    def state(self) -> dict[str, Any]:
        """What was seen so far, as plain values, for a checkpoint."""
        return {"peaks": self._peaks(), "levels": {name: dict(seen) for name, seen in self._levels.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from where `state` was taken."""
        self._former = state["peaks"]
        self._levels = {name: Counter(seen) for name, seen in state["levels"].items()}

    def _peaks(self) -> Bytes:
        """Over former attempts too."""
        pairs = {name: (value, self._former.get(name)) for name, value in peak(self._device).items()}
        return {name: max((v for v in pair if v is not None), default=None) for name, pair in pairs.items()}


def reset_peak(device: torch.device) -> None:
    """Forget the accelerator's peak so far."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> Bytes:
    """Bytes: `peak_allocated_bytes`, `peak_reserved_bytes` (accelerator; None on a CPU), `peak_rss_bytes`."""
    gpu = device.type == "cuda"
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device) if gpu else None,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device) if gpu else None,
        "peak_rss_bytes": _peak_rss(),
    }


def minor_faults() -> int:
    """How often the kernel has given this process a page so far, no disk involved."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def keep_freed() -> None:
    """Have glibc keep freed memory for the next step, instead of returning it and asking for it again in each.

    Each page asked for again is a fault: thousands per step, which cost a small model on a CPU a third of its time.
    Only glibc has these settings (mallopt(3)); they last as long as the process.
    """
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return
    if glibc and glibc.startswith("glibc"):
        trim_threshold, mmap_threshold = -1, -3
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(trim_threshold, 2**31 - 1)  # never return memory
        mallopt(mmap_threshold, 32 << 20)  # the largest that it takes: larger blocks are mapped one by one


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
