"""Medians and ratios of medians with 95 % intervals, for a few repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
BOOTSTRAP_FROM = 6  # repeats; with fewer, resampling them has too few distinct outcomes
RESAMPLES = 10_000
TAILS = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]


class Estimate(NamedTuple):
    """`value` with its interval [low, high], which is NaN for a single measurement."""

    value: float
    low: float
    high: float
    repeats: int

    def columns(self, name: str) -> dict[str, float]:
        """`name`, `<name>_low` and `<name>_high` of a table's row."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def measure(self, name: str) -> dict[str, float]:
        """`name`, `low`, `high` and `repeats` of a table's row."""
        return {name: self.value, "low": self.low, "high": self.high, "repeats": self.repeats}

    def times(self, factor: float) -> Estimate:
        """The estimate of `factor` times the quantity."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.repeats)


UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"), 0)


def median(values: Sequence[float]) -> Estimate:
    """Median of positive measurements, in the unit of `values`.

    From 6 repeats on the interval is a percentile bootstrap of the median (Efron 1979); below, a t interval of the
    logs, because times and rates are positive and vary by factors.

    Raises:
        ValueError: no values, or one that is not positive and finite.
    """
    return _estimate(medians([values])[0])


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Ratio of two medians.

    From 6 repeats on each side the interval is a bootstrap of both; below, Welch's t interval of the difference of mean
    logs, centred on the ratio of the medians. `repeats` is the smaller number of both.
    """
    return _estimate(ratios([numerator], [denominator])[0])


def ratio_or_one(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """`ratio`, but a single run on one side is assumed to vary as the repeats on the other side do.

    The interval is then the t interval of the difference of mean logs with a common variance.
    """
    found = ratio(numerator, denominator)
    several = max(numerator, denominator, key=len)
    if found.repeats > 1 or len(several) < 2:
        return found
    half = float(t_quantile(len(several) - 1) * np.log(several).std(ddof=1) * np.sqrt(1 + 1 / len(several)))
    return found._replace(low=found.value * np.exp(-half).item(), high=found.value * np.exp(half).item())


def ratio_of_ratios(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> Estimate:
    """(a / b) / (c / d) of medians, `first` = (a, b), `second` = (c, d), with Welch's t interval of the four mean logs."""
    blocks = [_positive([own]) for own in (*first, *second)]
    a, b, c, d = (float(np.median(block)) for block in blocks)
    value, fewest = (a / b) / (c / d), min(block.shape[1] for block in blocks)
    half = _welch_half_width(*map(np.log, blocks)).item() if fewest > 1 else np.nan
    return Estimate(value, value * float(np.exp(-half)), value * float(np.exp(half)), fewest)


def medians(samples: Sequence[Sequence[float]]) -> np.ndarray:
    """`median` of each of many samples: (samples, 4), columns as in `Estimate`."""
    found = np.full((len(samples), 4), np.nan)
    for rows, (block,) in _by_size(samples):
        size = block.shape[1]
        found[rows, 0], found[rows, 3] = np.median(block, axis=1), size
        if size >= BOOTSTRAP_FROM:
            found[rows, 1:3] = [_bootstrap(one) for one in block]
        elif size > 1:
            logs = np.log(block)
            half = t_quantile(size - 1) * logs.std(axis=1, ddof=1) / np.sqrt(size)
            found[rows, 1:3] = np.exp(np.median(logs, axis=1)[:, None] + half[:, None] * (-1, 1))
    return found


def ratios(numerators: Sequence[Sequence[float]], denominators: Sequence[Sequence[float]]) -> np.ndarray:
    """`ratio` of each of many pairs: (pairs, 4), columns as in `Estimate`."""
    found = np.full((len(numerators), 4), np.nan)
    for rows, (above, below) in _by_size(numerators, denominators):
        fewest = min(above.shape[1], below.shape[1])
        value = np.median(above, axis=1) / np.median(below, axis=1)
        found[rows, 0], found[rows, 3] = value, fewest
        if fewest >= BOOTSTRAP_FROM:
            found[rows, 1:3] = [_bootstrap(*pair) for pair in zip(above, below, strict=True)]
        elif fewest > 1:
            half = _welch_half_width(np.log(above), np.log(below))
            found[rows, 1:3] = value[:, None] * np.exp(half[:, None] * (-1, 1))
    return found


def t_quantile(freedom: float | np.ndarray, p: float = TAILS[1]) -> np.ndarray:
    """The `p` quantile of Student's t distribution, by default its upper 97.5 %."""
    from scipy.special import stdtrit  # scipy.stats.t.ppf without its overhead of half a millisecond

    return stdtrit(freedom, p)


def holm(p: np.ndarray) -> np.ndarray:
    """p values after Holm's step-down correction (1979, Scand. J. Stat. 6:65)."""
    order = np.argsort(p)
    found = np.empty_like(p)
    found[order] = np.minimum(np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]), 1)
    return found


def _estimate(row: np.ndarray) -> Estimate:
    value, low, high, repeats = row.tolist()
    return Estimate(value, low, high, int(repeats))


def _by_size(*sides: Sequence[Sequence[float]]) -> Iterator[tuple[list[int], list[np.ndarray]]]:
    """(rows, their values (rows, size) on each side) of the samples that are equal in size."""
    sized: dict[tuple[int, ...], list[int]] = {}
    for row, values in enumerate(zip(*sides, strict=True)):
        sized.setdefault(tuple(map(len, values)), []).append(row)
    for rows in sized.values():
        yield rows, [_positive([side[row] for row in rows]) for side in sides]


def _positive(samples: Sequence[Sequence[float]]) -> np.ndarray:
    block = np.asarray(samples, dtype=float)
    wrong = ~(np.isfinite(block) & (block > 0)).all(axis=1)
    if wrong.any() or not block.shape[1]:
        raise ValueError(f"expected positive measurements, got {list(samples[int(wrong.argmax())])}")
    return block


def _welch_half_width(*blocks: np.ndarray) -> np.ndarray:
    """Half the t interval of each row's difference (or sum) of the blocks' means."""
    sizes = np.array([block.shape[1] for block in blocks])
    parts = np.stack([block.var(axis=1, ddof=1) for block in blocks], axis=1) / sizes
    total = parts.sum(axis=1)
    spread = np.where(total == 0, 1, total)  # equal repeats: an interval without width
    freedom = spread**2 / np.where(total == 0, 1, (parts**2 / (sizes - 1)).sum(axis=1))
    return t_quantile(freedom) * np.sqrt(total)


def _bootstrap(*samples: np.ndarray) -> np.ndarray:
    """(low, high) of a sample's median, or of the ratio of two samples' medians."""
    generator = np.random.default_rng(0)
    medians = [
        np.median(np.sort(own)[generator.integers(len(own), size=(RESAMPLES, len(own)))], axis=1) for own in samples
    ]
    return np.quantile(medians[0] if len(medians) == 1 else medians[0] / medians[1], TAILS)
