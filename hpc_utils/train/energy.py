"""Energy of the devices that train, from the hardware's own counters: nothing is sampled or modelled.

A GPU's is NVML's (`nvmlDeviceGetTotalEnergyConsumption`, from Volta on, renewed some ten times a second). A CPU device's
is RAPL's (Linux' Documentation/power/powercap): the whole processor packages of its machine, whoever uses them, and
since 2020 most systems let only root read it. AMD's GPUs are left out: two of an MI250X share one counter.
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
LOOK = 60.0  # s: the smallest RAPL counters wrap around after some three minutes of full power


class Rapl:
    """All processor packages of a machine, not their parts: cores and memory are in them, or not, by model."""

    def __init__(self, machine: Path = MACHINE) -> None:
        zones = (machine / "sys/class/powercap").glob("intel-rapl:*")  # AMD's have that name too
        self._zones = [zone for zone in sorted(zones) if _text(zone / "name").startswith("package")]
        # Containers, and nodes that a rehearsal has put on one machine, share its kernel.
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
        source: nvml or rapl. name: identifies the counter: ranks may share it.
        read: joules since some moment in the past; None if the counter does not answer.
    """

    def __init__(self, source: str = "", name: str = "", read: Callable[[], float | None] = lambda: None) -> None:
        self.source, self.name, self._read = source, name, read
        self._due = 0.0

    def joules(self) -> float:
        """NaN if unknown."""
        self._due = time.monotonic() + LOOK
        joules = self._read()
        return math.nan if joules is None else joules

    def on_step(self, sampled: bool) -> None:
        """A counter must be read before it has wrapped around twice."""
        if self.source and time.monotonic() > self._due:
            self.joules()


def of_gpu(gpu: nvml.Device) -> EnergyMeter:
    """One NVIDIA GPU."""

    def joules() -> float | None:
        millijoules = gpu.query("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3

    return EnergyMeter("nvml", gpu.name, joules)


def meter(device: torch.device) -> EnergyMeter:
    """The meter of `device`; one that knows nothing if no counter answers."""
    try:
        if device.type == "cpu":
            rapl = Rapl()
            found = EnergyMeter("rapl", rapl.name, rapl.joules)
        elif torch.version.hip:
            return EnergyMeter()
        else:
            found = of_gpu(nvml.Device(str(torch.cuda.get_device_properties(device).uuid), nvml.library()))
        return EnergyMeter() if math.isnan(found.joules()) else found
    except Exception:  # whatever a strange driver does: energy is no reason to fail a run
        return EnergyMeter()


def once(readings: Iterable[tuple[str, float]]) -> list[float]:
    """Each rank's part of (counter, joules): of ranks that share a counter the first has all, the others 0."""
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
