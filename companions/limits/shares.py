"""Whether a share of a core is a fair device: its steps beside those of a whole core."""

from __future__ import annotations

import pandas as pd

from hpc_utils.analyze import stats
from hpc_utils.analyze.compare import compare, scaled
from hpc_utils.analyze.points import barred, gather, number, unprofiled
from hpc_utils.analyze.table import tabled
from hpc_utils.records import identity

# Equal on a share and on the whole core that it is compared with; what follows from the others is omitted.
OTHER = ("threads_per_rank", "share_period", "device", "parameters", "ranks_per_node", "global_batch")
SAME = [name for name in [*identity.SAME, *identity.POINT] if name not in OTHER]
COLUMNS = [
    *SAME, "cores", "period", "step_seconds", "step_seconds_low", "step_seconds_high", "spread", "sample_seconds", "sample_seconds_low",
    "sample_seconds_high", "periods", "deviation", "deviation_low", "deviation_high", "repeats", "runs",
]  # fmt: skip


@tabled(
    "shares",
    "Steps on shares of a core and on whole cores.",
    "parallel world_size batch_per_device cores period step_seconds spread deviation",
    measure="deviation",
    missing="`hpc study run shares`",
)
def against_whole_cores(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration that ran on shares of a core and on whole ones, by each run's last epoch.

    Columns: those of `SAME`; cores (of a device, 1 for whole ones), period (s, of the share; NaN: whole); step_seconds (mean
    step of a run, median over repeats) with its 95 % interval; spread (95th percentile of steps over their
    median, median over repeats); sample_seconds (processor time that a sample may take: step_seconds x cores / batch) with <name>_low and <name>_high;
    periods (of the share in a step); deviation (step_seconds x cores over the whole core's step, less 1) with its interval;
    repeats; runs (ids).
    """
    on_cores = (runs.device == "cpu") & (pd.to_numeric(runs.threads_per_rank) <= 1)
    core_runs = unprofiled(runs[on_cores & ~barred(runs)])
    last = epochs.sort_values("epoch").groupby("run_id")[["seconds", "steps", "step_p95", "step_p50"]].last()
    core_runs = core_runs.drop(columns=[*last], errors="ignore").join(last, on="run_id")
    spread = core_runs.step_p95 / core_runs.step_p50
    core_runs = core_runs.assign(spread=spread, samples=core_runs.steps * core_runs.global_batch)
    steps = gather(core_runs, ["step_seconds", "spread"])
    steps = steps.assign(cores=steps.threads_per_rank.astype(float), period=steps.share_period.astype(float))
    is_whole = steps.cores == 1
    compared = compare(steps, steps[is_whole], SAME, over={"ratio": "step_seconds"}).dropna(subset="ratio")
    compared = scaled(compared, "deviation", "ratio", compared.cores)
    compared[stats.columns("deviation")] -= 1
    compared = scaled(compared, "sample_seconds", "step_seconds", compared.cores / compared.batch_per_device)
    compared = compared.assign(periods=compared.step_seconds / compared.period)
    has_shares = compared.groupby(number(compared, SAME)).cores.transform("min") < 1
    return compared.loc[has_shares, COLUMNS]
