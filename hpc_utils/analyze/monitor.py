"""What the monitor beside a run saw of its devices and hosts (`records.schema.MONITOR`), over time."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from hpc_utils.records import packed
from hpc_utils.records.folder import MONITOR

from .timeline import ProfileError

NAMES = {"utilization_percent": "utilisation", "memory_used_bytes": "memory_bytes", "power_watts": "power_watts"}


def read(run: Path) -> dict[str, pd.DataFrame]:
    """Of each host's processors and each device (`node1, cuda:0`): seconds since the run's first sample, and utilisation
    (%), memory_bytes, power_watts (NaN: not known). Empty where nobody looked.

    Raises:
        ProfileError: a file is not what the monitor writes.
    """
    files = sorted((packed.unpacked(Path(run)) / MONITOR).glob("*.csv"))
    try:
        rows = [pd.read_csv(path) for path in files]
        every = (
            pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=["time", "host", "device", *NAMES])
        )
        every = every.dropna(subset=["time", "host", "device"])  # a last line that was cut would begin another clock
        every = every.assign(seconds=every.time - every.time.min())
        parts = {f"{host}, {device}": own for (host, device), own in every.groupby(["host", "device"])}
        return {name: own.rename(columns=NAMES)[["seconds", *NAMES.values()]] for name, own in parts.items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ProfileError(f"{Path(run) / MONITOR}: not what the monitor of a run writes: {error}") from None
