"""The hardware of this node, and a short name for what makes measurements comparable."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .ask import attempt, number, read
from .cpu import MACHINE, cpu
from .gpu import gpus, links


def hardware() -> dict[str, Any]:
    """CPU, memory, GPUs and network, as first seen by this process (a rank that is pinned later keeps it)."""
    return copy.deepcopy(_seen())


def hardware_id(hardware: Mapping[str, Any] | None = None) -> str:
    """What a measurement on this machine compares with: `$HPC_CLUSTER`, or 8 hex digits of CPU and GPUs.

    The digits count the CPUs that this process may use: ask before ranks are pinned, and hand the answer on.
    """
    cluster = re.sub(r"[^A-Za-z0-9._-]+", "-", os.environ.get("HPC_CLUSTER", "")).strip("-._")[:64]
    return cluster or fingerprint(_seen() if hardware is None else hardware)


def machine_in(hardware_id: str) -> str:
    """The machine's fingerprint in a hardware id, whatever cluster is rehearsed on it; without one, the id itself."""
    found = re.search(r"(?:^|-)([0-9a-f]{8})(?:-[0-9.]+[kmg]bit)?$", hardware_id)
    return found[1] if found else hardware_id


def links_in(hardware_id: str) -> str:
    """What the links of a hardware id are limited to by hand: 1gbit of rehearsal-cpu-0123abcd-1gbit; "" if they are not."""
    found = re.search(r"-[0-9a-f]{8}-([0-9.]+[kmg]bit)$", hardware_id)
    return found[1] if found else ""


def link_gbit_in(hardware_id: str) -> float | None:
    """The same in Gbit/s, 0.3 of 300mbit; None if they are not limited."""
    rate = links_in(hardware_id)
    return float(rate[:-4]) * {"k": 1e-6, "m": 1e-3, "g": 1.0}[rate[-4]] if rate else None


def fingerprint(hardware: Mapping[str, Any]) -> str:
    """8 hex digits of the CPU model, its cores (physical and usable), and the GPUs' names and count.

    Of the instruction sets too: a virtual machine's "AMD EPYC" may be any of them.
    """
    processor = hardware.get("cpu") or {}
    names = sorted(str(gpu.get("name")) for gpu in hardware.get("gpus") or ())
    what = [processor.get("model"), processor.get("cores"), processor.get("usable"), processor.get("flags"), names]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]


@functools.cache
def _seen() -> dict[str, Any]:
    faults: list[str] = []
    found = attempt(lambda: gpus(faults), faults) or []
    return {
        "cpu": attempt(cpu, faults) or {},
        "memory_bytes": attempt(_memory, faults),
        "gpus": found,
        "nvlink": attempt(lambda: links(faults), faults) if len(found) > 1 else None,
        "network": attempt(network, faults),
        "infiniband": attempt(infiniband, faults),
        "faults": faults,
    }


def network(machine: Path = MACHINE) -> list[dict[str, Any]] | None:
    """The physical interfaces: name, speed, driver; never an address. None where the system does not tell."""
    folder = machine / "sys/class/net"
    if not folder.is_dir():
        return None
    physical = sorted(entry for entry in folder.iterdir() if (entry / "device").exists())
    return [
        {
            "name": re.sub(r"^(en|wl|ww)x[0-9a-f]{12}$", r"\1x", entry.name),  # such a name is the MAC address
            "speed_mbps": number(read(entry / "speed")),
            "driver": driver.resolve().name if (driver := entry / "device/driver").exists() else None,
        }
        for entry in physical
    ]


def infiniband(machine: Path = MACHINE) -> list[dict[str, Any]] | None:
    """The ports of InfiniBand and RoCE adapters with their rates; [] if there are none."""
    ports = sorted((machine / "sys/class/infiniband").glob("*/ports/*"))
    if not ports and not (machine / "sys/class").is_dir():
        return None
    return [
        {
            "device": port.parts[-3],
            "port": number(port.name),
            "rate": read(port / "rate"),
            "link_layer": read(port / "link_layer"),
        }
        for port in ports
    ]


def _memory() -> int:
    import psutil

    return psutil.virtual_memory().total
