"""How long a step takes on a device that nobody has measured: the model's operations over the device's peak rate.

A guess with wide ends, for a proposal's resources only: an experiment on one device replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from .model.fit import Answer
from .profiles.peaks import Peak
from .stats import Estimate

# Of the peak rate that a training step attains: (expected, slowest, fastest). An allowance, no measurement: convolutions
# of small images fill a GPU badly, and a textbook's loop waits for each image.
ATTAINED = (0.2, 0.02, 0.6)


def per_sample(runs: pd.DataFrame) -> dict[tuple[str, str], float]:
    """{(workload, data set): floating-point operations to train on a sample}, where runs counted them and agree."""
    counted = runs[pd.to_numeric(runs.flops_per_sample).notna()]
    found = {}
    for key, own in counted.groupby(["workload", "dataset"]):
        values = pd.to_numeric(own.flops_per_sample).unique()
        if len(values) == 1:
            found[key] = float(values[0])
    return found


def predictor(runs: pd.DataFrame, peak: Peak) -> Callable[[Mapping[str, Any]], Answer | None]:
    """A function of a planned point (workload, dataset, precision, batch_per_device): the time of its step on `peak`, or None
    where no run counted the model's operations, or the device does not have that precision.

    Args:
        runs: as of `records.load`, measured anywhere: operations are the model's, not the machine's.
    """
    operations = per_sample(runs)

    def predict(point: Mapping[str, Any]) -> Answer | None:
        work = operations.get((point["workload"], point["dataset"]))
        if work is None or point["precision"] not in peak.flops:
            return None
        fastest = work * point["batch_per_device"] / peak.of(point["precision"])
        expected, slowest, quickest = (fastest / share for share in ATTAINED)
        return Answer(Estimate(expected, quickest, slowest, 0), "")

    return predict
