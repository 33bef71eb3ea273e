"""Ratios to a base: which base, which way, what a missing side leaves, and pairs by repeat."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze import stats
from hpc_utils.analyze.compare import beside, compare, paired, scaled
from hpc_utils.analyze.points import Sample, by_round

BASE = [1.0, 1.1, 0.9]


@pytest.fixture
def configurations() -> pd.DataFrame:
    """Configurations of two machines, one of them unknown; the second machine has no base."""
    rows = [
        ("a", 1, BASE),
        ("a", 2, [2.0, 2.2, 1.9]),
        (None, 1, [4.0, 4.4, 4.2]),
        (None, 2, [2.0, 2.1]),
        ("c", 2, BASE),
        ("a", 3, []),
    ]
    table = pd.DataFrame(rows, columns=["machine", "ranks", "values"])
    return table.assign(
        runs=[(f"run{place}",) for place in range(len(table))],
        speed=[stats.median(values).value for values in table["values"]],
        speed_sample=[Sample(values, [{}] * len(values)) for values in table["values"]],
    )


def test_each_row_is_over_the_base_that_is_alike(configurations: pd.DataFrame) -> None:
    bases = configurations[configurations.ranks == 1]
    table = compare(configurations, bases, ["machine"], over={"gain": "speed"}, under={"slowdown": "speed"})
    assert table.runs.tolist() == configurations.runs.tolist()
    expected = stats.ratio([2.0, 2.2, 1.9], BASE)
    assert table.loc[1, [*stats.columns("gain"), "gain_repeats"]].tolist() == list(expected)
    assert table.slowdown[1] == pytest.approx(0.5) and table.speed_base[1] == 1
    assert (table.gain[3], table.gain_repeats[3]) == (pytest.approx(2.05 / 4.2), 2), "a repeat was not recorded"
    assert table.gain[4:].isna().all() and table.gain_repeats[4:].tolist() == [0, 0], "no base, and no measurement"


def test_a_base_over_itself_is_one_without_an_interval(configurations: pd.DataFrame) -> None:
    base = compare(configurations, configurations[:1], (), over={"gain": "speed"}).iloc[0]
    assert (base.gain, base.gain_repeats) == (1, 3) and math.isnan(base.gain_low) and math.isnan(base.gain_high)


def test_beside_has_a_row_for_each_base_and_compare_takes_the_first(configurations: pd.DataFrame) -> None:
    assert len(beside(configurations[1:2], configurations[:2], ["machine"])) == 2
    table = compare(configurations[1:2], configurations[:2], ["machine"], over={"gain": "speed"})
    assert table.gain.tolist() == [2.0]


def test_a_scaled_column_keeps_its_interval() -> None:
    table = pd.DataFrame({"gain": [2.0, 4.0], "gain_low": [1.0, np.nan], "gain_high": [3.0, np.nan]})
    share = scaled(table, "share", "gain", pd.Series([0.5, 0.25]))
    assert share[stats.columns("share")].iloc[0].tolist() == [1, 0.5, 1.5] and share.share[1] == 1


def test_pairs_are_of_one_repeat() -> None:
    runs = pd.DataFrame({"repeat": [3, 1, 2, 9], "throughput": [30.0, 10.0, 20.0, 1.0], "run_id": list("cabz")})
    base = pd.DataFrame({"repeat": [1, 2, 3], "throughput": [5.0, 10.0, 10.0], "run_id": list("xyw")})
    estimate, run_ids = paired(runs, base)
    assert (estimate.value, estimate.repeats) == (2.0, 3) and set(run_ids) == set("cabxyw")
    assert paired(runs[3:], base)[0].repeats == 0


def in_turn(
    ratio: float, sessions: int, generator: np.random.Generator, *, spread: float = 0.0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs of two configurations, one a session of 60 rounds, on a machine whose speed jumps, and both gathered; B takes `ratio` times
    as long as A."""
    rows = []
    for session in range(sessions):
        speed = np.repeat(generator.uniform(0.5, 2, 20), 3)
        relative = ratio * np.exp(generator.normal(0, spread))
        for name, factor in (("A", 1.0), ("B", relative)):
            seconds = factor / speed * generator.lognormal(0, 0.02, 60)
            blocks = {(f"session-{session}", turn): value / seconds.mean() for turn, value in enumerate(seconds)}
            rows.append({"name": name, "repeat": session, "throughput": 1 / seconds.mean(), "blocks": blocks})
    runs = pd.DataFrame(rows).assign(run_id=[f"run{number}" for number in range(2 * sessions)])
    runs["by_round"] = by_round(runs, "throughput")
    samples = [Sample(part.throughput.tolist(), part.by_round.tolist()) for _, part in runs.groupby("name")]
    return runs, pd.DataFrame({"throughput_sample": samples, "runs": [("a",), ("b",)]})


def test_runs_that_took_turns_are_compared_within_rounds() -> None:
    runs, table = in_turn(2.0, 3, np.random.default_rng(5))
    row = compare(table[1:], table[:1], (), over={"gain": "throughput"}, under={"slowdown": "throughput"}).iloc[0]
    apart = table.assign(throughput_sample=[sample._replace(by_round=[{}] * 3) for sample in table.throughput_sample])
    alone = compare(apart[1:], apart[:1], (), over={"gain": "throughput"}).iloc[0]
    assert row.gain == pytest.approx(0.5, rel=0.02) and row.slowdown == pytest.approx(1 / row.gain)
    assert row.gain_low < 0.5 < row.gain_high and row.gain_high - row.gain_low < 0.02
    assert alone.gain_high - alone.gain_low > 5 * (row.gain_high - row.gain_low)
    assert (row.gain_repeats, row.gain_rounds, alone.gain_rounds) == (3, 180, 0)
    assert row.gain_within > 0 and row.gain_between > 0 and math.isnan(alone.gain_within)
    ratio, run_ids = paired(runs[runs.name == "B"], runs[runs.name == "A"])
    assert ratio == pytest.approx((row.gain, row.gain_low, row.gain_high, 3)) and len(run_ids) == 6


def test_a_session_alone_has_an_interval_and_sessions_that_differ_widen_it() -> None:
    _, once = in_turn(2.0, 1, np.random.default_rng(5))
    row = compare(once[1:], once[:1], (), over={"gain": "throughput"}).iloc[0]
    assert row.gain_repeats == 1 and row.gain_low < 0.5 < row.gain_high and math.isnan(row.gain_between)
    _, apart = in_turn(2.0, 4, np.random.default_rng(6), spread=0.1)
    wide = compare(apart[1:], apart[:1], (), over={"gain": "throughput"}).iloc[0]
    assert wide.gain_between > 3 * wide.gain_within
    assert wide.gain_high / wide.gain_low > np.exp(2 * 3 * wide.gain_between), "as a t interval of four sessions"


def test_few_common_rounds_are_no_session() -> None:
    _, table = in_turn(2.0, 3, np.random.default_rng(5))
    below, above = table.throughput_sample
    for rounds in above.by_round:
        for turn in list(rounds)[stats.LEAST_ROUNDS - 1 :]:
            del rounds[turn]
    row = compare(table[1:], table[:1], (), over={"gain": "throughput"}).iloc[0]
    assert row.gain_rounds == 0 and row.gain == stats.ratio(above.values, below.values).value
