"""Efficiency of other people's runs: as they report their throughput, and as it follows from their time and samples."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hpc_utils.analyze import scaling

from .tables import Verdict

COLUMNS = [
    *("workload", "dataset", "precision", "device_name"), *("software", "date"), "parallel", "kind", "batch", "baseline", "world_size", "nodes",
    *("reported", "efficiency", "efficiency_low", "efficiency_high", "repeats", "throughput", "verdict"),
]  # fmt: skip


def efficiency(runs: pd.DataFrame) -> pd.DataFrame:
    """`scaling.efficiency` of the runs of `tables.read_table` against the headline baseline.

    Columns: `COLUMNS`; efficiency, efficiency_low, efficiency_high: from samples and seconds; reported: from the reported throughput, NaN where there
    is none; verdict: of the runs behind the point.
    """
    corrected = _efficiency(runs, runs.throughput)
    reported = _efficiency(runs, runs.reported_throughput.fillna(runs.throughput))
    verdicts = runs.set_index("run_id").verdict
    corrected["verdict"] = [", ".join(sorted(set(verdicts[list(names)]))) for names in corrected.runs]
    corrected["reported"] = reported.efficiency.mask(corrected.verdict == Verdict.COMPUTED)
    corrected["software"] = corrected.torch
    corrected["date"] = corrected.settings
    return corrected[COLUMNS]


def _efficiency(runs: pd.DataFrame, throughput: pd.Series) -> pd.DataFrame:
    """Of equal work: a run's samples in one second."""
    work = {"samples": throughput.astype(float), "seconds": 1.0, "epochs": 1, "steps_per_epoch": np.nan}
    work["settings"] = runs.started  # of different dates: not pooled
    work["parallel"] = runs.parallel.fillna("not stated")
    return scaling.headline(scaling.efficiency(runs.assign(**work))).reset_index(drop=True)
