"""Ratios to a base: which base, which way, what a missing side leaves, and pairs by repeat."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze import stats
from hpc_utils.analyze.compare import beside, compare, paired, scaled

BASE = [1.0, 1.1, 0.9]


@pytest.fixture
def configurations() -> pd.DataFrame:
    """Configurations of two machines, one of them unknown; the second machine has no base."""
    rows = [
        ("a", 1, BASE),
        ("a", 2, [2.0, 2.2, 1.9]),
        (None, 1, [4.0, 4.4, 4.2]),
        (None, 2, [np.nan, 2.0, 2.1]),
        ("c", 2, BASE),
        ("a", 3, [np.nan] * 3),
    ]
    table = pd.DataFrame(rows, columns=["machine", "ranks", "speed_each"])
    table["speed_each"] = table.speed_each.map(np.array)
    return table.assign(
        runs=[(f"run{place}",) for place in range(len(table))], speed=table.speed_each.map(np.nanmedian)
    )


def test_each_row_is_over_the_base_that_is_alike(configurations: pd.DataFrame) -> None:
    bases = configurations[configurations.ranks == 1]
    table = compare(configurations, bases, ["machine"], over={"gain": "speed"}, under={"slowdown": "speed"})
    assert table.runs.tolist() == configurations.runs.tolist()
    expected = stats.ratio([2.0, 2.2, 1.9], BASE)
    assert table.loc[1, [*stats.columns(["gain"]), "gain_repeats"]].tolist() == list(expected)
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
    assert share[stats.columns(["share"])].iloc[0].tolist() == [1, 0.5, 1.5] and share.share[1] == 1


def test_pairs_are_of_one_repeat() -> None:
    runs = pd.DataFrame({"repeat": [3, 1, 2, 9], "throughput": [30.0, 10.0, 20.0, 1.0], "run_id": list("cabz")})
    base = pd.DataFrame({"repeat": [1, 2, 3], "throughput": [5.0, 10.0, 10.0], "run_id": list("xyw")})
    estimate, run_ids = paired(runs, base)
    assert (estimate.value, estimate.repeats) == (2.0, 3) and set(run_ids) == set("cabxyw")
    assert paired(runs[3:], base)[0].repeats == 0
