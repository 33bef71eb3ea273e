"""The GPUs and how they are connected, as the vendors' own tools tell it."""

from __future__ import annotations

import json
import re
from typing import Any

from .ask import ask, number

QUERY = "index,name,uuid,memory.total,driver_version,pcie.link.gen.max,pcie.link.width.max"
MIB = 2**20


def gpus(faults: list[str]) -> list[dict[str, Any]]:
    """One entry a GPU: index, name, uuid, memory, driver and PCIe link; [] where no tool finds any."""
    return nvidia(faults) or amd(faults) or rocm(faults)


def nvidia(faults: list[str]) -> list[dict[str, Any]]:
    """As `nvidia-smi` lists them."""
    said = ask("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", faults=faults) or ""
    rows = [[field.strip() for field in line.split(",")] for line in said.splitlines()]
    return [
        _gpu(index, name, _times(memory, MIB), uuid, driver, generation, width)
        for index, name, uuid, memory, driver, generation, width in (row for row in rows if len(row) == 7)
    ]


def amd(faults: list[str]) -> list[dict[str, Any]]:
    """As `amd-smi` lists them."""
    said = _json(ask("amd-smi", "static", "--asic", "--bus", "--vram", "--driver", "--json", faults=faults))
    entries = said.get("gpu_data") if isinstance(said, dict) else said  # newer versions wrap the list
    found = []
    for entry in entries if isinstance(entries, list) else []:
        asic, bus, vram, driver = (_part(entry, key) for key in ("asic", "bus", "vram", "driver"))
        if "market_name" not in asic:
            continue
        size = vram.get("size")
        memory = _times(size.get("value") if isinstance(size, dict) else size, MIB)
        generation = re.sub(r"\D", "", str(bus.get("pcie_interface_version", "")))
        version = driver.get("version") or driver.get("driver_version")
        index = entry.get("gpu", len(found))
        found.append(_gpu(index, asic["market_name"], memory, None, version, generation, bus.get("max_pcie_width")))
    return found


def rocm(faults: list[str]) -> list[dict[str, Any]]:
    """As `rocm-smi`, the older tool, lists them."""
    options = ("--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json")
    said = _json(ask("rocm-smi", *options, faults=faults))
    said = said if isinstance(said, dict) else {}
    driver = _lower(_part(said, "system")).get("driver version")
    cards = {name: _lower(card) for name, card in said.items() if re.fullmatch(r"card\d+", name)}
    return [
        _gpu(name[4:], card.get("card series") or card.get("card model"), card.get("vram total memory (b)"),
             None, driver, None, None)
        for name, card in sorted(cards.items(), key=lambda item: int(item[0][4:]))
    ]  # fmt: skip


def links(faults: list[str]) -> str | None:
    """The matrix of `nvidia-smi topo -m`: NV18 is 18 NVLinks, SYS crosses the sockets; its legend left out."""
    said = ask("nvidia-smi", "topo", "-m", faults=faults)
    if said is None:
        return None
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said).partition("Legend:")[0]
    return "\n".join(line.rstrip() for line in plain.expandtabs().splitlines() if line.strip()) or None


def _gpu(index: Any, name: Any, memory: Any, uuid: Any, driver: Any, generation: Any, width: Any) -> dict[str, Any]:
    return {
        "index": number(index),
        "name": _text(name),
        "uuid": _text(uuid),
        "memory_bytes": number(memory),
        "driver": _text(driver),
        "pcie_generation": number(generation),
        "pcie_width": number(width),
    }


def _text(value: Any) -> str | None:
    text = str(value or "").strip()
    return None if not text or text.upper() == "N/A" or text.startswith("[") else text


def _times(value: Any, unit: int) -> int | None:
    count = number(value)
    return None if count is None else count * unit


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _part(entry: Any, key: str) -> dict[str, Any]:
    part = entry.get(key) if isinstance(entry, dict) else None
    return part if isinstance(part, dict) else {}


def _lower(entry: Any) -> dict[str, Any]:
    """`Card series` became `Card Series` from one version to the next."""
    return {key.lower(): value for key, value in entry.items()} if isinstance(entry, dict) else {}
