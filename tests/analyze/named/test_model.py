"""The model's named values: held-out errors, costs, what more ranks would give, and laws beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpc_utils.analyze import comparison, perfmodel, simulate
from hpc_utils.analyze.named import model as named

from ..test_perfmodel import measured, work

RUNS = measured([math.inf, 10.0, 3.0, 1.0, 0.3])


@pytest.fixture(scope="module")
def held_out():
    return perfmodel.held_out(RUNS, work(), [3.0, 0.3])


def by_name(values):
    found = {value.name: value for value in values}
    assert len(found) == len(values)
    return found


def test_held_out_errors_are_those_of_the_frame(held_out):
    _, errors = held_out
    found, away = by_name(named.held_out(errors, RUNS)), errors[errors.held_out]
    assert found["model.held-out.count"].value == len(away) == 4
    assert found["model.held-out.median-error"].value == away.error.abs().median()
    assert found["model.held-out.worst-error"].value == away.error.abs().max()
    assert found["model.held-out.inside"].value == away.measured.between(away.low, away.high).sum()
    assert found["model.held-out.rates"].value == "0.3, 3"
    behind = found["model.held-out.median-error"].runs
    assert len(behind) == found["model.held-out.runs"].value == 12 and all(
        "-0.3-" in run or "-3-" in run for run in behind
    )
    assert found["model.measured.runs"].value == len(set(found["model.measured.runs"].runs)) == 42


def test_each_configuration_has_its_error_and_bottleneck(held_out):
    _, errors = held_out
    found = by_name(named.held_out(errors, RUNS))
    row = errors[(errors.gbit == 0.3) & (errors.batch_per_device == 8)].iloc[0]
    assert found["model.error.2.device-batch-8.300mbit"].value == row.error
    assert found["model.bottleneck.2.device-batch-8.300mbit"].value == row.bottleneck
    assert found["model.measured-seconds.2.device-batch-8.300mbit"].low == row.measured_low
    assert "had not seen" in found["model.error.2.device-batch-8.300mbit"].says
    assert "was fitted on" in found["model.error.2.device-batch-8.1gbit"].says


def test_summaries_of_errors_have_the_repeats_interval(held_out):
    _, errors = held_out
    found = by_name(named.held_out(errors, RUNS))
    for name, own in (("held-out", errors[errors.held_out]), ("fitted", errors[~errors.held_out])):
        for which, value in (("median", own.error.abs().median()), ("worst", own.error.abs().max())):
            told = found[f"model.{name}.{which}-error"]
            assert told.value == pytest.approx(value) and told.low < told.value < told.high
            assert told.repeats == own.repeats.min() and "held fixed" in told.says


def test_one_rank_s_error_is_told_with_its_sign(held_out):
    _, errors = held_out
    found = by_name(named.held_out(errors, RUNS))
    row = errors[(errors.world_size == 1) & (errors.batch_per_device == 8)].iloc[0]
    told = found["model.error.1.device-batch-8.unlimited"]
    assert told.value == row.error and told.low < row.error < told.high
    assert "without a process group" in told.says


def test_the_model_s_efficiency_stands_beside_the_measured(held_out):
    fitted, _ = held_out
    found = by_name(named.efficiency(fitted, RUNS))
    row = fitted.scaling("weak", 8.0, [2]).iloc[-1]
    told = found["model.efficiency.2.batch-8"]
    assert (told.value, told.low, told.high) == (row.efficiency, row.efficiency_low, row.efficiency_high)


def test_the_interval_s_ends_cross_where_they_do(held_out):
    fitted, _ = held_out
    frame = fitted.scaling("weak", 8, [2, 8, 64, 1024], gbit=0.3)
    frame = frame.assign(
        efficiency=[1, 0.9, 0.6, 0.4, 0.1],
        efficiency_low=[1, 0.6, 0.4, 0.3, 0],
        efficiency_high=[1, 0.95, 0.9, 0.6, 0.2],
    )
    found = by_name(named.ahead({("weak", 0.3): frame}, ["a"]))
    assert [found[f"model.weak.300mbit.below-{end}"].value for end in ("from", "at", "to")] == [2, 8, 64]


def test_costs_and_work_are_the_fit_s(held_out):
    fitted, _ = held_out
    found = by_name(named.fitted(fitted, "cnn", fitted.measured.run_id))
    assert found["model.cost.host"].value == fitted.costs.host and found["model.cost.host"].unit == "s/B"
    assert found["model.cost.host"].low < fitted.costs.host < found["model.cost.host"].high
    assert found["model.scatter"].value == fitted.residual
    assert found["model.runs"].value == len(fitted.measured)


def test_more_ranks_by_curve(held_out):
    fitted, _ = held_out
    worlds = [2, 8, 64, 1024]
    ahead = {("weak", gbit): fitted.scaling("weak", 8, worlds, gbit=gbit) for gbit in (10.0, 0.3)}
    found = by_name(named.ahead(ahead, ["a"]))
    frame = ahead["weak", 0.3]
    assert found["model.weak.300mbit.efficiency.8"].value == frame.efficiency[frame.world_size == 8].iloc[0]
    below = frame[(frame.efficiency < 0.7) & (frame.world_size > 1)].iloc[0]
    assert found["model.weak.300mbit.below-at"].value == below.world_size
    assert found["model.weak.300mbit.limited-by"].value == below.bottleneck
    assert found["model.weak.300mbit.efficient-up-to"].value < below.world_size
    assert "extrapolation" in found["model.weak.300mbit.efficiency.1024"].says


def test_laws_beside_the_model():
    runs = measured([1.0], worlds=(2, 4, 8))
    _, errors = perfmodel.held_out(runs, work(), most_ranks=4)
    compared = comparison.compare(errors, 4)
    found = by_name(named.laws(compared, runs))
    for law, own in compared.groupby("law"):
        stem = f"model.law.{law.lower().replace(' ', '-')}"
        assert found[f"{stem}.count"].value == len(own)
        worst = found[f"{stem}.worst-error"]
        assert worst.value == own.error.abs().max() and worst.low <= worst.value <= worst.high
        assert set(worst.runs) <= set(runs.run_id)


def test_one_slow_rank(held_out):
    fitted, _ = held_out
    noise = simulate.Noise(np.array([0.9, 1.0, 1.1]), np.array([1.0]))
    grid = fitted.scaling("weak", 8, [2, 4], gbit=10.0)[perfmodel.POINT]
    slowed = simulate.one_slow_rank(fitted, grid, noise, [1.1])
    found = by_name(named.slow_rank(slowed, simulate.replay(fitted, grid, noise), ["a"]))
    assert found["model.slow-rank.1-1.4"].value == slowed.longer[slowed.world_size == 4].iloc[0]
    assert 0 < found["model.waiting.4"].value < 1
