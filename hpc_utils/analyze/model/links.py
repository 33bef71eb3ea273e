"""Links as an all-reduce meets them: times over message sizes, and the latency and bandwidth that explain them.

Reads the records of `hpc bench allreduce` (`records.probes`, kind `allreduce`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils import allreduce_cost
from hpc_utils.allreduce_cost import Link, Topology

from .. import stats
from ..stats import Estimate

TOLERANCE = 0.25  # the largest relative residual with which one latency and bandwidth still describe a link
FEWEST = 3  # sizes: two numbers are fitted
PART = 2 * 4  # bytes: gloo's ring sends two parts a rank, and a part holds a float32 or nothing
FLOOR = 0.05  # relative: the smallest error of a size's time that the fit assumes
OUTLIER = 2.0  # standard errors from which on a size counts less

Record = Mapping[str, Any]


class LinkFit(NamedTuple):
    """The link that explains a group's all-reduce times as a ring.

    Attributes:
        latency: s of one message. bandwidth: byte/s in each direction. Both with their 95 % interval.
        residual: root mean square, over sizes, of modelled / measured - 1. worst: the largest absolute one.
        caveat: where one latency and one bandwidth do not describe every size, or why there is no fit (then all is NaN); else "".
    """

    latency: Estimate = stats.UNKNOWN
    bandwidth: Estimate = stats.UNKNOWN
    residual: float = math.nan
    worst: float = math.nan
    caveat: str = ""


def times(record: Record | None) -> pd.DataFrame:
    """One row per group and message size: median time of the slowest rank over repeats; empty without a record.

    Columns: group, ranks, bytes (of the message); seconds, seconds_low, seconds_high (95 %), repeats; modelled (s, by `fit`).
    """
    rows = []
    for name, group in record["groups"].items() if record else ():
        link = fit(record, name)
        for sample in group["samples"]:
            seconds = stats.median(sample["seconds"])
            row = {"group": name, "ranks": group["ranks"], "bytes": sample["bytes"]}
            modelled = _ring(sample["bytes"], group["ranks"], link.latency.value, link.bandwidth.value)
            rows.append(row | seconds.measure("seconds") | {"modelled": modelled})
    return pd.DataFrame(rows)


def fit(record: Record, group: str) -> LinkFit:
    """Latency and bandwidth of the ring (`allreduce_cost.ring`) that comes closest to a group's times.

    Least squares of log(modelled / measured) of each size's median, weighted by the spread of its repeats, with a soft-L1
    loss, because libraries change their protocol at some sizes. The 95 % intervals are t intervals of the logs from the
    residuals over sizes. Messages of fewer than two numbers a rank are omitted.
    """
    from scipy.optimize import least_squares

    ranks = record["groups"][group]["ranks"]
    samples = pd.DataFrame(record["groups"][group]["samples"])
    samples = samples[samples.bytes >= PART * ranks]
    if len(samples) < FEWEST:
        expected = f"{len(samples)} sizes of {PART * ranks} bytes or more, expected {FEWEST}: raise --largest"
        return LinkFit(caveat=f"no fit: {expected}")
    sizes = samples.bytes.to_numpy(float)
    medians = samples.seconds.map(np.median).to_numpy()
    spreads = [pd.Series(np.log(seconds)).sem() for seconds in samples.seconds]  # NaN of a single measurement
    deviations = np.hypot(FLOOR, np.nan_to_num(spreads))

    def ring(logs: np.ndarray) -> np.ndarray:
        return _ring(sizes, ranks, *np.exp(logs))

    def misfit(logs: np.ndarray) -> np.ndarray:
        return np.log(ring(logs) / medians) / deviations

    def slopes(logs: np.ndarray) -> np.ndarray:
        latency_share = _ring(0, ranks, np.exp(logs[0]), math.inf) / ring(logs)
        return np.column_stack([latency_share, latency_share - 1]) / deviations[:, None]

    # Start from the ends: the smallest message is all latency, the largest all bandwidth.
    latency = medians[0] / _ring(0, ranks, 1.0, 1.0)
    bandwidth = _ring(sizes[-1], ranks, 0.0, 1.0) / medians[-1]
    solution = least_squares(misfit, np.log([latency, bandwidth]), slopes, loss="soft_l1", f_scale=OUTLIER)
    logs = solution.x
    freedom = len(sizes) - 2
    slope = slopes(logs)
    weights = 1 / np.sqrt(1 + (solution.fun / OUTLIER) ** 2)  # of the soft L1 loss
    variance = np.linalg.inv(slope.T @ (weights[:, None] * slope)) * (solution.fun**2).sum() / freedom
    half = stats.t_quantile(freedom) * np.sqrt(np.diag(variance))
    repeats = samples.seconds.map(len).min()
    estimates = [Estimate(*ends, repeats) for ends in np.exp([logs, logs - half, logs + half]).T.tolist()]
    relative = np.abs(ring(logs) / medians - 1)
    worst = float(relative.max())
    residual = float(np.sqrt((relative**2).mean()))
    errors = f"off by {worst:.0%} at {sizes[relative.argmax()]:,.0f} bytes"
    caveat = f"one latency and bandwidth do not describe this link: {errors}" if worst > TOLERANCE else ""
    return LinkFit(*estimates, residual, worst, caveat)


def _ring(size: Any, ranks: int, latency: float, bandwidth: float) -> Any:
    link = Link(latency, bandwidth)
    return allreduce_cost.ring(size, Topology(1, ranks, link, link))
