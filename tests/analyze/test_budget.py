"""Predictions from hand-made runs: on which basis, between which ends, and how they add up."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze import budget, stats
from hpc_utils.analyze.model.fit import Answer
from hpc_utils.analyze.profiles.peaks import Peak
from hpc_utils.records import schema

from .test_cost import SHARED, records

PRICES = {"h": SHARED}
START, START_LOW, START_HIGH = budget.START
NOTHING = (
    pd.DataFrame(columns=schema.names(schema.RUNS)),
    pd.DataFrame(columns=["run_id", *schema.names(schema.EPOCHS)]),
)
LIMIT = 3600.0


def point(world: int = 1, repeat: int = 1, series: str = "strong", **other) -> dict:
    """As `records` makes runs: 10 steps of 512 samples in all; two epochs."""
    values = {
        "series": series, "repeat": repeat, "hardware_id": "h", "workload": "cnn", "dataset": "digits",
        "precision": "fp32", "settings": None, "parallel": "ddp" if world > 1 else "none", "world_size": world,
        "nodes": -(-world // 4), "ranks_per_node": min(world, 4), "global_batch": 512,
        "batch_per_device": 512 // world, "test_samples": 0, "steps": 5, "epochs": 2,
        "evaluations": 0, "warmup_steps": 0, "link_gbit": None, "cores_per_rank": 0.0,
    } | other  # fmt: skip
    return {"run_id": "-".join(map(str, values.values()))} | values


def predicted(*points: dict, known=NOTHING, limit: float = LIMIT, **how) -> pd.DataFrame:
    return budget.estimate(points, *known, limit=limit, **how)


def ends(row: pd.Series) -> list[float]:
    return [row.seconds - row.start, row.seconds_low - row.start_low, row.seconds_high - row.start_high]


def test_complete_runs_of_the_same_configuration_are_the_best_basis() -> None:
    known = records({"world": 2, "seconds": 1000.0}, repeats=3)
    row = predicted(point(2), known=known, predict=lambda _: Answer(stats.Estimate(1, 1, 1, 1), "")).iloc[0]
    assert (row.basis, row.note) == ("measured", "runs: 3")
    value, low, high = ends(row)
    assert value == pytest.approx(1010 + 120 + 60) and low < value < high < 1300
    single = predicted(point(2), known=records({"world": 2, "seconds": 1000.0})).iloc[0]
    assert ends(single) == [1180] * 3
    own = {"workload": "my_study:mlp", "dataset": ""}  # a workload with its own data set
    assert predicted(point(2, **own), known=(known[0].assign(**own), known[1])).basis[0] == "measured"


@pytest.mark.parametrize("other", [{"precision": "bf16"}, {"settings": "x"}, {"hardware_id": "elsewhere"}])
def test_runs_of_something_else_predict_nothing(other: dict) -> None:
    row = predicted(point(2, **other), known=records({"world": 2, "seconds": 9.0})).iloc[0]
    assert (row.seconds, row.seconds_low, row.seconds_high, row.basis) == (LIMIT, 0, LIMIT, "time limit")


def test_each_rate_of_the_links_is_a_configuration_and_one_rank_has_none() -> None:
    known = records(
        {"world": 1, "seconds": 9.0, "link_gbit": 1.0}, {"world": 2, "seconds": 1000.0, "link_gbit": 1},
        {"world": 2, "seconds": 3000.0, "link_gbit": 0.1}, {"world": 2, "seconds": 500.0},
    )  # fmt: skip
    rates = (1.0, 0.1, None)
    found = predicted(point(1), *(point(2, link_gbit=rate) for rate in rates), known=known)
    assert found.basis.tolist() == ["measured"] * 4
    assert found.source.nunique() == 4
    assert [ends(row)[0] - 180 for _, row in found.iterrows()] == pytest.approx([9, 1000, 3000, 500])
    near = predicted(*(point(4, link_gbit=rate) for rate in (0.1, 5.0)), known=known)
    assert near.note.tolist() == ["runs: 1, on 1 x 2 devices", "runs: 1, on 1 x 1 devices"], "none of two at 5 Gbit/s"


@pytest.mark.parametrize(
    ("planned", "least", "most"),
    [
        (point(8), 265, 1060),
        (point(1), 1060, 2120),
        (point(8, global_batch=2048, batch_per_device=256, steps=5), 1060, 4240),  # weak: four times the work
        (point(2, nodes=2, ranks_per_node=1), 1060, 1590),  # as many devices on other nodes
    ],
)
def test_another_number_of_devices_bounds_between_perfect_scaling_and_none(planned: dict, least, most) -> None:
    known = records({"world": 2, "seconds": 1000.0})  # 1060 s with evaluation, and 120 s of set-up
    row = predicted(planned, known=known).iloc[0]
    assert row.basis == "scaled" and ends(row)[1:] == pytest.approx([120 + least, 120 + most])
    farther = records({"world": 2, "seconds": 1000.0}, {"world": 16, "seconds": 9999.0})
    assert ends(predicted(planned, known=farther).iloc[0]) == ends(row) or planned["world_size"] == 8


def test_a_model_predicts_what_has_not_run() -> None:
    def predict(one: dict) -> Answer | None:
        return Answer(stats.Estimate(2.0, 1.0, 4.0, 3), "extrapolation: 4 ranks") if one["world_size"] < 8 else None

    found = predicted(point(2, warmup_steps=5), point(8), predict=predict)
    assert found.basis.tolist() == ["model", "time limit"]
    expected = [side + setup for side, setup in zip((30, 15, 60), budget.SETUP, strict=True)]
    assert ends(found.iloc[0]) == pytest.approx(expected)


def test_what_was_measured_elsewhere_is_for_one_device() -> None:
    one, four = (predicted(point(world), throughput=25.6).iloc[0] for world in (1, 4))
    setup, setup_low, setup_high = budget.SETUP
    assert one.basis == "stated"
    assert ends(one) == pytest.approx([200 + setup, 200 + setup_low, 200 + setup_high]), "two epochs"
    assert ends(four) == pytest.approx([100 + setup, 50 + setup_low, 200 + setup_high])
    evaluated = predicted(point(1, evaluations=2, test_samples=256), throughput=25.6).iloc[0]
    assert evaluated.seconds - one.seconds == pytest.approx(2 * 10 / 3), "a tenth of the samples, forward alone"


@pytest.mark.parametrize(("workload", "steps"), [("mine.py", 10), ("mine:mlp", 5)])
def test_the_steps_of_own_data_are_those_of_runs_elsewhere(workload: str, steps: int) -> None:
    runs, epochs = records({"world": 2, "seconds": 9.0, "hardware_id": "laptop"}, repeats=2)
    runs = runs.assign(workload=workload, samples=5120, epochs=2)
    unlike = {"workload": workload, "steps": None} | {"settings": 'workload_args={"width": 8}'}
    planned = [point(4, workload=workload, settings='device="cuda"', steps=None), point(4, **unlike)]
    counted = budget.with_steps(planned, runs)
    assert [entry["steps"] for entry in counted] == [steps, None]
    estimates = predicted(*counted, known=(runs, epochs), throughput=512)
    assert estimates.basis.tolist() == ["stated", "time limit"]
    training = 10 * 512 / 512 / 2  # s, for four devices: between a fourth of one device's time and all of it
    assert ends(estimates.iloc[0])[0] == pytest.approx(training + budget.SETUP[0])


def test_repeats_err_together_and_different_measurements_do_not() -> None:
    known = records({"world": 1, "seconds": 1000.0}, {"world": 2, "seconds": 1000.0}, repeats=3)
    points = [point(world, repeat) for world in (1, 2) for repeat in (1, 2, 3)]
    found = predicted(*points, known=known)
    table, total = budget.budget_table(found, PRICES), budget.total(found, PRICES)
    width = ends(found.iloc[0])[2] - ends(found.iloc[0])[0]
    start = START_HIGH - START
    assert table.node_hours_high[0] - table.node_hours[0] == pytest.approx(math.hypot(3 * width, 3 * start) / 3600)
    whole = total["node_hours_high"] - total["node_hours"]
    assert whole == pytest.approx(math.sqrt((3 * width) ** 2 * 2 + (6 * start) ** 2) / 3600)
    assert total["device_hours"] == pytest.approx(found.seconds.mul([3, 6]).sum() / 3600)
    assert (total["unit"], total["cost"]) == ("GPU-hours", pytest.approx(2 * total["device_hours"]))
    limits = budget.total(predicted(point(1), point(2), point(8)), PRICES)
    ends_of_limits = (limits["node_hours_low"], limits["node_hours"], limits["node_hours_high"])
    assert ends_of_limits == (0, 4, 4), "they add up in full"


def test_a_row_holds_a_series_and_layout_and_a_shared_run_counts_once() -> None:
    shared = point(1, series="strong") | {"run_id": "same"}
    again = point(1, series="weak") | {"run_id": "same"}
    found = predicted(shared, again, point(1, precision="bf16"), point(2, series="weak"), throughput=25.6)
    table = budget.budget_table(found, {})
    assert table[["series", "ranks_per_node", "configurations", "runs"]].values.tolist() == [
        ["strong", 1, 2, 2], ["weak", 2, 1, 1],
    ]  # fmt: skip
    assert table.cost.isna().all() and table.unit.tolist() == ["", ""]


# -- the peak rate

PEAK = Peak("X1", "x1", {"fp32": 1e12, "bf16": 1e13}, 1e12, "a document")


def test_operations_over_the_peak_rate_predict_unmeasured_runs() -> None:
    runs, epochs = records({"world": 2, "seconds": 1000.0})
    known = runs.assign(flops_per_sample=1e9, hardware_id="elsewhere")
    roughly = budget.from_peak_rate(known, PEAK)
    fastest = 1e9 * 128 / 1e12  # s a step of 128 samples on each of 4 devices, at the peak rate
    step = roughly(point(4)).seconds
    assert (step.value, step.high, step.low) == pytest.approx(tuple(fastest / share for share in budget.ATTAINED))
    assert roughly(point(4, precision="bf16")).seconds.value == pytest.approx(step.value / 10)
    found = budget.estimate([point(4), point(4, precision="tf32")], known, epochs, limit=LIMIT, roughly=roughly)
    assert found.basis.tolist() == ["operations", "time limit"], "X1 has no tf32"
    expected = 10 * step.value + budget.SETUP[0] + budget.START[0]
    assert found.seconds[0] == pytest.approx(expected)
    how = {"limit": LIMIT, "roughly": roughly}
    assert budget.estimate([point(4)], known.assign(hardware_id="h"), epochs, **how).basis[0] == "scaled"


def test_counts_that_contradict_each_other_are_no_count() -> None:
    runs, _ = records({"world": 1, "seconds": 9.0}, {"world": 2, "seconds": 9.0})
    for counts, known in (([1e9, 2e9], False), ([1e9, None], True), ([None, None], False)):
        predict = budget.from_peak_rate(runs.assign(flops_per_sample=counts), PEAK)
        assert (predict(point(2)) is not None) == known
