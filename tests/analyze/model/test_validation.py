"""A model tested on what it has not seen, and the tables of it: errors by group, costs, what more ranks would give."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from hpc_utils import paths, records
from hpc_utils.analyze.model import fit, validation
from hpc_utils.records import probes, schema

from .test_fit import held_out, measured, work

RUNS = measured([math.inf, 10.0, 3.0, 1.0, 0.3])


@pytest.fixture(scope="module")
def tested() -> validation.Validation:
    fitted, errors = held_out(RUNS, [3.0, 0.3])
    return validation.Validation([], RUNS, fitted, fit.fit(RUNS, work()), errors)


@pytest.fixture(scope="module")
def accuracy(tested) -> pd.DataFrame:
    return validation.accuracy(tested.errors, "points").set_index("points")


def test_errors_by_group_have_the_repeats_interval_and_their_runs(tested, accuracy) -> None:
    for name, group in tested.errors.groupby("points"):
        row = accuracy.loc[name]
        assert (row["count"], row.repeats) == (len(group), group.repeats.min())
        assert row.inside == group.measured.between(group.seconds_low, group.seconds_high).sum()
        for column, value in (("median_error", group.error.abs().median()), ("worst_error", group.error.abs().max())):
            assert row[column] == pytest.approx(value)
            assert row[f"{column}_low"] < value < row[f"{column}_high"]
    behind = accuracy.runs["held out"]
    assert len(behind) == 12 and all("-0.3-" in run or "-3-" in run for run in behind)


def test_a_committed_set_is_validated_without_its_held_out_runs() -> None:
    folder = paths.reference() / "rehearsal"
    profiles = list(probes.read_probes("compute", folder))
    rates, most_ranks = [3.0, 0.3], 4
    result = validation.validate(records.load(folder), profiles, rates=rates, most_ranks=most_ranks, gbits={})
    assert len(result.full.measured) == len(result.points) == 102
    assert not validation.held_out(result.fitted.measured, rates, most_ranks).any()
    (row,) = result.summary.to_dict("records")
    assert (row["configurations"], row["fitted_on"]) == (10, 30) and row["scatter"] == result.fitted.residual
    assert [bucket.size for bucket in result.full.work.buckets] == [28_872_744, 15_823_104]
    assert "resnet18 on cifar10, fp32" in row["model"] and "cores a rank: 0.14" in row["model"]
    host = result.costs.set_index("cost").loc["host"]
    assert (host.value, host.unit) == (
        result.fitted.costs.host,
        "s/B",
    ) and host.value_low < host.value < host.value_high
    errors = result.errors.set_index("points").error.abs()["held out"]
    assert len(errors) == 24 and errors.median() < 0.04 and errors.max() < 0.2


def test_more_ranks_are_predicted_for_every_rate_and_both_kinds(tested) -> None:
    ahead = tested.predictions([10.0, 1.0], [2, 8])
    assert ahead.groupby(["kind", "gbit"]).ngroups == 4
    alone = ahead[ahead.world_size == 1].drop_duplicates("kind").set_index("kind").batch_per_device
    assert alone.to_dict() == {"strong": 8 * 32, "weak": 32}, (
        "the largest batch measured, and eight times that in all"
    )


def test_no_prediction_is_for_more_than_sixteen_times_the_measured_ranks(tested) -> None:
    worlds = [2, 8, 32, 33, 64, 1024]
    assert tested.points.world_size.max() == 2
    ahead = tested.predictions([10.0], worlds)
    assert ahead.groupby("kind").world_size.max().to_dict() == {"strong": 32, "weak": 32}


def test_more_ranks_than_that_promise_nothing() -> None:
    """Whatever the value, a lower bound of 59 % is no promise of 70 %."""
    curve = {
        "kind": "weak",
        "gbit": 10.0,
        "batch_per_device": 32,
        "world_size": [1, 2, 16],
        "bottleneck": "computing",
    }
    curve |= {"efficiency": [1, 0.9, 0.75], "efficiency_low": [1, 0.8, 0.59], "efficiency_high": [1, 1, 0.9]}
    below = validation.efficiency_limits(pd.DataFrame(curve | {"extrapolation": ""}), 0.7)
    (sentence, _) = validation.conclusions(pd.DataFrame(), pd.DataFrame(), below)
    assert below.below_from.tolist() == [16] and "at least" not in sentence


def test_nodes_are_added_as_far_as_the_interval_says_something() -> None:
    near = measured([math.inf])
    near = near.assign(nodes=1, ranks_per_node=near.world_size)
    one_node = validation.Validation([], near, full=fit.fit(near, work()))
    ahead = one_node.predictions([100.0], [2, 8, 32])
    assert ahead.nodes[ahead.kind == "weak"].tolist() == [1, 1, 4, 16]
    assert "4 nodes (1 to 1 measured)" in ahead.extrapolation[2]
    vague = one_node._replace(full=one_node.full._replace(residual=1.0))
    assert vague.predictions([100.0], [2, 8, 32]).empty


def test_without_a_model_there_is_nothing_and_a_reason() -> None:
    runs = pd.DataFrame(columns=schema.names(schema.RUNS))
    options = {"rates": [1.0], "most_ranks": 4, "gbits": {}}
    none = validation.validate(records.Records(runs, pd.DataFrame()), [], **options)
    assert none.fitted is None and none.reasons == []
    ahead = none.predictions([1.0], [2])
    tables = [none.summary, none.costs, none.errors, ahead, validation.efficiency_limits(ahead, 0.7)]
    tables += [validation.curves(none.errors), validation.against_laws(none.errors, 4)]
    tables += [validation.accuracy(none.errors, "points")]
    assert all(table.empty for table in tables)
    folder = paths.reference() / "rehearsal"
    loaded = records.load(folder)
    many = records.Records(loaded.runs[loaded.runs.world_size > 1], loaded.epochs)
    assert "one rank" in validation.validate(many, [], **options).reasons[0]


def test_the_interval_s_ends_cross_where_they_do(tested) -> None:
    frame = tested.fitted.scaling("weak", 8, [2, 8, 64, 1024], gbit=0.3)
    frame = frame.assign(
        efficiency=[1, 0.9, 0.6, 0.4, 0.1],
        efficiency_low=[1, 0.6, 0.4, 0.3, 0],
        efficiency_high=[1, 0.95, 0.9, 0.6, 0.2],
    )
    (row,) = validation.efficiency_limits(frame, 0.7).to_dict("records")
    assert [row[f"below_{end}"] for end in ("from", "at", "to")] == [2, 8, 64]
    assert (row["world_size"], row["efficiency_low"]) == (2, 0.6), "by the bound, not by the value"
    assert (row["kind"], row["gbit"], row["batch"]) == ("weak", 0.3, 8)
    high = frame.assign(efficiency=0.9, efficiency_low=0.8, bottleneck="wire")
    (row,) = validation.efficiency_limits(high, 0.7).to_dict("records")
    assert math.isnan(row["below_from"]) and (row["world_size"], row["bottleneck"]) == (1024, "wire")


def test_bottlenecks_are_stretches_of_rank_counts(tested):
    curves = [tested.full.scaling(kind, 256, [2, 4, 16, 64], gbit=10.0) for kind in ("strong", "weak")]
    stretches = validation.bottlenecks(pd.concat(curves, ignore_index=True))
    strong = stretches[stretches.kind == "strong"]
    assert strong.from_ranks.iloc[0] == 2 and strong.to_ranks.iloc[-1] == 64
    assert "communication: bandwidth" in set(strong.bottleneck) and len(strong) > 1
    assert (strong.from_ranks.iloc[1:].to_numpy() > strong.to_ranks.iloc[:-1].to_numpy()).all()
    assert stretches[stretches.kind == "weak"].from_ranks.iloc[0] == 2


def test_conclusions_are_a_sentence_a_held_out_group_and_a_curve(tested, accuracy) -> None:
    below = validation.efficiency_limits(tested.fitted.scaling("weak", 8, [2, 1024], gbit=0.3), 0.7)
    summary = pd.DataFrame({"model": ["my_study:mlp (width=64)"]})
    which, first, second = validation.conclusions(summary, accuracy.reset_index(), below)
    assert "my_study:mlp (width=64)" in which
    assert f"{100 * accuracy.median_error['held out']:.1f} %" in first and "extrapolation" in second
    *_, untested = validation.conclusions(summary, pd.DataFrame(), below)
    assert "not validated" in untested
    assert not list(validation.conclusions(pd.DataFrame(), pd.DataFrame(), below[:0]))


# -- laws


@pytest.fixture(scope="module")
def few_ranks() -> pd.DataFrame:
    return held_out(measured([10.0, 1.0], worlds=(2, 4, 8)), most_ranks=4)[1]


def test_every_law_and_the_model_predict_the_same_points(few_ranks):
    compared = validation.against_laws(few_ranks, 4)
    assert set(compared.world_size) == {8} and set(compared.gbit) == {10.0, 1.0}
    counts = compared[compared.kind == "weak"].law.value_counts()
    assert counts["Gustafson"] == counts[validation.MODEL] > 1 and "Amdahl" not in counts
    assert (compared.error == compared.seconds / compared.measured - 1).all()
    assert compared[compared.law == validation.MODEL].error.abs().max() < 0.05
    assert validation.against_laws(few_ranks, 8).empty, "nothing is left to predict"


def test_one_rank_belongs_to_the_curves_of_every_link(few_ranks):
    drawn = validation.curves(few_ranks)
    for _, curve in drawn.groupby(validation.CURVE):
        assert curve.world_size.is_unique and curve.world_size.nunique() > 1
    assert set(drawn.gbit[drawn.world_size == 1]) == {10.0, 1.0}


RANKS = pd.Series([1, 2, 4, 8, 16])
MORE = pd.Series([1, 32])


def test_amdahl_finds_the_serial_share_and_never_a_negative_one():
    predicted = validation.amdahl(RANKS, 2.0 * (0.1 + 0.9 / RANKS), MORE)
    assert predicted.tolist() == pytest.approx([2.0, 2.0 * (0.1 + 0.9 / 32)])
    one, many = validation.amdahl(RANKS, 2.0 / RANKS**1.1, MORE)  # super-linear
    assert one / many == pytest.approx(32)


def test_gustafson_finds_the_serial_share_of_equal_work_a_rank():
    predicted = validation.gustafson(RANKS, 0.5 * RANKS / (RANKS - 0.2 * (RANKS - 1)), MORE)
    assert predicted.tolist() == pytest.approx([0.5, 0.5 * 32 / (32 - 0.2 * 31)], rel=1e-3)


# -- the intervals of errors


def interval(seconds: list[float], *repeats: list[float]) -> pd.Series:
    """`accuracy` of predictions in `seconds`, each of a configuration that was measured in `repeats`."""
    errors = pd.DataFrame({"seconds": seconds, "samples": repeats, "runs": [("run",)] * len(repeats)})
    errors = errors.assign(
        measured=errors.samples.map(np.median),
        repeats=errors.samples.map(len),
        seconds_low=0,
        seconds_high=9,
        group="a",
    )
    return validation.accuracy(errors, "group").iloc[0]


def test_an_error_s_interval_is_that_of_its_repeats() -> None:
    row = interval([1.1], [0.9, 1.0, 1.1])
    assert row.worst_error == pytest.approx(0.1) and row.repeats == 3
    assert row.worst_error_low == pytest.approx(0.0) and row.worst_error_high == pytest.approx(1.1 / 0.9 - 1)


def test_without_scatter_there_is_no_width() -> None:
    row = interval([1.1, 2.0], [1.0, 1.0], [2.0, 2.0])
    assert row.worst_error_low == row.worst_error == row.worst_error_high == pytest.approx(0.1)


def test_a_single_run_leaves_no_interval() -> None:
    row = interval([1.1, 2.0], [1.0], [2.0, 2.1])
    assert math.isnan(row.worst_error_low) and row.repeats == 1
