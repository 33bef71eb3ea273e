"""Emulated runs beside those that computed the same: what the emulated device is worth."""

from __future__ import annotations

import pandas as pd

from . import stats
from .dilation import undilated
from .points import links, step_seconds, unwatched

# What an emulated run shares with those that computed the same. Not `settings`: device and profile are part of them.
SAME = [
    "hardware_id", "workload", "dataset", "parameters", "precision", "parallel", "nodes", "ranks_per_node", "world_size",
    "threads_per_rank", "batch_per_device", "link_gbit",
]  # fmt: skip


def against_computed(emulated: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Emulated runs beside those that computed the same: one row a configuration that both have.

    Columns: those of `SAME` (link_gbit is NaN on one rank, which needs none); computed, emulated (s, median of a step's
    time, undilated), computed_repeats, emulated_repeats; ratio (emulated / computed), low, high (its 95 % interval);
    runs (ids of both).
    """
    steps = [
        _steps(undilated(unwatched(runs)))
        .groupby(SAME, dropna=False)
        .agg(step=("step", list), runs=("run_id", tuple))
        for runs in (measured, emulated)
    ]
    both = steps[0].add_suffix("_computed").join(steps[1].add_suffix("_emulated"), how="inner").reset_index()
    rows = []
    for row in both.itertuples():
        ratio = stats.ratio(row.step_emulated, row.step_computed)
        rows.append(
            {name: getattr(row, name) for name in SAME}
            | {"computed": stats.median(row.step_computed).value, "computed_repeats": len(row.step_computed)}
            | {"emulated": stats.median(row.step_emulated).value, "emulated_repeats": len(row.step_emulated)}
            | {
                "ratio": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "runs": row.runs_computed + row.runs_emulated,
            }
        )
    columns = [*SAME, "computed", "computed_repeats", "emulated", "emulated_repeats", "ratio", "low", "high", "runs"]
    return pd.DataFrame(rows, columns=columns)


def _steps(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.assign(step=step_seconds(runs), link_gbit=links(runs))
