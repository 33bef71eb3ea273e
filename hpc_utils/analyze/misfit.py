"""How sure the errors of a prediction are: resampled repeats of the points, the prediction held fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from .perfmodel import POINT
from .stats import CONFIDENCE, Estimate

RESAMPLES = 4000


def table(errors: pd.DataFrame, measured: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row a value of the column `by` of `errors` (as of `Fitted.errors`, of the runs `measured`).

    Columns: `by`; count (points), inside (of them in the prediction's 95 % interval), inside_share; median_error, worst_error (without
    the sign, over the repeats of the points, the prediction held fixed), each with `_low` and `_high`; repeats (the fewest); runs.
    """
    each, rows = measured.groupby(POINT).seconds.agg(list), []
    for name, own in errors.groupby(by, sort=False):
        repeats = [each[tuple(row)] for row in own[POINT].itertuples(index=False)]
        inside = int(own.measured.between(own.low, own.high).sum())
        row = {by: name, "count": len(own), "inside": inside, "inside_share": inside / len(own)}
        for column, statistic in (("median_error", np.median), ("worst_error", np.max)):
            off = estimate(own.seconds, repeats, statistic)
            row |= {column: off.value, f"{column}_low": off.low, f"{column}_high": off.high, "repeats": off.repeats}
        rows.append(row | {"runs": tuple(dict.fromkeys(run for behind in own.runs for run in behind))})
    return pd.DataFrame(rows)


def estimate(
    predicted: Sequence[float], repeats: Sequence[Sequence[float]], statistic: Callable[..., np.ndarray]
) -> Estimate:
    """`statistic` (with `axis`) of |predicted / median of the repeats - 1| over points, and its 95 % interval.

    Percentiles of a bootstrap of each point's repeats (Efron 1979), seeded; stretched to hold the value, which the largest
    of several errors may else lie outside of. A point of a single repeat leaves it without interval.
    """
    predicted = np.asarray(predicted, float)
    value = float(statistic(np.abs(predicted / [np.median(own) for own in repeats] - 1), axis=0))
    fewest = min(map(len, repeats))
    if fewest < 2:
        return Estimate(value, float("nan"), float("nan"), fewest)
    generator = np.random.default_rng(0)
    drawn = np.array([np.median(generator.choice(own, (RESAMPLES, len(own))), axis=1) for own in repeats])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(statistic(np.abs(predicted[:, None] / drawn - 1), axis=0), [tail, 1 - tail]).tolist()
    return Estimate(value, min(low, value), max(high, value), fewest)
