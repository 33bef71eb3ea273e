"""Medians with honest intervals, for a handful of repeats."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
BOOTSTRAP_FROM = 6  # repeats; with fewer, resampling them has too few distinct outcomes
RESAMPLES = 10_000
AT_ONCE = 256  # samples whose resamples are held in memory together


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
    return _estimate(medians([values])[0])


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Ratio of two medians with a 95 % interval, formed on the logs.

    For few repeats Welch's t interval of the difference of mean logs, recentred on the ratio of medians; from
    6 on each side a bootstrap of both. A single run on either side has no interval.
    """
    return _estimate(ratios([numerator], [denominator])[0])


def ratio_or_one(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """`ratio`, but a single run on one side is taken to spread as the repeats on the other do.

    Then the t interval of the difference of mean logs with a common variance, which one run adds nothing to the
    knowledge of. A single run on each side has no interval.
    """
    found = ratio(numerator, denominator)
    several = max(numerator, denominator, key=len)
    if found.repeats > 1 or len(several) < 2:
        return found
    logs = np.log(several)
    half = float(_t_quantile(len(logs) - 1) * logs.std(ddof=1) * np.sqrt(1 + 1 / len(logs)))
    return found._replace(low=found.value * np.exp(-half).item(), high=found.value * np.exp(half).item())


def ratio_of_ratios(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> Estimate:
    """(a / b) / (c / d) of medians, `first` = (a, b), `second` = (c, d), with a 95 % interval.

    Welch's t interval of the sum of four mean logs, recentred on the ratio of medians; none if any is a single run.
    """
    blocks = [_positive([own]) for own in (*first, *second)]
    one, another, third, fourth = (float(np.median(block)) for block in blocks)
    value, fewest = (one / another) / (third / fourth), min(block.shape[1] for block in blocks)
    if fewest < 2:
        return Estimate(value, float("nan"), float("nan"), fewest)
    half = _welch_half_width(*(np.log(block) for block in blocks)).item()
    return Estimate(value, value * float(np.exp(-half)), value * float(np.exp(half)), fewest)


def medians(samples: Sequence[Sequence[float]]) -> np.ndarray:
    """`median` of each of thousands of samples at once: (samples, 4), the columns as in `Estimate`."""
    found = np.full((len(samples), 4), np.nan)
    for rows, (block,) in _alike(samples):
        size = block.shape[1]
        found[rows, 0], found[rows, 3] = np.median(block, axis=1), size
        if size >= BOOTSTRAP_FROM:
            found[rows, 1:3] = _bootstrap(block)
        elif size > 1:
            logs = np.log(block)
            half = _t_quantile(size - 1) * logs.std(axis=1, ddof=1) / np.sqrt(size)
            found[rows, 1:3] = np.exp(np.median(logs, axis=1)[:, None] + half[:, None] * (-1, 1))
    return found


def ratios(numerators: Sequence[Sequence[float]], denominators: Sequence[Sequence[float]]) -> np.ndarray:
    """`ratio` of each of thousands of pairs at once: (pairs, 4), the columns as in `Estimate`."""
    found = np.full((len(numerators), 4), np.nan)
    for rows, (above, below) in _alike(numerators, denominators):
        fewest = min(above.shape[1], below.shape[1])
        value = np.median(above, axis=1) / np.median(below, axis=1)
        found[rows, 0], found[rows, 3] = value, fewest
        if fewest >= BOOTSTRAP_FROM:
            found[rows, 1:3] = _bootstrap(above, below)
        elif fewest > 1:
            half = _welch_half_width(np.log(above), np.log(below))
            found[rows, 1:3] = value[:, None] * np.exp(half[:, None] * (-1, 1))
    return found


def _estimate(row: np.ndarray) -> Estimate:
    value, low, high, repeats = row.tolist()
    return Estimate(value, low, high, int(repeats))


def _alike(*sides: Sequence[Sequence[float]]) -> Iterator[tuple[list[int], list[np.ndarray]]]:
    """(which rows, for each side their values (rows, size)), of rows that are equal in size, some hundred at a time."""
    sized: dict[tuple[int, ...], list[int]] = {}
    for row, values in enumerate(zip(*sides, strict=True)):
        sized.setdefault(tuple(map(len, values)), []).append(row)
    for rows in sized.values():
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            yield some, [_positive([side[row] for row in some]) for side in sides]


def _positive(samples: Sequence[Sequence[float]]) -> np.ndarray:
    block = np.asarray(samples, dtype=float)
    wrong = ~(np.isfinite(block) & (block > 0))
    if wrong.any() or not block.shape[1]:
        first = int(np.argmax(wrong.any(axis=1)))
        raise ValueError(f"expected positive measurements, got {list(samples[first])}")
    return block


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2


def _t_quantile(freedom: float | np.ndarray) -> np.ndarray:
    """Student's t's upper 97.5 %."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, without its half millisecond

    return stdtrit(freedom, _tails()[1])


def _welch_half_width(*blocks: np.ndarray) -> np.ndarray:
    """Of each row's difference (or sum) of the blocks' means."""
    sizes = np.array([block.shape[1] for block in blocks])
    parts = np.stack([block.var(axis=1, ddof=1) for block in blocks], axis=1) / sizes
    total = parts.sum(axis=1)
    spread = np.where(total == 0, 1, total)  # without any there is no freedom either, and no width
    freedom = spread**2 / np.where(total == 0, 1, (parts**2 / (sizes - 1)).sum(axis=1))
    return _t_quantile(freedom) * np.sqrt(total)


def _bootstrap(*blocks: np.ndarray) -> np.ndarray:
    """(rows, 2): the interval of each row's median, or of the ratio of two blocks' medians."""
    middles, times = _outcomes(*(block.shape[1] for block in blocks))
    medians = [
        (ordered[:, lower] + ordered[:, upper]) / 2
        for ordered, lower, upper in zip(
            (np.sort(b, axis=1) for b in blocks), middles[::2], middles[1::2], strict=True
        )
    ]
    values = medians[0] if len(medians) == 1 else medians[0] / medians[1]
    order = np.argsort(values, axis=1)
    values, upto = np.take_along_axis(values, order, axis=1), times[order].cumsum(axis=1)
    ends = []
    for tail in _tails():  # as np.quantile of all resamples: between two neighbours
        below, part = divmod(tail * (RESAMPLES - 1), 1)
        near = [
            np.take_along_axis(values, (upto <= place).sum(axis=1, keepdims=True), axis=1)
            for place in (below, below + 1)
        ]
        ends.append(near[0] + part * (near[1] - near[0]))
    return np.hstack(ends)


@functools.lru_cache(maxsize=64)
def _outcomes(*sizes: int) -> tuple[np.ndarray, np.ndarray]:
    """What resampling can give: for each size the two ordered values that the median lies between, and how often.

    Few outcomes are distinct, and they are the same for all samples of a size: so thousands of samples cost little.
    """
    generator, found = np.random.default_rng(0), []
    for size in sizes:
        drawn = np.sort(generator.integers(size, size=(RESAMPLES, size)), axis=1)
        found += [drawn[:, (size - 1) // 2], drawn[:, size // 2]]
    distinct, times = np.unique(np.stack(found, axis=1), axis=0, return_counts=True)
    return distinct.T, times
