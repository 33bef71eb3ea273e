"""The GPUs and how they are connected: NVIDIA's as NVML reports them, AMD's as `amd-smi` does."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from . import nvml
from .tools import run_tool


@dataclass(frozen=True)
class Gpu:
    """One GPU; None: not known."""

    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


def gpus(faults: list[str]) -> list[Gpu]:
    """The GPUs of this machine; [] if there are none."""
    return nvidia(faults) or amd(faults)


def nvidia(faults: list[str]) -> list[Gpu]:
    """The GPUs that NVML lists, in a separate process, because a faulty driver may never answer."""
    if not nvml.installed():
        return []
    answer = run_tool(
        sys.executable, "-m", "hpc_utils.provenance.nvml", environment=with_package(), faults=faults, name="NVML"
    )
    return [Gpu(**fields) for fields in json.loads(answer or "[]")]


def amd(faults: list[str]) -> list[Gpu]:
    """The GPUs that `amd-smi` lists."""
    answer = run_tool("amd-smi", "static", "--asic", "--vram", "--driver", "--json", faults=faults)
    cards = []
    try:
        entries = json.loads(answer or "[]")
        for entry in entries["gpu_data"] if isinstance(entries, dict) else entries:  # newer versions wrap the list
            size = int(entry["vram"]["size"]["value"]) * 2**20
            name = entry["asic"]["market_name"]
            driver = entry["driver"]["version"]
            cards.append(Gpu(int(entry["gpu"]), name, memory_bytes=size, driver=driver))
    except (ValueError, LookupError, TypeError) as error:
        faults.append(f"amd-smi: unexpected answer ({type(error).__name__}: {error})"[:200])
    return cards


def links(faults: list[str]) -> str | None:
    """The matrix of `nvidia-smi topo -m` without its legend: NV18 is 18 NVLinks, SYS crosses the sockets."""
    answer = run_tool("nvidia-smi", "topo", "-m", faults=faults)
    if answer is None:
        return None
    plain = re.sub(r"\x1b\[[0-9;]*m", "", answer).partition("Legend:")[0]
    return "\n".join(line.rstrip() for line in plain.expandtabs().splitlines() if line.strip()) or None


def with_package() -> dict[str, str]:
    """The environment of a Python process that imports this package, wherever it runs."""
    folders = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
