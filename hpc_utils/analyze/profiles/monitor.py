"""What the monitor beside a run saw of its devices and hosts over time (`records.schema.MONITOR`)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from hpc_utils.records import packed
from hpc_utils.records.folder import MONITOR

from .timeline import ProfileError

NAMES = {
    "utilization_percent": "utilisation",
    "memory_used_bytes": "memory_bytes",
    "power_watts": "power_watts",
    "temperature_celsius": "temperature",
}


def read(run: Path) -> dict[str, pd.DataFrame]:
    """Of each host's processors and each device (`node1, cuda:0`): seconds since the run's first sample, and utilisation
    (%), memory_bytes, power_watts, temperature (°C; NaN: not known). Empty without a monitor.

    Raises:
        ProfileError: a file is not what the monitor writes.
    """
    files = sorted((packed.unpacked(Path(run)) / MONITOR).glob("*.csv"))
    if not files:
        return {}
    try:
        every = pd.concat(map(pd.read_csv, files), ignore_index=True)
        every = every.dropna(subset=["time", "host", "device"])  # a last line that was cut
        every = every.assign(seconds=every.time - every.time.min()).rename(columns=NAMES)
        columns = ["seconds", *NAMES.values()]
        return {f"{host}, {device}": own[columns] for (host, device), own in every.groupby(["host", "device"])}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ProfileError(f"{Path(run) / MONITOR}: not what the monitor of a run writes: {error}") from None
