"""Numbers that must stay the same while the code that computes them changes.

`<name>.json` holds the pinned numbers, `numbers.py` and `profiles.py` compute them again from the committed result sets and from real
profiles, `test_pins.py` compares both. When a function is renamed, only `numbers.py`, `profiles.py` or `rows.py` follows. A pin
changes only in the commit that replaces its measurement: `python -m tests.pins` writes all of them anew.

    {subject: {row: {quantity: number, word or [value, low, high]}}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RELATIVE = 1e-9
DIGITS = 12  # significant ones that are written: well below RELATIVE
# The fit of the performance model ends within 1e-7 of its minimum, and where depends on how the processor's BLAS rounds.
MODEL = "model: "
RELATIVE_OF_FITS = 1e-5

Rows = dict[str, dict[str, Any]]
Pins = dict[str, Rows]


def read(name: str) -> Pins:
    return json.loads((FOLDER / f"{name}.json").read_text())


def write(name: str, pins: Pins) -> None:
    """One line a row, sorted."""
    blocks = []
    for subject, rows in sorted(pins.items()):
        lines = [f"  {json.dumps(key)}: {json.dumps(_rounded(row))}" for key, row in sorted(rows.items())]
        blocks.append(f" {json.dumps(subject)}: {{\n" + ",\n".join(lines) + "\n }")
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def differences(pinned: Pins, computed: Pins) -> list[str]:
    """A line for each number or word that changed, is missing, or is new."""
    before, now = (dict(_flat(pins)) for pins in (pinned, computed))
    lines = [f"missing: {name}" for name in before if name not in now]
    lines += [f"new: {name} = {now[name]}" for name in now if name not in before]
    for name in before.keys() & now.keys():
        if not _equal(before[name], now[name], RELATIVE_OF_FITS if name.startswith(MODEL) else RELATIVE):
            lines.append(f"changed: {name}: {before[name]} is now {now[name]}")
    return sorted(lines)


def _flat(pins: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if isinstance(pins, dict | list):
        for key, value in pins.items() if isinstance(pins, dict) else enumerate(pins):
            yield from _flat(value, (*path, str(key)))
    else:
        yield " | ".join(path), pins


def _equal(one: Any, other: Any, relative: float) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return math.isclose(one, other, rel_tol=relative)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
