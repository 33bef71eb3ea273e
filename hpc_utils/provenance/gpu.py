"""The GPUs and how they are connected: NVIDIA's by NVML, AMD's by the vendor's tools."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import nvml
from .tools import number, run_tool

MIB = 2**20


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
    """The GPUs of this machine; [] if no driver and no tool finds any."""
    return nvidia(faults) or amd(faults) or rocm(faults)


def nvidia(faults: list[str]) -> list[Gpu]:
    """As NVML lists them, in a process of its own, because a sick driver may never answer."""
    if not nvml.installed():
        return []
    answer = run_tool(
        sys.executable, "-m", "hpc_utils.provenance.nvml", environment=with_package(), faults=faults, name="NVML"
    )
    return [Gpu(**one) for one in json.loads(answer or "[]")]


def amd(faults: list[str]) -> list[Gpu]:
    """As `amd-smi` lists them."""
    answer = _json(run_tool("amd-smi", "static", "--asic", "--bus", "--vram", "--driver", "--json", faults=faults))
    entries = answer.get("gpu_data") if isinstance(answer, dict) else answer  # newer versions wrap the list
    found = []
    for entry in entries if isinstance(entries, list) else []:
        asic, bus, vram, driver = (_part(entry, key) for key in ("asic", "bus", "vram", "driver"))
        if "market_name" not in asic:
            continue
        size = vram.get("size")
        size = number(size.get("value") if isinstance(size, dict) else size)
        found.append(
            Gpu(
                number(entry.get("gpu", len(found))),
                _text(asic["market_name"]),
                memory_bytes=None if size is None else size * MIB,
                driver=_text(driver.get("version") or driver.get("driver_version")),
                pcie_generation=number(re.sub(r"\D", "", str(bus.get("pcie_interface_version", "")))),
                pcie_width=number(bus.get("max_pcie_width")),
            )
        )
    return found


def rocm(faults: list[str]) -> list[Gpu]:
    """As `rocm-smi`, the older tool, lists them."""
    options = ("--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json")
    answer = _json(run_tool("rocm-smi", *options, faults=faults))
    answer = answer if isinstance(answer, dict) else {}
    # `Card series` became `Card Series` from one version to the next.
    cards = {name: {key.lower(): value for key, value in _part(answer, name).items()} for name in answer}
    driver = _text(cards.get("system", {}).get("driver version"))
    return [
        Gpu(
            int(name[4:]),
            _text(card.get("card series") or card.get("card model")),
            memory_bytes=number(card.get("vram total memory (b)")),
            driver=driver,
        )
        for name, card in sorted(cards.items(), key=lambda item: number(item[0][4:]) or 0)
        if re.fullmatch(r"card\d+", name)
    ]


def links(faults: list[str]) -> str | None:
    """The matrix of `nvidia-smi topo -m` without its legend: NV18 is 18 NVLinks, SYS crosses the sockets."""
    answer = run_tool("nvidia-smi", "topo", "-m", faults=faults)
    if answer is None:
        return None
    plain = re.sub(r"\x1b\[[0-9;]*m", "", answer).partition("Legend:")[0]
    return "\n".join(line.rstrip() for line in plain.expandtabs().splitlines() if line.strip()) or None


def with_package() -> dict[str, str]:
    """The environment of a Python process that imports this package, wherever it runs."""
    known = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, known))}


def _text(value: Any) -> str | None:
    text = str(value or "").strip()
    return None if not text or text.upper() == "N/A" else text


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _part(entry: Any, key: str) -> dict[str, Any]:
    part = entry.get(key) if isinstance(entry, dict) else None
    return part if isinstance(part, dict) else {}
