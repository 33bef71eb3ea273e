"""How sure the errors of a prediction are: resampled repeats of the points, the prediction held fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from .perfmodel import POINT
from .stats import CONFIDENCE, Estimate

RESAMPLES = 4000


def of(errors: pd.DataFrame, measured: pd.DataFrame) -> tuple[Estimate, Estimate]:
    """(median, worst) of the errors without their sign, with their intervals over the repeats.

    `errors`: rows of `Fitted.errors`. `measured`: the runs behind them, as of `perfmodel.points`.
    """
    each = measured.groupby(POINT).seconds.agg(list)
    repeats = [each[tuple(row)] for row in errors[POINT].itertuples(index=False)]
    return estimate(errors.seconds, repeats, np.median), estimate(errors.seconds, repeats, np.max)


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
