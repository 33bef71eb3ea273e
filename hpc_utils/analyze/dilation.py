"""Time-dilated runs of the emulated device, as if they had not been slowed down."""

from __future__ import annotations

import pandas as pd

from . import stats

# What waits and what limited links take scales with the dilation; setting up and standing still do not.
SECONDS = (
    "seconds", "step_mean", "step_p50", "step_p95", "step_p99", "data_seconds", "forward_seconds", "backward_seconds",
    "optimizer_seconds", "comm_seconds", "overlap_seconds", "data", "forward", "backward", "optimizer",
)  # fmt: skip
RATES = ("throughput",)
# What an emulated run shares with those that computed the same. Not `settings`: device and profile are part of them.
SAME = [
    "hardware_id", "workload", "dataset", "parameters", "precision", "parallel", "nodes", "ranks_per_node", "world_size",
    "threads_per_rank", "batch_per_device", "link_gbit",
]  # fmt: skip


def undilated(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with times (s) divided and rates multiplied by its column `dilation`, which is then 1, where its column
    `emulated` is true.

    Runs as of `records.load`, or epochs, steps and ranks to which both columns of the run were joined. Measured runs do
    not change, whatever a loop of somebody's own calls dilation, nor does anything by a second call.
    `throughput x seconds == samples` holds before and after.
    """
    if "dilation" not in frame or frame.dilation.isna().all():
        return frame
    slowed = frame.emulated.fillna(False).astype(bool) & frame.dilation.notna()
    k = pd.to_numeric(frame.dilation.where(slowed)).fillna(1.0)
    changed = {name: frame[name] / k for name in SECONDS if name in frame}
    changed |= {name: frame[name] * k for name in RATES if name in frame}
    return frame.assign(**changed, dilation=frame.dilation.mask(slowed, 1.0))


def against_computed(emulated: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Emulated runs beside those that computed the same: one row a configuration that both have.

    Columns: those of `SAME` (link_gbit is NaN on one rank, which needs none); computed, emulated (s, median of a step's
    time, undilated), computed_repeats, emulated_repeats; ratio (emulated / computed), low, high (its 95 % interval).
    """
    steps = [_steps(undilated(runs)).groupby(SAME, dropna=False).step.agg(list) for runs in (measured, emulated)]
    both = pd.concat(steps, axis=1, keys=["computed", "emulated"]).dropna().reset_index()
    rows = []
    for row in both.itertuples():
        ratio = stats.ratio(row.emulated, row.computed)
        rows.append(
            {name: getattr(row, name) for name in SAME}
            | {"computed": stats.median(row.computed).value, "computed_repeats": len(row.computed)}
            | {"emulated": stats.median(row.emulated).value, "emulated_repeats": len(row.emulated)}
            | {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
        )
    columns = [*SAME, "computed", "computed_repeats", "emulated", "emulated_repeats", "ratio", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _steps(runs: pd.DataFrame) -> pd.DataFrame:
    links = pd.to_numeric(runs.link_gbit).mask(runs.world_size == 1)
    return runs.assign(step=runs.seconds / runs.samples * runs.global_batch, link_gbit=links)
