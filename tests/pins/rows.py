"""Frames of the analysis as plain rows: what identifies a row, and its quantities, under names of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from . import Rows

# Columns that a key calls otherwise.
PLAIN = {
    "world_size": "ranks",
    "batch_per_device": "device_batch",
    "global_batch": "batch",
    "batch": "fixed_batch",
    "link_gbit": "gbit",
    "threads_per_rank": "cores",
    "share_period": "period",
}

# Words that the code is about to call otherwise: the pins have the plain one.
WORDS = {"not told from noise": "inconclusive"}


def rows(frame: pd.DataFrame | Iterable[Mapping[str, Any]], keys: str, **quantities: str) -> Rows:
    """One entry a row of `frame`. `keys`: the columns that identify it; `quantities`: name="column", or name="value low high".
    What is not known is left out."""
    records = frame.to_dict("records") if isinstance(frame, pd.DataFrame) else list(frame)
    found: Rows = {}
    for row in records:
        parts = ((PLAIN.get(name, name), plain(row[name])) for name in keys.split())
        key = " ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in parts
            if value is not None
        )
        assert key not in found, f"two rows are {key!r}: name another column in its keys"
        found[key] = known({name: [row[one] for one in columns.split()] for name, columns in quantities.items()})
    return found


def known(quantities: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known; a list of one is that one."""
    found = {}
    for name, value in quantities.items():
        values = [one for one in map(plain, value if isinstance(value, list | tuple) else [value]) if one is not None]
        if values:
            found[name] = values if len(values) > 1 else values[0]
    return found


def plain(value: Any) -> Any:
    """A number, a word, or None for what is not known."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA or value == "" or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, int | float) else WORDS.get(str(value), str(value))
