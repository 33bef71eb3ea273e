"""Energy of the devices that train, as the hardware's own counters add it up: nothing is sampled or modelled.

A GPU's is NVML's (`nvmlDeviceGetTotalEnergyConsumption`, from Volta on, renewed some ten times a second). A CPU device's
is RAPL's (Linux' Documentation/power/powercap): the whole processor packages of its machine, whoever uses them, and
since 2020 most systems let only root read it. AMD's GPUs are left out: two of an MI250X share one counter.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch

from hpc_utils.provenance import nvml

MACHINE = Path("/")
LOOK = 60.0  # s: the smallest RAPL counters wrap around after some three minutes of full power


class Counter(Protocol):
    """`source`: nvml or rapl. `name` tells one counter from another: ranks may share it."""

    source: str
    name: str

    def joules(self) -> float | None:
        """Joules since some moment in the past; None if the counter does not answer."""


class Rapl:
    """All processor packages of a machine, not their parts: cores and memory are in them, or not, by model."""

    source = "rapl"

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


class Nvml:
    """One NVIDIA GPU."""

    source = "nvml"

    def __init__(self, gpu: nvml.Gpu) -> None:
        self.name, self._gpu = gpu.name, gpu

    def joules(self) -> float | None:
        millijoules = self._gpu.ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3


def find(device: torch.device) -> Counter | None:
    """The counter that `device` has; None if there is none that answers."""
    try:
        counter = Rapl() if device.type == "cpu" else _of_gpu(device)
        return counter if counter and counter.joules() is not None else None
    except Exception:  # whatever a strange driver does: energy is no reason to fail a run
        return None


class Meter:
    """Joules of one rank's device while it is `running`; None if the counter is missing or failed meanwhile."""

    def __init__(self, counter: Counter | None) -> None:
        self._counter = counter
        self._begun: float | None = None
        self._due = 0.0

    @property
    def source(self) -> str:
        return self._counter.source if self._counter else ""

    @property
    def name(self) -> str:
        return self._counter.name if self._counter else ""

    def start(self) -> None:
        self._begun = self._read()

    def keep_up(self) -> None:
        """Call it now and then: a counter must be looked at before it has wrapped around twice."""
        if self._counter and time.monotonic() > self._due:
            self._read()

    def stop(self) -> float | None:
        """Joules since `start`."""
        now = self._read()
        return None if now is None or self._begun is None else now - self._begun

    def _read(self) -> float | None:
        self._due = time.monotonic() + LOOK
        return self._counter.joules() if self._counter else None


def added(first: float | None, second: float | None) -> float | None:
    """The sum; what is not known of a part is not known of the whole."""
    return None if first is None or second is None else first + second


def once(readings: Iterable[tuple[str, float | None]]) -> list[float | None]:
    """Of each rank's (counter, joules) its own part: of ranks that share a counter the first has all, the others 0."""
    seen: set[str] = set()
    parts: list[float | None] = []
    for name, joules in readings:
        parts.append(0.0 if joules is not None and name in seen else joules)
        seen.add(name)
    return parts


def total(readings: Iterable[tuple[str, float | None]]) -> float | None:
    """Joules of all ranks' devices, each counter once; None if any rank has none."""
    return functools.reduce(added, once(readings), 0.0)


def _of_gpu(device: torch.device) -> Counter | None:
    if torch.version.hip:
        return None
    return Nvml(nvml.Gpu(str(torch.cuda.get_device_properties(device).uuid), nvml.library()))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
