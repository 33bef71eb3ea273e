"""What runs took altogether: the sum that a paper owes its readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import cost

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Spent:
    """Totals over runs: hours of devices, nodes and processor cores (devices times threads a rank, of CPU runs), and
    energy (kWh) of the `counted` runs that a counter stood beside."""

    runs: int
    device_hours: float
    node_hours: float
    core_hours: float
    energy_kwh: float
    counted: int


def total(runs: pd.DataFrame, epochs: pd.DataFrame) -> Spent:
    """Of `runs`, with set-up, warm-up, evaluation and checkpoints; frames as of `records.load`."""
    if runs.empty:
        return Spent(0, 0.0, 0.0, 0.0, 0.0, 0)
    own = cost.per_run(runs, epochs[epochs.run_id.isin(runs.run_id)], {}).merge(
        runs[["run_id", "device", "threads_per_rank"]], on="run_id"
    )
    cores = own.device_hours * own.threads_per_rank.astype(float).where(own.device == "cpu", 0.0)
    return Spent(
        len(own), float(own.device_hours.sum()), float(own.node_hours.sum()), float(cores.sum()),
        float(own.energy_kwh.sum()), int(own.energy_kwh.notna().sum()),
    )  # fmt: skip
