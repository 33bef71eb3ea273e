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
