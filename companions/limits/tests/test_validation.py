"""A model tested on what it has not seen, and the tables of it: errors by group, costs, what more ranks would give."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from companions.limits import laws, predictions, validation
from hpc_utils import paths, records
from hpc_utils.analyze.model import fit
from hpc_utils.records import probes, schema
from tests.analyze.model.test_fit import TRUE, measured, work

RUNS = measured([math.inf, 10.0, 3.0, 1.0, 0.3])


def held_out(runs: pd.DataFrame, rates=(), most_ranks: float = math.inf) -> tuple[fit.Fitted, pd.DataFrame]:
    """The model without those runs, and its errors on all."""
    fitted = fit.fit(runs[~validation.held_out(runs, rates, most_ranks)], work())
    errors = validation.errors(fitted, runs)
    return fitted, errors.assign(
        points=validation.held_out(errors, rates, most_ranks).map({True: "held out", False: "fitted"})
    )


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


def test_rates_that_were_held_out_are_predicted():
    fitted, errors = held_out(measured([math.inf, 10.0, 3.0, 1.0, 0.3]), [3.0, 0.3])
    assert set(fitted.measured.gbit) == {math.inf, 10.0, 1.0}
    away = errors[errors.points == "held out"]
    assert len(away) == 4 and away.error.abs().max() < 0.05
    assert ((away.seconds_low < away.measured) & (away.measured < away.seconds_high)).sum() >= 3
    assert "0.3 Gbit/s" in errors[errors.gbit == 0.3].extrapolation.iloc[0]


def test_costs_are_recovered_and_the_table_states_which_the_data_narrowed():
    table = validation.costs(fit.fit(measured([math.inf, 10.0, 1.0, 0.1]), work())).set_index("cost")
    for name in ("scale", "host", "reach"):
        assert table.value_low[name] <= getattr(TRUE, name) <= table.value_high[name] and table.significant[name]
    assert not table.significant["latency"]  # some messages of microseconds in a step of a third of a second


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
    tables = [none.summary, none.costs, none.errors, ahead, predictions.efficiency_limits(ahead, 0.7)]
    tables += [laws.curves(none.errors), laws.against_laws(none.errors, 4)]
    tables += [validation.accuracy(none.errors, "points")]
    assert all(table.empty for table in tables)
    folder = paths.reference() / "rehearsal"
    loaded = records.load(folder)
    many = records.Records(loaded.runs[loaded.runs.world_size > 1], loaded.epochs)
    assert "one rank" in validation.validate(many, [], **options).reasons[0]


def test_conclusions_are_a_sentence_a_held_out_group_and_a_curve(tested, accuracy) -> None:
    below = predictions.efficiency_limits(predictions.scaling(tested.fitted, "weak", 8, [2, 1024], gbit=0.3), 0.7)
    summary = pd.DataFrame({"model": ["my_study:mlp (width=64)"]})
    which, first, second = validation.conclusions(summary, accuracy.reset_index(), below)
    assert "my_study:mlp (width=64)" in which
    assert f"{100 * accuracy.median_error['held out']:.1f} %" in first and "extrapolation" in second
    *_, untested = validation.conclusions(summary, pd.DataFrame(), below)
    assert "not validated" in untested
    assert not list(validation.conclusions(pd.DataFrame(), pd.DataFrame(), below[:0]))


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
