"""Intervals: against SciPy's own, by coverage, and at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from hpc_utils.analyze import stats

positive = st.floats(1e-3, 1e6)


def test_three_repeats_carry_a_t_interval_on_the_logs() -> None:
    sample = [1.0, 1.2, 1.1]
    estimate = stats.median(sample)
    logs = np.log(sample)
    half = reference.t.ppf(0.975, 2) * reference.sem(logs)
    assert estimate.value == pytest.approx(1.1)
    assert (estimate.low, estimate.high) == pytest.approx((1.1 * math.exp(-half), 1.1 * math.exp(half)))
    assert estimate.repeats == 3


def test_a_ratio_s_interval_is_welch_s_on_the_logs() -> None:
    above, below = [2.0, 2.1, 2.3], [1.0, 1.05, 0.9, 1.1]
    estimate = stats.ratio(above, below)
    welch = reference.ttest_ind(np.log(above), np.log(below), equal_var=False).confidence_interval(0.95)
    half = (welch.high - welch.low) / 2
    assert estimate.value == pytest.approx(2.1 / 1.025)
    assert math.log(estimate.high / estimate.low) == pytest.approx(2 * half)


def test_a_single_run_has_no_interval() -> None:
    for estimate in (stats.median([3.0]), stats.ratio([3.0], [1.0, 1.1, 1.2])):
        assert math.isnan(estimate.low)
        assert math.isnan(estimate.high)
        assert estimate.repeats == 1


@given(st.lists(positive, min_size=2, max_size=5), st.lists(positive, min_size=2, max_size=5))
def test_a_ratio_turned_over_is_the_other_ratio(above: list[float], below: list[float]) -> None:
    there, back = stats.ratio(above, below), stats.ratio(below, above)
    assert there.value * back.value == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("repeats", [3, 5])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(repeats: int) -> None:
    """For log-normal noise; the median of few values scatters more than their mean, so a little below 95 %."""
    draws = np.exp(np.random.default_rng(7).normal(0, 0.05, (2000, repeats)))
    covered = np.mean([low <= 1 <= high for _, low, high, _ in map(stats.median, draws)])
    assert 0.88 < covered < 0.98


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -2.0], [1.0, math.nan], [math.inf]])
def test_what_is_no_measurement_has_no_interval_and_no_ratio(values: list[float]) -> None:
    known = [value for value in values if not math.isnan(value)]
    found = stats.median(values)
    assert math.isnan(found.low) and math.isnan(found.high) and found.repeats == len(known)
    assert found.value == np.median(known) if known else math.isnan(found.value)
    with pytest.raises(ValueError, match="positive measurements"):
        stats.ratio(values, [1.0])


def test_the_bootstrap_is_the_quantile_of_all_resamples_medians() -> None:
    """Counted by outcome, not drawn again for each sample; the same numbers as by NumPy, resample by resample."""
    generator, (above, below) = np.random.default_rng(0), np.random.default_rng(1).lognormal(0, 0.1, (2, 7))
    medians = [
        np.median(np.sort(sample)[generator.integers(7, size=(stats.RESAMPLES, 7))], axis=1)
        for sample in (above, below)
    ]
    low, high = np.quantile(medians[0], (0.025, 0.975))
    assert stats.median(above)[1:3] == pytest.approx((low, high))
    low, high = np.quantile(medians[0] / medians[1], (0.025, 0.975))
    assert stats.ratio(above, below)[1:3] == pytest.approx((low, high))


def test_equal_repeats_have_an_interval_without_width() -> None:
    assert stats.ratio([2.0, 2.0], [1.0, 1.0, 1.0])[:3] == (2.0, 2.0, 2.0)


def test_a_difference_has_the_root_of_the_sum_of_both_half_widths() -> None:
    found = stats.difference(stats.Estimate(0.9, 0.86, 0.93, 5), stats.Estimate(0.5, 0.46, 0.53, 3))
    assert found == pytest.approx((0.4, 0.4 - 0.05, 0.4 + 0.05, 3))
    assert math.isnan(
        stats.difference(stats.Estimate(0.9, 0.8, 1, 5), stats.Estimate(0.5, math.nan, math.nan, 1)).low
    )


def rounds(kind: str, number: int, generator: np.random.Generator) -> np.ndarray:
    """Logs of the ratio of two configurations of equal speed among eight that take turns, on a machine whose speed `kind` changes."""
    block = 0.1
    grid = 0.01
    length = int(number * 8 * block / grid * 2)
    moments = np.arange(length)
    if kind == "jumps":
        dwell = generator.integers(50, 1000, length // 50)
        speed = np.repeat(generator.choice([0, 0.2, 0.35], len(dwell)), dwell)[:length]
    else:
        speed = 0.2 * np.sin(moments / generator.uniform(200, 2000)) + generator.normal(0, 0.4) * moments / length
    logs = np.empty(number)
    moment = 0.0
    for turn in range(number):
        times = np.empty(8)
        for place in generator.permutation(8):
            times[place] = speed[int(moment / grid)] + 0.06 * generator.standard_t(4)
            moment += block * np.exp(speed[int(moment / grid)])
        logs[turn] = times[0] - times[1]
    return logs


@pytest.mark.parametrize("kind", ["jumps", "drift"])
@pytest.mark.parametrize("number", [40, 80])
def test_intervals_of_rounds_hold_the_truth_as_often_as_they_say(kind, number):
    """On machines with jumps and with drift; of 600 true intervals 95 % hold it, give or take 1.8 (two standard errors)."""
    generator = np.random.default_rng(7)
    estimates = [stats.of_rounds([rounds(kind, number, generator)])[0] for _ in range(600)]
    covered = np.mean([estimate.low < 1 < estimate.high for estimate in estimates])
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize("between", [0.0, 0.5, 2.0])
def test_intervals_of_sessions_hold_the_truth(between):
    """Six sessions whose own ratios differ by `between` standard errors of a session."""
    generator = np.random.default_rng(8)
    count = 0
    for _ in range(1000):
        own = generator.normal(0, between / np.sqrt(60), 6)
        estimate, spread = stats.of_rounds([generator.normal(ratio, 1.0, 60) for ratio in own])
        count += estimate.low < 1 < estimate.high
        assert estimate.repeats == 6 and spread.within == pytest.approx(1 / np.sqrt(360), rel=0.5)
    assert 0.92 <= count / 1000 <= 0.98


def test_a_share_s_interval_stays_inside_0_and_1_and_says_something() -> None:
    estimate = stats.share([0.93, 0.94, 0.95])
    assert estimate[:4:3] == (0.94, 3) and 0.9 < estimate.low < 0.93 and 0.95 < estimate.high < 0.97
    assert stats.share([0.97, 0.99, 0.998]).high < 1
    mirrored = stats.share([0.07, 0.06, 0.05])
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - estimate.high, 1 - estimate.low)), "of errors, too"
    for values in ([0.0312, 0.0625, 0.25], [0.0, 0.1, 0.2], [0.9, 1.0], [0.9]):
        assert np.isnan(stats.share(values)[1:3]).all() and stats.share(values).value == np.median(values)
