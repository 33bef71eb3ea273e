"""What planned studies take: sums over studies, what is asked for, and what is measured once."""

from __future__ import annotations

import pytest

from hpc_utils.analyze import budget, peak_rate, planned
from hpc_utils.analyze.profiles.peaks import Peak

from .test_budget import LIMIT, NOTHING, PRICES, point
from .test_cost import records

STATED = {"limit": LIMIT, "seconds_per_epoch": 100.0}


def estimates(**studies: list[dict]):
    return {name: budget.estimate(own, *NOTHING, **STATED) for name, own in planned.once(studies).items()}


def test_the_total_is_of_all_studies_and_its_interval_of_their_common_basis() -> None:
    parts = estimates(strong=[point(1), point(8, repeat=1)], weak=[point(4, series="weak", global_batch=2048)])
    table = planned.studies(parts, PRICES)
    assert table.study.tolist() == ["strong", "weak", "Total"]
    assert table.runs.tolist() == [2, 1, 3]
    assert table[["nodes", "devices"]].values.tolist() == [[2, 8], [1, 4], [2, 8]]
    assert table.node_hours[2] == pytest.approx(table.node_hours[:2].sum())
    assert table.node_hours_high[2] < table.node_hours_high[:2].sum(), "starts err apart from steps"
    assert table.basis.tolist() == ["stated"] * 3


def test_a_run_of_two_studies_is_counted_with_the_first() -> None:
    shared, own = point(1), point(2)
    found = planned.once({"strong": [shared], "weak": [dict(shared, series="weak"), own]})
    assert [[one["run_id"] for one in points] for points in found.values()] == [[shared["run_id"]], [own["run_id"]]]


def test_what_is_asked_for_is_the_upper_end_and_the_contingency_on_it() -> None:
    table = planned.studies(estimates(strong=[point(8)], weak=[point(4, series="weak")]), PRICES)
    (asked,) = planned.request(table, "Machine", contingency=0.25, like="X1").to_dict("records")
    for column, predicted in (("request_node_hours", "node_hours_high"), ("cost", "cost_high")):
        needed = table[predicted].iloc[-1] * 1.25
        assert needed <= asked[column] <= 1.1 * needed
    assert (asked["machine"], asked["like"], asked["unit"]) == ("Machine", "X1", "GPU-hours")
    assert (asked["attained"], asked["attained_low"], asked["attained_high"]) == peak_rate.ATTAINED
    free = planned.studies(estimates(strong=[point(8)]), {})
    assert "cost" not in planned.request(free, "Machine", contingency=0, like="X1")


def test_a_prediction_rests_on_the_runs_of_its_workloads_that_counted_operations() -> None:
    runs, _ = records({"world": 1, "seconds": 9.0}, {"world": 2, "seconds": 9.0}, {"world": 2, "seconds": 9.0})
    counted = runs.assign(flops_per_sample=[1e9, None, 1e9], workload=["cnn", "cnn", "vit"])
    assert planned.evidence(counted, ["cnn"]) == [runs.run_id[0]]
    assert planned.evidence(runs.drop(columns="flops_per_sample", errors="ignore"), ["cnn"]) == []


@pytest.mark.parametrize(
    ("amount", "asked"), [(197.95, 200), (200, 200), (201, 210), (0.0123, 0.013), (12345, 13000)]
)
def test_what_is_asked_for_is_rounded_up_to_two_digits(amount: float, asked: float) -> None:
    assert planned._up(amount) == pytest.approx(asked)


PEAK = Peak("X1", {"fp32": 1e12, "bf16": 1e13}, 1e12, 1e10, "a document")


def test_operations_over_the_peak_rate_predict_what_nobody_measured() -> None:
    runs, epochs = records({"world": 2, "seconds": 1000.0})
    known = runs.assign(flops_per_sample=1e9, hardware_id="elsewhere")
    roughly = peak_rate.predictor(known, PEAK)
    fastest = 1e9 * 128 / 1e12  # s a step of 128 samples on each of 4 devices, at the peak rate
    step = roughly(point(4)).seconds
    assert (step.value, step.high, step.low) == pytest.approx(tuple(fastest / share for share in peak_rate.ATTAINED))
    assert roughly(point(4, precision="bf16")).seconds.value == pytest.approx(step.value / 10)
    found = budget.estimate([point(4), point(4, precision="tf32")], known, epochs, limit=LIMIT, roughly=roughly)
    assert found.basis.tolist() == ["operations", "time limit"], "X1 has no tf32"
    expected = 10 * step.value + budget.SETUP[0] + budget.START[0]
    assert found.seconds[0] == pytest.approx(expected)


def test_whatever_is_known_better_goes_before_the_peak_rate() -> None:
    runs, epochs = records({"world": 2, "seconds": 1000.0})
    known = runs.assign(flops_per_sample=1e9)
    how = {"limit": LIMIT, "roughly": peak_rate.predictor(known, PEAK)}
    found = budget.estimate([point(2), point(4)], known, epochs, **how)
    assert found.basis.tolist() == ["measured", "scaled"]
    stated = budget.estimate([point(2)], known.assign(hardware_id="x"), epochs, seconds_per_epoch=9.0, **how)
    assert stated.basis.tolist() == ["stated"]


def test_counts_that_contradict_each_other_are_no_count() -> None:
    runs, _ = records({"world": 1, "seconds": 9.0}, {"world": 2, "seconds": 9.0})
    assert peak_rate.per_sample(runs.assign(flops_per_sample=[1e9, 2e9])) == {}
    assert peak_rate.per_sample(runs.assign(flops_per_sample=[1e9, None])) == {("cnn", "digits"): 1e9}
    assert peak_rate.predictor(runs.assign(flops_per_sample=None), PEAK)(point(2)) is None
