"""Medians with honest intervals, for a handful of repeats."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
BOOTSTRAP_FROM = 6  # repeats; with fewer, resampling them has too few distinct outcomes
RESAMPLES = 10_000


class Estimate(NamedTuple):
    """`value` with its interval [low, high]; a single measurement has none (NaN)."""

    value: float
    low: float
    high: float
    repeats: int


def median(values: Sequence[float]) -> Estimate:
    """Median of positive measurements with a 95 % interval, in the unit of `values`.

    From 6 repeats on a percentile bootstrap of the median (Efron 1979); below, a t interval on the logs:
    times and rates are positive and err by factors. One measurement stays one.

    Raises:
        ValueError: no values, or one that is not positive and finite.
    """
    sample = _positive(values)
    middle = float(np.median(sample))
    if len(sample) == 1:
        return Estimate(middle, np.nan, np.nan, 1)
    if len(sample) >= BOOTSTRAP_FROM:
        low, high = _bootstrap(sample)
    else:
        low, high = np.exp(_t_interval(np.log(sample)))
    return Estimate(middle, float(low), float(high), len(sample))


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Ratio of two medians with a 95 % interval, formed on the logs.

    For few repeats Welch's t interval of the difference of mean logs, recentred on the ratio of medians; from
    6 on each side a bootstrap of both. A single run on either side has no interval.
    """
    above, below = _positive(numerator), _positive(denominator)
    value = float(np.median(above) / np.median(below))
    fewest = min(len(above), len(below))
    if fewest == 1:
        return Estimate(value, np.nan, np.nan, 1)
    if fewest >= BOOTSTRAP_FROM:
        ratios = _resampled_medians(above, seed=0) / _resampled_medians(below, seed=1)
        low, high = np.quantile(ratios, _tails())
        return Estimate(value, float(low), float(high), fewest)
    half = _welch_half_width(np.log(above), np.log(below))
    return Estimate(value, value * np.exp(-half), value * np.exp(half), fewest)


def _positive(values: Sequence[float]) -> np.ndarray:
    sample = np.asarray(values, dtype=float)
    if not len(sample) or not np.all(np.isfinite(sample)) or np.any(sample <= 0):
        raise ValueError(f"expected positive measurements, got {list(values)}")
    return sample


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2


def _t_interval(logs: np.ndarray) -> tuple[float, float]:
    """Centred on the median's log, as wide as the t interval of the mean."""
    half = _t_quantile(len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return np.median(logs) - half, np.median(logs) + half


def _welch_half_width(first: np.ndarray, second: np.ndarray) -> float:
    parts = np.array([first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)])
    total = parts.sum()
    if total == 0:
        return 0.0
    freedom = total**2 / (parts**2 / np.array([len(first) - 1, len(second) - 1])).sum()
    return float(_t_quantile(freedom) * np.sqrt(total))


def _t_quantile(freedom: float) -> float:
    """Student's t's upper 97.5 %."""
    from scipy.special import stdtrit  # behind scipy.stats.t.ppf, which takes a hundred times as long

    return stdtrit(freedom, _tails()[1])


def _bootstrap(sample: np.ndarray) -> np.ndarray:
    return np.quantile(_resampled_medians(sample, seed=0), _tails())


def _resampled_medians(sample: np.ndarray, seed: int) -> np.ndarray:
    """The resamples' medians, (RESAMPLES,)."""
    ordered = np.sort(sample)
    lower, upper = _middles(len(sample), seed)
    return (ordered[lower] + ordered[upper]) / 2


@functools.lru_cache(maxsize=128)
def _middles(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which two of `size` ordered values each resample's median lies between; drawn once for all samples of a size."""
    drawn = np.sort(np.random.default_rng(seed).integers(size, size=(RESAMPLES, size)), axis=1)
    return drawn[:, (size - 1) // 2], drawn[:, size // 2]
