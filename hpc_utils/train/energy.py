"""Energy of the training devices, read from hardware counters.

GPUs: NVML (`nvmlDeviceGetTotalEnergyConsumption`, Volta and later, updated about ten times a second). CPUs: RAPL (Linux
Documentation/power/powercap), which counts whole processor packages, including other users of the machine, and is usually
readable by root only. AMD GPUs are not supported: the two GPUs of an MI250X share one counter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from hpc_utils.provenance import nvml

from .observer import Observer

MACHINE = Path("/")
READ_INTERVAL = 60.0  # s: the smallest RAPL counters wrap around after about three minutes at full power


class Rapl:
    """All processor packages of a machine. Cores and memory are part of the package on some models only."""

    def __init__(self, machine: Path = MACHINE) -> None:
        zones = (machine / "sys/class/powercap").glob("intel-rapl:*")  # the name on AMD processors too
        self._zones = [zone for zone in sorted(zones) if _text(zone / "name").startswith("package")]
        # Containers and rehearsal nodes on one machine share its counters, and its boot id.
        self.name = f"rapl {_text(machine / 'proc/sys/kernel/random/boot_id')}"
        self._last: dict[Path, int] = {}
        self._total = 0

    def joules(self) -> float | None:
        try:
            for zone in self._zones:
                now = int((zone / "energy_uj").read_text())
                used = now - self._last.get(zone, now)
                self._total += used if used >= 0 else used + int((zone / "max_energy_range_uj").read_text())
                self._last[zone] = now
        except (OSError, ValueError):
            return None
        return self._total / 1e6 if self._zones else None


class EnergyMeter(Observer):
    """Reads one rank's counter.

    Args:
        source: nvml or rapl. name: identifies the counter, which ranks may share.
        read: returns joules since an arbitrary start; None if the counter cannot be read.
    """

    def __init__(self, source: str = "", name: str = "", read: Callable[[], float | None] = lambda: None) -> None:
        self.source, self.name, self._read = source, name, read
        self._due = 0.0

    def joules(self) -> float:
        """Joules since an arbitrary start; NaN if unknown."""
        self._due = time.monotonic() + READ_INTERVAL
        joules = self._read()
        return math.nan if joules is None else joules

    def on_step(self, sampled: bool) -> None:
        """Read the counter often enough that it wraps around at most once in between."""
        if self.source and time.monotonic() > self._due:
            self.joules()


def of_gpu(gpu: nvml.Device) -> EnergyMeter:
    """The meter of an NVIDIA GPU."""

    def joules() -> float | None:
        millijoules = gpu.query("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3

    return EnergyMeter("nvml", gpu.name, joules)


def meter(device: torch.device) -> EnergyMeter:
    """The meter of `device`; its readings are NaN if there is no counter."""
    try:
        if device.type == "cpu":
            rapl = Rapl()
            found = EnergyMeter("rapl", rapl.name, rapl.joules)
        elif torch.version.hip:
            return EnergyMeter()
        else:
            found = of_gpu(nvml.Device(str(torch.cuda.get_device_properties(device).uuid), nvml.library()))
        return EnergyMeter() if math.isnan(found.joules()) else found
    except Exception:  # a driver's fault must not fail the run
        return EnergyMeter()


def once(readings: Iterable[tuple[str, float]]) -> list[float]:
    """Attribute each counter's joules to the first rank that reads it, and 0 to the others."""
    seen: set[str] = set()
    parts = []
    for name, joules in readings:
        parts.append(0 * joules if name in seen else joules)  # NaN stays NaN
        seen.add(name)
    return parts


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
