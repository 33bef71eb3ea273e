"""Peaks of GPUs from their makers' documents: operations per second by precision, bytes per second, memory.

The table is `peaks.toml`, each GPU with its source: dense operations, without sparsity.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")

# Words in the names of drivers, profilers and people that identify no GPU.
_WORDS = re.compile(r"\b(?:nvidia|amd|tesla|radeon|instinct|\(tm\)|™)\b|[™®]|\((?:tm|r)\)", re.I)


@dataclass(frozen=True)
class Peak:
    """A device; of a module of two dies, one die.

    Attributes:
        flops: operations/s by precision (of `PRECISIONS`; one that the hardware lacks is missing).
        bandwidth: byte/s of its memory. memory: bytes. source: the document.
    """

    name: str
    flops: Mapping[str, float]
    bandwidth: float
    memory: float
    source: str


def find(device_name: str) -> Peak | None:
    """The GPU of this name (as of `torch.cuda.get_device_name`, nvidia-smi, or a profile); None if it is not in the table.

    A part of a GPU (MIG) is not in it, nor one whose name is ambiguous ("A100": 40 or 80 GB).
    """
    plain = " ".join(_WORDS.sub(" ", device_name).split()).lower()
    for row in _rows():
        found = re.fullmatch(row["device"], plain)
        if found or plain == row["name"].lower():
            return _peak(row, found.groupdict().get("memory") if found else None)
    return None


def table() -> pd.DataFrame:
    """All GPUs: name, memory (bytes; NaN where it has variants), bandwidth (byte/s), a column per precision, source."""
    import pandas as pd

    rows = [vars(one) | one.flops for one in map(_peak, _rows())]
    return pd.DataFrame(rows, columns=["name", "memory", "bandwidth", *PRECISIONS, "source"])


@functools.cache
def _rows() -> list[dict]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["gpu"]


def _peak(row: dict, memory: str | None = None) -> Peak:
    flops = {name: row["tflops"][name] * 1e12 for name in PRECISIONS if name in row["tflops"]}
    size = float(memory or row.get("memory_gb", "nan")) * 1e9
    return Peak(row["name"], flops, row["gb_per_s"] * 1e9, size, row["source"])
