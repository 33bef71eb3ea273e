"""Peaks of GPUs from their makers' documents: operations per second by precision, and bytes per second.

The table is `peaks.toml`, each GPU with its source: dense operations, without sparsity.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Words in the names of drivers, profilers and people that identify no GPU.
_WORDS = re.compile(r"\b(?:nvidia|amd|tesla|radeon|instinct|\(tm\)|™)\b|[™®]|\((?:tm|r)\)", re.I)


@dataclass(frozen=True)
class Peak:
    """A device; of a module of two dies, one die.

    Attributes:
        device: a regular expression for the names that drivers give. flops: operations/s by precision; one that the hardware
            lacks is missing. bandwidth: byte/s of its memory. source: the document.
    """

    name: str
    device: str
    flops: Mapping[str, float]
    bandwidth: float
    source: str


def find_peak(device_name: str) -> Peak | None:
    """The GPU of this name (as of `torch.cuda.get_device_name`, nvidia-smi, or a profile); None if it is not in the table.

    A part of a GPU (MIG) is not in it, nor one whose name is ambiguous ("A100": 40 or 80 GB).
    """
    plain = " ".join(_WORDS.sub(" ", device_name).split()).lower()
    matches = (peak for peak in read_peaks() if plain == peak.name.lower() or re.fullmatch(peak.device, plain))
    return next(matches, None)


@functools.cache
def read_peaks() -> list[Peak]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["gpu"]
    for row in rows:
        row["flops"] = {precision: tera * 1e12 for precision, tera in row.pop("tflops").items()}
        row["bandwidth"] = row.pop("gb_per_s") * 1e9
    return [Peak(**row) for row in rows]
