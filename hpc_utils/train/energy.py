"""Energy of the training devices, read from hardware counters.

GPUs: NVML (`nvmlDeviceGetTotalEnergyConsumption`, Volta and later, updated about ten times a second). CPUs: RAPL (Linux
Documentation/power/powercap), which counts whole processor packages, including other users of the machine, and is usually
readable by root only. AMD GPUs are not supported: the two GPUs of an MI250X share one counter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from hpc_utils.provenance import nvml

from .observer import Observer

MACHINE = Path("/")
READ_INTERVAL = 60.0  # s: the smallest RAPL counters wrap around after about three minutes at full power


class EnergyMeter(Observer):
    """Reads one rank's counter; this base class has none.

    Attributes:
        source: nvml or rapl. name: identifies the counter, which ranks may share.
    """

    source = name = ""
    _due = 0.0

    def joules(self) -> float:
        """Joules since an arbitrary start; NaN if unknown."""
        self._due = time.monotonic() + READ_INTERVAL
        return self._read()

    def _read(self) -> float:
        return math.nan

    def on_step(self, sampled: bool) -> None:
        """Read the counter often enough that it wraps around at most once in between."""
        if self.source and time.monotonic() > self._due:
            self.joules()


class Rapl(EnergyMeter):
    """All processor packages of a machine. Cores and memory are part of the package on some models only."""

    source = "rapl"

    def __init__(self, machine: Path = MACHINE) -> None:
        zones = (machine / "sys/class/powercap").glob("intel-rapl:*")  # the name on AMD processors too
        self._zones = [zone for zone in sorted(zones) if (zone / "name").read_text().startswith("package")]
        # Containers and rehearsal nodes on one machine share its counters, and its boot id.
        self.name = f"rapl {(machine / 'proc/sys/kernel/random/boot_id').read_text().strip()}"
        self._last: dict[Path, int] = {}
        self._total = 0

    def _read(self) -> float:
        try:
            for zone in self._zones:
                reading = int((zone / "energy_uj").read_text())
                used = reading - self._last.get(zone, reading)
                self._total += used if used >= 0 else used + int((zone / "max_energy_range_uj").read_text())
                self._last[zone] = reading
        except OSError:
            return math.nan
        return self._total / 1e6 if self._zones else math.nan


class Nvml(EnergyMeter):
    """An NVIDIA GPU."""

    source = "nvml"

    def __init__(self, gpu: nvml.Device) -> None:
        self._gpu = gpu
        self.name = gpu.name

    def _read(self) -> float:
        millijoules = self._gpu.query("nvmlDeviceGetTotalEnergyConsumption")
        return math.nan if millijoules is None else millijoules / 1e3


def meter(device: torch.device) -> EnergyMeter:
    """The meter of `device`; its readings are NaN if there is no counter."""
    try:
        if device.type == "cpu":
            counter = Rapl()
        elif torch.version.hip:
            return EnergyMeter()
        else:
            counter = Nvml(nvml.Device(str(torch.cuda.get_device_properties(device).uuid), nvml.library()))
        return EnergyMeter() if math.isnan(counter.joules()) else counter
    except Exception:  # no counter, or a driver's fault, which must not fail the run
        return EnergyMeter()


def once(readings: Iterable[tuple[str, float]]) -> list[float]:
    """Attribute each counter's joules to the first rank that reads it, and 0 to the others."""
    counters: set[str] = set()
    parts = []
    for name, joules in readings:
        parts.append(0 * joules if name in counters else joules)  # NaN stays NaN
        counters.add(name)
    return parts
