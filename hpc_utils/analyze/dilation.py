"""Time-dilated runs of the emulated device, as if they had not been slowed down."""

from __future__ import annotations

import pandas as pd

# What waits and what limited links take scales with the dilation; setting up and standing still do not.
SECONDS = (
    "seconds", "step_mean", "step_p50", "step_p95", "step_p99", "data_seconds", "forward_seconds", "backward_seconds",
    "optimizer_seconds", "comm_seconds", "overlap_seconds", "data", "forward", "backward", "optimizer",
)  # fmt: skip
RATES = ("throughput",)


def undilated(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with times (s) divided and rates multiplied by its column `dilation`, which is then 1.

    Runs as of `records.load`, or epochs, steps and ranks to which the run's `dilation` was joined. Where it is empty
    (measured runs) nothing changes, so a second call changes nothing either. `throughput x seconds == samples` holds
    before and after.
    """
    if "dilation" not in frame or frame.dilation.isna().all():
        return frame
    k = pd.to_numeric(frame.dilation).fillna(1.0)
    changed = {name: frame[name] / k for name in SECONDS if name in frame}
    changed |= {name: frame[name] * k for name in RATES if name in frame}
    return frame.assign(**changed, dilation=frame.dilation.where(frame.dilation.isna(), 1.0))
