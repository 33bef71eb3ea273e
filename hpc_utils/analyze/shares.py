"""Whether a share of a core is a fair device: its steps beside those of a whole core."""

from __future__ import annotations

import pandas as pd

from hpc_utils.records import identity

from . import stats
from .points import barred, unprofiled

# Equal on a share and on the whole core that it is compared with; what follows from the others is omitted.
OTHER = ("threads_per_rank", "share_period", "device", "parameters", "ranks_per_node", "global_batch")
SAME = [name for name in [*identity.SAME, *identity.POINT] if name not in OTHER]
COLUMNS = [
    *SAME, "cores", "period", "step_seconds", "low", "high", "spread", "sample_seconds", "sample_seconds_low",
    "sample_seconds_high", "periods", "deviation", "deviation_low", "deviation_high", "repeats", "runs",
]  # fmt: skip


def against_whole_cores(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration that ran on shares of a core and on whole ones, by each run's last epoch.

    Columns: those of `SAME`; cores (of a device, 1 for whole ones), period (s, of the share; NaN: whole); step_seconds (mean
    step of a run, median over repeats) with its 95 % interval in low, high; spread (95th percentile of steps over their
    median, median over repeats); sample_seconds (processor time that a sample may take: step_seconds x cores / batch) with <name>_low and <name>_high;
    periods (of the share in a step); deviation (step_seconds x cores over the whole core's step, less 1) with its interval;
    repeats; runs (ids).
    """
    on_cores = (runs.device == "cpu") & (pd.to_numeric(runs.threads_per_rank) <= 1)
    core_runs = unprofiled(runs[on_cores & ~barred(runs)])
    last = epochs.sort_values("epoch").groupby("run_id").last()
    core_runs = core_runs.join(last[["seconds", "steps", "step_p95", "step_p50"]].add_suffix("_last"), on="run_id")
    core_runs = core_runs.assign(
        cores=core_runs.threads_per_rank.astype(float), period=pd.to_numeric(core_runs.share_period),
        step=core_runs.seconds_last / core_runs.steps_last, spread=core_runs.step_p95_last / core_runs.step_p50_last,
    )  # fmt: skip
    rows = []
    for _, alike in core_runs.groupby(SAME, dropna=False):
        whole_cores = alike[alike.cores == 1]
        if whole_cores.empty or len(whole_cores) == len(alike):
            continue
        for (cores, period), group in alike.groupby(["cores", "period"], dropna=False):
            step = stats.median(group.step)
            ratio = stats.ratio(group.step, whole_cores.step).times(cores)
            sample = step.times(cores / group.batch_per_device.iloc[0])
            row = group[SAME].iloc[0].to_dict() | {"cores": cores, "period": period, "periods": step.value / period}
            row |= {"spread": group.spread.median(), "runs": tuple(group.run_id)} | step.measure("step_seconds")
            deviations = {name: value - 1 for name, value in ratio.columns("deviation").items()}
            rows.append(row | sample.columns("sample_seconds") | deviations)
    return pd.DataFrame(rows, columns=COLUMNS).astype({"cores": float, "period": float})
