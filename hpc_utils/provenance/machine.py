"""The hardware of this node, and its id."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from .cpu import MACHINE, Cpu, cpu
from .gpu import Gpu, gpus, links
from .tools import attempt, number, read_text


@dataclass(frozen=True)
class Interface:
    """A physical network interface, without its address."""

    name: str
    speed_mbps: int | None
    driver: str | None


@dataclass(frozen=True)
class Port:
    """A port of an InfiniBand or RoCE adapter."""

    device: str
    port: int | None
    rate: str | None
    link_layer: str | None


@dataclass(frozen=True)
class Hardware:
    """One node; None: not known. `nvlink`: see `gpu.links`. `faults`: what could not be read."""

    cpu: Cpu = field(default_factory=Cpu)
    memory_bytes: int | None = None
    gpus: list[Gpu] = field(default_factory=list)
    nvlink: str | None = None
    network: list[Interface] | None = None
    infiniband: list[Port] | None = None
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class HardwareId:
    """The parts of a hardware id such as `rehearsal-cpu-0123abcd-1gbit`.

    `name`: cluster and node type. `machine`: fingerprint of the hardware, "" of a cluster other than a rehearsal. `links`: what
    the links are limited to by hand, "" if they are not.
    """

    name: str = ""
    machine: str = ""
    links: str = ""

    @classmethod
    def parse(cls, text: str) -> HardwareId:
        """The parts of an id that a record holds."""
        match = re.fullmatch(r"(?:(.*)-)?([0-9a-f]{8})(?:-([0-9.]+[kmg]bit))?", text)
        return cls(*(part or "" for part in match.groups())) if match else cls(text)

    def __str__(self) -> str:
        return "-".join(filter(None, (self.name, self.machine, self.links)))

    @property
    def link_gbit(self) -> float | None:
        """`links` in Gbit/s: 0.3 for 300mbit; None if they are not limited."""
        scale = {"k": 1e-6, "m": 1e-3, "g": 1.0}
        return float(self.links[:-4]) * scale[self.links[-4]] if self.links else None


@functools.cache
def hardware() -> Hardware:
    """CPU, memory, GPUs and network, as the process first sees them, before a rank is pinned."""
    faults: list[str] = []
    cards = attempt(lambda: gpus(faults), faults) or []
    return Hardware(
        cpu=attempt(cpu, faults) or Cpu(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=cards,
        nvlink=attempt(lambda: links(faults), faults) if len(cards) > 1 else None,
        network=attempt(network, faults),
        infiniband=attempt(infiniband, faults),
        faults=faults,
    )


def hardware_id() -> str:
    """The id of this hardware: `$HPC_CLUSTER`, or the machine's fingerprint. Only measurements with equal ids compare.

    The fingerprint counts the CPUs that this process may use: call this before ranks are pinned.
    """
    cluster = re.sub(r"[^A-Za-z0-9._-]+", "-", os.environ.get("HPC_CLUSTER", "")).strip("-._")[:64]
    return cluster or fingerprint(hardware())


def fingerprint(hardware: Hardware) -> str:
    """8 hex digits of the CPU's model, cores (physical and usable) and instruction sets, and the GPUs' names and count.

    The instruction sets count because a virtual machine's "AMD EPYC" may be any of them.
    """
    cpu = hardware.cpu
    names = sorted(str(gpu.name) for gpu in hardware.gpus)
    what = [cpu.model, cpu.cores, cpu.usable, cpu.flags, names]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]


def network(machine: Path = MACHINE) -> list[Interface] | None:
    """The physical interfaces; None where the system does not list them."""
    folder = machine / "sys/class/net"
    if not folder.is_dir():
        return None
    return [
        Interface(
            re.sub(r"^(en|wl|ww)x[0-9a-f]{12}$", r"\1x", entry.name),  # such a name is the MAC address
            number(read_text(entry / "speed")),
            driver.resolve().name if (driver := entry / "device/driver").exists() else None,
        )
        for entry in sorted(folder.iterdir())
        if (entry / "device").exists()
    ]


def infiniband(machine: Path = MACHINE) -> list[Port] | None:
    """The ports of InfiniBand and RoCE adapters; [] if there are none, None where the system does not list them."""
    if not (machine / "sys/class").is_dir():
        return None
    return [
        Port(port.parts[-3], number(port.name), read_text(port / "rate"), read_text(port / "link_layer"))
        for port in sorted((machine / "sys/class/infiniband").glob("*/ports/*"))
    ]
