"""A model tested on what it has not seen, and the tables of it: errors by group, costs, what more ranks would give."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils import records
from hpc_utils.analyze import comparison, link, misfit, model_test, perfmodel
from hpc_utils.records import schema

from .test_perfmodel import measured, work

RUNS = measured([math.inf, 10.0, 3.0, 1.0, 0.3])


@pytest.fixture(scope="module")
def tested() -> model_test.ModelTest:
    fitted, errors = perfmodel.held_out(RUNS, work(), [3.0, 0.3])
    return model_test.ModelTest("cnn", RUNS, RUNS, work(), fitted, errors)


@pytest.fixture(scope="module")
def accuracy(tested) -> pd.DataFrame:
    points = tested.errors.held_out.map({True: "held out", False: "fitted"})
    return misfit.table(tested.errors.assign(points=points), RUNS, "points").set_index("points")


def test_errors_by_group_have_the_repeats_interval_and_their_runs(tested, accuracy) -> None:
    for name, own in (("held out", tested.errors[tested.errors.held_out]), ("fitted", tested.errors[~tested.errors.held_out])):  # fmt: skip
        row = accuracy.loc[name]
        assert (row["count"], row.repeats) == (len(own), own.repeats.min())
        assert row.inside == own.measured.between(own.low, own.high).sum() == round(row.inside_share * len(own))
        for column, value in (("median_error", own.error.abs().median()), ("worst_error", own.error.abs().max())):
            assert row[column] == pytest.approx(value)
            assert row[f"{column}_low"] < value < row[f"{column}_high"]
    behind = accuracy.runs["held out"]
    assert len(behind) == 12 and all("-0.3-" in run or "-3-" in run for run in behind)


def test_laws_are_grouped_likewise() -> None:
    runs = measured([1.0], worlds=(2, 4, 8))
    compared = comparison.compare(perfmodel.held_out(runs, work(), most_ranks=4)[1], 4)
    for row in misfit.table(compared, runs, "law").itertuples():
        own = compared[compared.law == row.law]
        assert (row.count, row.worst_error) == (len(own), pytest.approx(own.error.abs().max()))
        assert row.worst_error_low <= row.worst_error <= row.worst_error_high and set(row.runs) <= set(runs.run_id)


def test_the_model_s_own_tables_are_the_fit_s(tested) -> None:
    (row,) = tested.summary().to_dict("records")
    assert (row["model"], row["fitted_on"]) == ("cnn", len(tested.fitted.measured))
    assert (row["scatter"], row["gradient_bytes"]) == (tested.fitted.residual, work().gradient_bytes)
    host = tested.costs().set_index("cost").loc["host"]
    assert (host.value, host.unit) == (tested.fitted.costs.host, "s/B") and host.low < host.value < host.high
    assert tested.ids == tuple(RUNS.run_id) and len(tested.whole().measured) == len(RUNS)


def test_more_ranks_are_predicted_for_every_rate_and_both_kinds(tested) -> None:
    ahead = tested.ahead([10.0, 1.0], [2, 8], strong=4)
    assert ahead.groupby(["kind", "gbit"]).ngroups == 4
    alone = ahead[ahead.world_size == 1].drop_duplicates("kind").set_index("kind").batch_per_device
    assert alone.to_dict() == {"strong": 4 * 32, "weak": 32}, "the largest batch measured, and four times that in all"


def test_without_a_model_there_is_nothing_and_a_reason() -> None:
    none = model_test.ModelTest()
    assert not none and none.ids == ()
    assert none.summary().empty and none.costs().empty and none.ahead([1.0], [2]).empty
    runs = pd.DataFrame(columns=schema.names(schema.RUNS))
    how = {"rates": [1.0], "most_ranks": 4, "gbits": {}}
    found = model_test.fit(records.Records(runs, pd.DataFrame()), [], link.table([]), **how)
    assert not found and found.reasons == {}


def test_the_interval_s_ends_cross_where_they_do(tested) -> None:
    frame = tested.fitted.scaling("weak", 8, [2, 8, 64, 1024], gbit=0.3)
    frame = frame.assign(
        efficiency=[1, 0.9, 0.6, 0.4, 0.1],
        efficiency_low=[1, 0.6, 0.4, 0.3, 0],
        efficiency_high=[1, 0.95, 0.9, 0.6, 0.2],
    )
    (row,) = perfmodel.below(frame, 0.7).to_dict("records")
    assert [row[f"below_{end}"] for end in ("from", "at", "to")] == [2, 8, 64]
    assert (row["efficient_to"], row["world_size"], row["efficiency"]) == (2, 8, 0.6)
    assert (row["kind"], row["gbit"], row["batch"]) == ("weak", 0.3, 8)
    (row,) = perfmodel.below(frame.assign(efficiency=0.9, bottleneck="wire"), 0.7).to_dict("records")
    assert math.isnan(row["below_at"]) and (row["efficient_to"], row["world_size"], row["limited_by"]) == (1024, 1024, "wire")  # fmt: skip


def test_conclusions_are_a_sentence_a_held_out_group_and_a_curve(tested, accuracy) -> None:
    below = perfmodel.below(tested.fitted.scaling("weak", 8, [2, 1024], gbit=0.3), 0.7)
    first, second = model_test.conclusions(accuracy.reset_index(), below)
    assert f"{accuracy.median_error['held out']:.1%}" in first and "extrapolation" in second
