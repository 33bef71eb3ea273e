"""Frames of the analysis as plain rows: a key that identifies the row, and its quantities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze import stats

from . import Rows

# Columns, and their names in a row's key.
PLAIN = {
    "world_size": "ranks",
    "batch_per_device": "device_batch",
    "global_batch": "batch",
    "batch": "fixed_batch",
    "link_gbit": "gbit",
    "threads_per_rank": "cores",
    "share_period": "period",
}

# Words of the code, and the pins' words for them.
WORDS = {"within noise": "inconclusive", "equal": "equal within"}


def rows(frame: pd.DataFrame | Iterable[Mapping[str, Any]], keys: str, quantities: str) -> Rows:
    """One entry a row of `frame`, identified by the columns `keys`; what is not known is left out.

    `quantities`: columns, such as "repeats", with an interval as "cost+" (cost, cost_low, cost_high);
    "memory=memory_bytes" names one otherwise.
    """
    records = frame.to_dict("records") if isinstance(frame, pd.DataFrame) else list(frame)
    found: Rows = {}
    for row in records:
        parts = {PLAIN.get(name, name): plain(row[name]) for name in keys.split()}
        key = " ".join(f"{name}={_short(value)}" for name, value in parts.items() if value is not None)
        assert key not in found, f"two rows are {key!r}: name another column in its keys"
        found[key] = known(
            {name: [row[one] for one in columns] for name, columns in map(_columns, quantities.split())}
        )
    return found


def _columns(quantity: str) -> tuple[str, list[str]]:
    name, _, column = quantity.rpartition("=")
    with_ends = stats.columns(column.rstrip("+"))
    return name or with_ends[0], with_ends if column.endswith("+") else [column]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


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
