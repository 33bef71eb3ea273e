"""A model tested on what it has not seen, and the tables of it: errors by group, costs, what more ranks would give."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hpc_utils import records
from hpc_utils.analyze.model import fit, links, validation
from hpc_utils.records import schema

from .test_fit import measured, work

RUNS = measured([math.inf, 10.0, 3.0, 1.0, 0.3])


@pytest.fixture(scope="module")
def tested() -> validation.Validation:
    fitted, errors = fit.held_out(RUNS, work(), [3.0, 0.3])
    return validation.Validation("cnn", RUNS, fitted, fit.fit(RUNS, work()), errors)


@pytest.fixture(scope="module")
def accuracy(tested) -> pd.DataFrame:
    points = tested.errors.held_out.map({True: "held out", False: "fitted"})
    return validation.accuracy(tested.errors.assign(points=points), RUNS, "points").set_index("points")


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
    compared = validation.compare(fit.held_out(runs, work(), most_ranks=4)[1], 4)
    for row in validation.accuracy(compared, runs, "law").itertuples():
        own = compared[compared.law == row.law]
        assert (row.count, row.worst_error) == (len(own), pytest.approx(own.error.abs().max()))
        assert row.worst_error_low <= row.worst_error <= row.worst_error_high and set(row.runs) <= set(runs.run_id)


def test_the_model_s_own_tables_are_the_fit_s(tested) -> None:
    (row,) = tested.summary().to_dict("records")
    assert (row["model"], row["fitted_on"]) == ("cnn", len(tested.fitted.measured))
    assert (row["scatter"], row["gradient_bytes"]) == (tested.fitted.residual, work().gradient_bytes)
    host = tested.costs().set_index("cost").loc["host"]
    assert (host.value, host.unit) == (tested.fitted.costs.host, "s/B") and host.low < host.value < host.high
    assert tested.ids == tuple(RUNS.run_id) and len(tested.full.measured) == len(RUNS)


def test_more_ranks_are_predicted_for_every_rate_and_both_kinds(tested) -> None:
    ahead = tested.predictions([10.0, 1.0], [2, 8])
    assert ahead.groupby(["kind", "gbit"]).ngroups == 4
    alone = ahead[ahead.world_size == 1].drop_duplicates("kind").set_index("kind").batch_per_device
    assert alone.to_dict() == {"strong": 8 * 32, "weak": 32}, (
        "the largest batch measured, and eight times that in all"
    )


def test_runs_of_one_node_are_continued_at_their_own_batch_as_far_as_the_interval_says_something() -> None:
    near = measured([math.inf])
    near = near.assign(nodes=1, ranks_per_node=near.world_size)
    weak = validation.Validation("cnn", near, full=fit.fit(near, work()))
    ahead = weak.predictions([10.0, 1.0], [2, 8, 64])
    assert set(zip(ahead.kind, ahead.gbit, ahead.nodes, strict=True)) == {("weak", math.inf, 1)}, (
        "no batch was divided over ranks"
    )
    assert set(ahead.batch_per_device) == {32.0} and ahead.world_size.tolist() == [1, 2, 8, 64]
    (row,) = validation.efficiency_limits(ahead, 0.7).to_dict("records")
    assert "inf" not in next(validation.conclusions(weak.accuracy(), pd.DataFrame([row])))
    halves = measured([math.inf], worlds=(4,))
    halves = halves[(halves.world_size > 1) == (halves.batch_per_device < 32)]
    halves = halves.assign(nodes=1, ranks_per_node=halves.world_size)
    strong = validation.Validation("cnn", halves, full=fit.fit(halves, work()))
    ahead = strong.predictions([1.0], [2, 8])
    assert set(ahead.kind) == {"strong"} and ahead.batch_per_device.tolist() == [32, 16, 4]
    vague = validation.Validation("cnn", near, full=replace(weak.full, residual=1.0))
    assert vague.predictions([1.0], [2, 8, 64]).empty


def test_without_a_model_there_is_nothing_and_a_reason() -> None:
    none = validation.Validation()
    assert none.fitted is None and none.ids == ()
    assert none.summary().empty and none.costs().empty and none.predictions([1.0], [2]).empty
    assert validation.fitted_curves(none.fitted, validation.curves(none.errors)).empty and none.accuracy().empty
    assert (
        validation.compare(none.errors, 4).empty
        and validation.efficiency_limits(none.predictions([1.0], [2]), 0.7).empty
    )
    assert validation.bottlenecks(none.predictions([1.0], [2])).empty
    runs = pd.DataFrame(columns=schema.names(schema.RUNS))
    how = {"rates": [1.0], "most_ranks": 4, "gbits": {}}
    found = validation.validate(records.Records(runs, pd.DataFrame()), [], links.link_table([]), **how)
    assert found.fitted is None and found.reasons == {}


def test_the_interval_s_ends_cross_where_they_do(tested) -> None:
    frame = tested.fitted.scaling("weak", 8, [2, 8, 64, 1024], gbit=0.3)
    frame = frame.assign(
        efficiency=[1, 0.9, 0.6, 0.4, 0.1],
        efficiency_low=[1, 0.6, 0.4, 0.3, 0],
        efficiency_high=[1, 0.95, 0.9, 0.6, 0.2],
    )
    (row,) = validation.efficiency_limits(frame, 0.7).to_dict("records")
    assert [row[f"below_{end}"] for end in ("from", "at", "to")] == [2, 8, 64]
    assert (row["world_size"], row["efficiency"]) == (8, 0.6)
    assert (row["kind"], row["gbit"], row["batch"]) == ("weak", 0.3, 8)
    (row,) = validation.efficiency_limits(frame.assign(efficiency=0.9, bottleneck="wire"), 0.7).to_dict("records")
    assert math.isnan(row["below_at"]) and (row["world_size"], row["limited_by"]) == (1024, "wire")


def test_conclusions_are_a_sentence_a_held_out_group_and_a_curve(tested, accuracy) -> None:
    below = validation.efficiency_limits(tested.fitted.scaling("weak", 8, [2, 1024], gbit=0.3), 0.7)
    first, second = validation.conclusions(accuracy.reset_index(), below)
    assert f"{accuracy.median_error['held out']:.1%}" in first and "extrapolation" in second


# -- laws


@pytest.fixture(scope="module")
def held_out():
    runs = measured([10.0, 1.0], worlds=(2, 4, 8))
    return fit.held_out(runs, work(), most_ranks=4)


def test_every_law_and_the_model_predict_the_same_points(held_out):
    found = validation.compare(held_out[1], 4)
    assert set(found.world_size) == {8} and set(found.gbit) == {10.0, 1.0}
    counts = found[found.kind == "weak"].law.value_counts()
    assert counts["Gustafson"] == counts[validation.MODEL] > 1 and "Amdahl" not in counts
    assert (found.error == found.seconds / found.measured - 1).all()
    assert found[found.law == validation.MODEL].error.abs().max() < 0.05
    assert validation.compare(held_out[1], 8).empty, "nothing is left to predict"


def test_one_rank_belongs_to_the_curves_of_every_link(held_out):
    drawn = validation.curves(held_out[1])
    for _, own in drawn.groupby(validation.CURVE):
        assert own.world_size.is_unique and own.world_size.nunique() > 1
    assert set(drawn.gbit[drawn.world_size == 1]) == {10.0, 1.0}


def test_the_model_is_drawn_on_every_number_of_ranks_of_a_curve(held_out):
    fitted, errors = held_out
    drawn = validation.curves(errors)
    lines = validation.fitted_curves(fitted, drawn)
    for key, own in lines.groupby(validation.CURVE):
        points = drawn[(drawn[validation.CURVE] == list(key)).all(axis=1)]
        assert own.world_size.tolist() == list(range(1, points.world_size.max() + 1))


RANKS = np.array([1, 2, 4, 8, 16])


def test_amdahl_finds_the_serial_share_and_never_a_negative_one():
    fitted = validation.amdahl(RANKS, 2.0 * (0.1 + 0.9 / RANKS))
    assert fitted.seconds([1, 32]) == pytest.approx([2.0, 2.0 * (0.1 + 0.9 / 32)])
    assert fitted.formula == "2 s (10.0% serial)"
    assert "(0.0% serial)" in validation.amdahl(RANKS, 2.0 / RANKS**1.1).formula  # super-linear


def test_gustafson_finds_the_serial_share_of_equal_work_a_rank():
    fitted = validation.gustafson(RANKS, 0.5 * RANKS / (RANKS - 0.2 * (RANKS - 1)))
    assert fitted.seconds([1, 64]) == pytest.approx([0.5, 0.5 * 64 / (64 - 0.2 * 63)], rel=1e-3)


# -- the intervals of errors


def test_an_error_s_interval_is_that_of_its_repeats() -> None:
    off = validation.error([1.1], [[0.9, 1.0, 1.1]], np.max)
    assert off.value == pytest.approx(0.1) and off.repeats == 3
    assert off.low == pytest.approx(0.0) and off.high == pytest.approx(1.1 / 0.9 - 1)


def test_the_same_twice() -> None:
    sides = [1.0, 2.0], [[1.0, 1.2, 1.1], [1.9, 2.2, 2.3]]
    assert validation.error(*sides, np.median) == validation.error(*sides, np.median)


def test_without_scatter_there_is_no_width() -> None:
    off = validation.error([1.1, 2.0], [[1.0, 1.0], [2.0, 2.0]], np.max)
    assert off.low == off.value == off.high == pytest.approx(0.1)


def test_a_single_run_leaves_no_interval() -> None:
    off = validation.error([1.1, 2.0], [[1.0], [2.0, 2.1]], np.max)
    assert math.isnan(off.low) and off.repeats == 1
