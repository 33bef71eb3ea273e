"""Medians and ratios of medians with 95 % intervals, for a few repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
BOOTSTRAP_FROM = 6  # repeats; with fewer, resampling them has too few distinct outcomes
RESAMPLES = 10_000
BATCHES = 10  # of a session's rounds: Schmeiser (1982, Oper. Res. 30:556) recommends 10 to 30
LEAST_ROUNDS = 2 * BATCHES  # of a session
TAILS = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
WIDEST_SHARE = 0.5  # of an interval of shares
SIDES = np.array([-1, 1])
SHARES = ("accuracy", "auc")  # ends of names of measures that are shares
ENDS = ("", "_low", "_high")  # of the columns of an estimate


class Estimate(NamedTuple):
    """`value` with its interval [low, high], which is NaN for a single measurement."""

    value: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, row: Mapping[str, float], name: str) -> Estimate:
        """Of a table's row: its `columns` of `name`, and `repeats`."""
        return cls(*(row[column] for column in columns(name)), row["repeats"])

    def columns(self, name: str) -> dict[str, float]:
        """`name`, `<name>_low` and `<name>_high` of a table's row."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def measure(self, name: str) -> dict[str, float]:
        """`columns` and `repeats` of a table's row."""
        return self.columns(name) | {"repeats": self.repeats}

    def times(self, factor: float) -> Estimate:
        """The estimate of `factor` times the quantity."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.repeats)


UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"), 0)


def columns(*names: str) -> list[str]:
    """Of each of `names`: `name`, `<name>_low` and `<name>_high`."""
    return [name + end for name in names for end in ENDS]


def median(values: Sequence[float]) -> Estimate:
    """Median of the recorded measurements (NaN: not recorded), in the unit of `values`.

    From 6 repeats on the interval is a percentile bootstrap of the median (Efron 1979); below, a t interval of the
    logs, because times and rates are positive and vary by factors. A value that is not positive and finite leaves none.
    """
    measurements = np.asarray(values, dtype=float)
    measurements = measurements[~np.isnan(measurements)]
    if not len(measurements):
        return UNKNOWN
    value = float(np.median(measurements))
    count = len(measurements)
    if count == 1 or not _are_positive(measurements):
        return Estimate(value, np.nan, np.nan, count)
    if count >= BOOTSTRAP_FROM:
        return Estimate(value, *_bootstrap(measurements), count)
    logs = np.log(measurements)
    half = t_quantile(count - 1) * logs.std(ddof=1) / np.sqrt(count)
    return Estimate(value, *np.exp(np.median(logs) + half * SIDES).tolist(), count)


def share(values: Sequence[float]) -> Estimate:
    """Median of shares, such as accuracies: as of `median`, with the interval of their odds, which stays inside 0 and 1.

    An interval that spans more than half of all shares says nothing, and is left out; so is that of values of which one is 0 or 1.
    """
    shares = np.asarray(values, dtype=float)
    with np.errstate(divide="ignore"):
        odds = median(shares / (1 - shares))
    low, high = (end / (1 + end) for end in (odds.low, odds.high))
    if not high - low <= WIDEST_SHARE:
        low = high = np.nan
    return median(shares)._replace(low=low, high=high)


def ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """Ratio of two medians.

    From 6 repeats in both samples the interval is a bootstrap of both; else Welch's t interval of the difference of
    mean logs, centred on the ratio of the medians. `repeats` is the smaller number.
    """
    measurements = [_positive(sample) for sample in (above, below)]
    value = float(np.divide(*map(np.median, measurements)))
    fewest = min(map(len, measurements))
    if fewest >= BOOTSTRAP_FROM:
        return Estimate(value, *_bootstrap(*measurements), fewest)
    return _around(value, _welch_half_width(*measurements), fewest)


class Spread(NamedTuple):
    """Standard errors of a mean of logs: `within` from the rounds of each session, `between` from the sessions' means (NaN of one)."""

    within: float
    between: float


def of_rounds(sessions: Sequence[np.ndarray]) -> tuple[Estimate, Spread]:
    """The ratio whose log was observed in the rounds of one or several sessions (at least `LEAST_ROUNDS` in each).

    Rounds are not independent. The standard error of a session is that of its `BATCHES` batch means; of several sessions, the larger
    one of `Spread` counts, with Satterthwaite's degrees of freedom between those of both. `repeats` is the number of
    sessions.
    """
    batches = np.array([[batch.mean() for batch in np.array_split(logs, BATCHES)] for logs in sessions])
    number = len(sessions)
    means = batches.mean(axis=1)
    within = float(np.sqrt((batches.var(axis=1, ddof=1) / BATCHES).sum()) / number)
    between = float(means.std(ddof=1) / np.sqrt(number)) if number > 1 else np.nan
    error = within
    freedom = number * (BATCHES - 1.0)
    if between > within:
        error = between
        freedom = max(number - 1.0, freedom * (within / between) ** 4)
    half = float(t_quantile(freedom) * error)
    return _around(float(np.exp(means.mean())), half, number), Spread(within, between)


def difference(first: Estimate, second: Estimate) -> Estimate:
    """`first` - `second` of independent estimates; the interval is recovered from both (MOVER, Zou & Donner 2008)."""
    value = first.value - second.value
    below = np.hypot(first.value - first.low, second.high - second.value)
    above = np.hypot(first.high - first.value, second.value - second.low)
    return Estimate(value, value - below, value + above, min(first.repeats, second.repeats))


def medians(samples: Sequence[Sequence[float]], name: str = "") -> np.ndarray:
    """`median`, or of an accuracy (by its `name`) `share`, of each of many samples: (samples, 4), columns as in `Estimate`."""
    estimate = share if name.endswith(SHARES) else median
    return np.array([estimate(sample) for sample in samples], dtype=float).reshape(-1, 4)


def t_quantile(freedom: float | np.ndarray, p: float = TAILS[1]) -> np.ndarray:
    """The `p` quantile of Student's t distribution, by default its upper 97.5 %."""
    from scipy.special import stdtrit  # scipy.stats.t.ppf without its overhead of half a millisecond

    return stdtrit(freedom, p)


def _positive(values: Sequence[float]) -> np.ndarray:
    measurements = np.asarray(values, dtype=float)
    if not len(measurements) or not _are_positive(measurements):
        raise ValueError(f"expected positive measurements, got {list(values)}")
    return measurements


def _are_positive(values: np.ndarray) -> bool:
    return bool((np.isfinite(values) & (values > 0)).all())


def _around(value: float, half: float, repeats: int) -> Estimate:
    """The estimate whose log has that half of an interval."""
    return Estimate(value, *(value * np.exp(half * SIDES)).tolist(), repeats)


def _welch_half_width(*samples: np.ndarray) -> float:
    """Half the t interval of the difference of the samples' mean logs; NaN where one is a single value."""
    if min(map(len, samples)) == 1:
        return np.nan
    sizes = np.array([len(sample) for sample in samples])
    parts = np.array([np.log(sample).var(ddof=1) for sample in samples]) / sizes
    total = parts.sum()
    if total == 0:  # equal repeats: an interval without width
        return 0.0
    return float(t_quantile(total**2 / (parts**2 / (sizes - 1)).sum()) * np.sqrt(total))


def _bootstrap(*samples: np.ndarray) -> list[float]:
    """[low, high] of a sample's median, or of the ratio of two samples' medians."""
    generator = np.random.default_rng(0)
    drawn = [np.median(generator.choice(np.sort(sample), (RESAMPLES, len(sample))), axis=1) for sample in samples]
    return np.quantile(drawn[0] if len(drawn) == 1 else drawn[0] / drawn[1], TAILS).tolist()
