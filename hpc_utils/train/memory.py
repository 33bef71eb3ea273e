"""Memory of this rank: peak, level during training, and page faults."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from .observer import Observer

Bytes = dict[str, int | None]


class MemoryMeter(Observer):
    """Peak memory, and the level at the end of sampled steps (about ten microseconds per reading).

    At the end of a step, memory holds weights, gradients, optimizer state and a batch, but no activations.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._former: Bytes = {}  # peaks of previous attempts
        self._levels: dict[str, Counter[int]] = {"allocated": Counter(), "rss": Counter()}  # readings by value

    def on_start(self, run: Path) -> None:
        reset_peak(self._device)

    def on_step(self, sampled: bool) -> None:
        if sampled:
            self._levels["rss"][_rss()] += 1
            if self._device.type == "cuda":
                self._levels["allocated"][_allocated(self._device)] += 1

    def columns(self) -> Bytes:
        """Return the memory columns of `ranks.csv` in bytes: peaks, and mean and mode of the levels.

        `allocated` columns are of the accelerator (None on a CPU). The mode is over values rounded to MiB; the largest of
        several modes counts.
        """
        columns = self._peaks()
        for name, counts in self._levels.items():
            sizes = [*counts.elements()]
            modes = statistics.multimode(round(size / 2**20) for size in sizes)
            columns[f"mean_{name}_bytes"] = round(statistics.mean(sizes)) if sizes else None
            columns[f"mode_{name}_bytes"] = max(modes) * 2**20 if modes else None
        return columns

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return {"peaks": self._peaks(), "levels": {name: dict(counts) for name, counts in self._levels.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._former = state["peaks"]
        self._levels = {name: Counter(counts) for name, counts in state["levels"].items()}

    def _peaks(self) -> Bytes:
        """Peaks, those of previous attempts included."""
        pairs = {name: (value, self._former.get(name)) for name, value in peak(self._device).items()}
        return {name: max((v for v in pair if v is not None), default=None) for name, pair in pairs.items()}


def reset_peak(device: torch.device) -> None:
    """Reset the accelerator's peak."""
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
    """Minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def keep_freed() -> None:
    """Make glibc keep freed memory for the next step instead of returning it to the kernel (mallopt(3)).

    Otherwise each step causes thousands of page faults, a third of the step time of a small model on a CPU. The settings
    last until the process ends; other C libraries do not have them.
    """
    if platform.libc_ver()[0] == "glibc":
        trim_threshold, mmap_threshold = -1, -3
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(trim_threshold, 2**31 - 1)  # never return memory
        mallopt(mmap_threshold, 32 << 20)  # the maximum; larger blocks are mapped individually


def _rss() -> int:
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import psutil

        return psutil.Process().memory_info().rss


def _allocated(device: torch.device) -> int:
    # torch.cuda.memory_allocated is slower: it flattens and sorts all statistics.
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    return stats["allocated_bytes"]["all"]["current"] if stats else 0


def _peak_rss() -> int:
    try:
        # On Linux, getrusage's peak survives exec, so a child would report its parent's.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
