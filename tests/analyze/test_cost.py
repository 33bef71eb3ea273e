"""What hand-made runs take, and what is recommended: every number below can be checked in one's head."""

from __future__ import annotations

import itertools
import math

import pandas as pd
import pytest

from hpc_utils.analyze import cost, scaling
from hpc_utils.analyze.recommend import by_machine, describe, of_each, recommend, slug
from hpc_utils.launch.cluster import NodeType
from hpc_utils.records import schema

from .runs import run, study

SHARED = NodeType(partition="p", gpus=4, gpu="a100", precisions=["fp32"], price=8.0, unit="GPU-hours")
WHOLE = SHARED.model_copy(update={"exclusive": True})
PRICES = {"h": SHARED}


def records(*kinds: dict, epochs: int = 2, accuracy=lambda repeat, epoch: None, repeats: int = 1, **rows):
    """(runs, epochs): each of `kinds` (arguments of `run`) so often, its time spread over equal epochs."""
    all_runs, all_epochs = [], []
    for kind, repeat in itertools.product(kinds, range(1, repeats + 1)):
        given, name = dict(kind), f"run{len(all_runs)}"
        world, seconds = given.pop("world"), given.pop("seconds") * (1 + 0.01 * (repeat - 1))
        layout = {
            "nodes": -(-world // 4),
            "ranks_per_node": min(world, 4),
            "parallel": "ddp" if world > 1 else "none",
        }
        more = {"setup_seconds": 100.0, "warmup_seconds": 20.0, "run_id": name, "repeat": repeat}
        all_runs.append(run(world, seconds, **layout | more | given))
        epoch = {"run_id": name, "samples": all_runs[-1]["samples"] / epochs, "seconds": seconds / epochs}
        epoch |= {"eval_seconds": 30.0, "energy_joules": 1.8e6} | rows
        blank = dict.fromkeys(schema.names(schema.EPOCHS))
        all_epochs += [
            blank | epoch | {"epoch": n, "test_accuracy": accuracy(repeat, n)} for n in range(1, epochs + 1)
        ]
    return pd.DataFrame(all_runs), pd.DataFrame(all_epochs)


def test_a_run_is_billed_for_all_its_time_and_its_share_of_a_node() -> None:
    runs, epochs = records({"world": 2, "seconds": 3420.0})
    row = cost.per_run(runs, epochs, PRICES).iloc[0]
    assert (row.seconds, row.wall_seconds) == (3420, 3600), "100 s set-up, 20 s warm-up, twice 30 s of evaluation"
    assert (row.device_hours, row.node_hours, row.cost, row.unit) == (2, 1, 4, "GPU-hours"), "half of a node for 8"
    assert row.energy_kwh == 1
    assert cost.per_run(runs, epochs, {"h": WHOLE}).cost[0] == 8


def test_all_that_a_set_took() -> None:
    kinds = {"world": 2, "seconds": 3420.0, "threads_per_rank": 8}, {"world": 1, "seconds": 3420.0, "device": "cuda"}
    rehearsed = {"world": 8, "seconds": 3420.0, "threads_per_rank": 0.25, "hardware_id": "rehearsal-cpu-0"}
    runs, epochs = records(*kinds, rehearsed)
    assert cost.per_run(runs, epochs, {}).core_hours.tolist() == pytest.approx([16, math.nan, 2], nan_ok=True)
    epochs.loc[4:, "energy_joules"] = None
    found = cost.total(runs, epochs)
    assert (found.runs, found.hours, found.device_hours, found.core_hours, found.gpu_hours) == (3, 3, 11, 18, 1)
    assert (found.energy_kwh, found.counted) == (2, 2)
    assert [note.split(" ")[0] for note in found.notes] == ["Nodes", "Energy"] and "in 2 of 3 runs" in found.notes[1]
    one = cost.total(runs[:1], epochs)
    assert (one.runs, one.core_hours, one.energy_kwh, one.notes) == (1, 16, 1, ()), "only its own epochs"
    assert cost.total(runs[:0], epochs)[:5] == (0, 0, 0, 0, 0)


def test_what_is_not_known_is_absent_and_not_zero() -> None:
    runs, epochs = records({"world": 1, "seconds": 10.0})
    epochs.loc[0, "energy_joules"] = None
    row = cost.per_run(runs, epochs, {}).iloc[0]
    assert math.isnan(row.cost) and row.unit == "" and math.isnan(row.energy_kwh) and row.device_hours > 0
    nothing = epochs.assign(energy_joules=pd.Series([None, None], dtype=object))
    assert math.isnan(cost.total(runs, nothing).energy_kwh)


def test_a_profiled_run_is_no_configuration_to_use() -> None:
    runs, epochs = records({"world": 1, "seconds": 1000.0}, {"world": 1, "seconds": 900.0, "profile": "torch"})
    assert cost.to_finish(runs, epochs, PRICES).seconds.tolist() == [1000]
    assert len(cost.to_accuracy(runs, epochs, 0.1, PRICES)) == 1
    speed = scaling.throughput(runs)
    assert speed.throughput.tolist() == [runs.throughput[0]], "nor a bar among the others"


def test_equal_work_is_compared_at_the_measured_rate_and_the_start_is_paid_once() -> None:
    runs, epochs = records(
        {"world": 1, "seconds": 1000.0}, {"world": 1, "seconds": 1000.0, "hardware_id": "other"},
        {"world": 2, "seconds": 1000.0, "batch": 1024},
    )  # fmt: skip
    table = cost.to_finish(runs, epochs, PRICES).set_index(["hardware_id", "world_size"])
    two = table.loc["h", 2]
    assert (two.seconds, two.wall_seconds, two.epochs) == (500, 120 + 500 + 30, 1)
    assert two.device_hours == pytest.approx(2 * 650 / 3600)
    assert (two.efficiency, table.loc["h", 1].efficiency) == (1, 1)
    assert table.loc["other", 1].unit == "" and cost.currency(table) == ("device_hours", "device-hours")
    assert cost.currency(table.loc[["h"]]) == ("cost", "GPU-hours")
    assert math.isnan(two.seconds_low), "a single run has no interval"


def test_energy_and_time_to_a_target_end_with_the_epoch_that_reaches_it() -> None:
    runs, epochs = records(
        {"world": 1, "seconds": 1000.0}, epochs=4, repeats=3, accuracy=lambda repeat, epoch: [0.5, None, 0.9, 0.7][epoch - 1]
    )  # fmt: skip
    row = cost.to_accuracy(runs, epochs, 0.9, PRICES).iloc[0]
    assert (row.epochs, row.reached, row.repeats) == (3, 3, 3)
    assert row.seconds == pytest.approx(757.5) and row.seconds_low < 757.5 < row.seconds_high
    assert row.wall_seconds == pytest.approx(120 + 757.5 + 90)
    assert row.energy_kwh == pytest.approx(1.5)
    assert row.cost == pytest.approx(2 * row.wall_seconds / 3600)
    assert row.cost_low / row.cost == pytest.approx(row.wall_seconds_low / row.wall_seconds)


@pytest.mark.parametrize(
    ("target", "reached", "seconds"),
    [(0.81, 3, 505.0), (0.83, 2, 510.0), (0.85, 1, math.nan), (0.9, 0, math.nan)],  # in repeats of 500, 505 and 510 s
)
def test_repeats_that_never_get_there_are_counted_as_longer(target: float, reached: int, seconds: float) -> None:
    runs, epochs = records(
        {"world": 1, "seconds": 1000.0}, repeats=3, accuracy=lambda repeat, epoch: 0.8 + repeat / 50
    )
    row = cost.to_accuracy(runs, epochs, target, PRICES).iloc[0]
    assert (row.reached, row.repeats) == (reached, 3)
    assert row.seconds == pytest.approx(seconds, nan_ok=True) and math.isnan(row.cost) == math.isnan(seconds)
    assert math.isnan(row.seconds_low) == (reached < 3)


def ladder(**prices) -> pd.DataFrame:
    """1, 2, 4, 8 and 12 devices: 10000, 5200, 2900, 2000 and 1950 s of training, three repeats within 2 %."""
    times = {1: 10000.0, 2: 5200.0, 4: 2900.0, 8: 2000.0, 12: 1950.0}
    kinds = [{"world": world, "seconds": seconds, "batch": 768} for world, seconds in times.items()]
    return cost.to_finish(*records(*kinds, repeats=3), prices or PRICES)


def test_the_frontier_holds_what_nothing_beats_in_both() -> None:
    whole = ladder(h=WHOLE)
    table = cost.pareto(pd.concat([whole, whole[whole.world_size == 8]]), "cost")
    assert table.world_size.tolist() == [12, 8, 8, 4, 2, 1]
    assert table.pareto.tolist() == [True, True, True, True, False, False], "whole nodes: one device pays for four"
    assert cost.pareto(ladder(), "cost").pareto.all(), "shared ones: fewer devices always cost less"


def test_each_purpose_has_its_configuration_and_its_reason(monkeypatch) -> None:
    monkeypatch.setattr("hpc_utils.analyze.recommend.MINUTES", 30)
    table = ladder(h=WHOLE)
    found = recommend(table).set_index("purpose")
    assert found.world_size.to_dict() == {"development": 4, "production": 4, "fastest": 8, "cheapest": 4}
    assert "within 30 min" in found.reason["development"]
    assert "70% efficiency" in found.reason["production"] and "86% efficient" in found.reason["production"]
    assert "the intervals of 2 configurations overlap" in found.caveat["fastest"], "1950 against 2000 s"
    assert found.caveat["cheapest"] == "" and "GPU-hours" in found.reason["cheapest"]
    monkeypatch.setattr("hpc_utils.analyze.recommend.MINUTES", 1)
    assert recommend(table).reason[0].startswith("no epoch trains faster: 3")


def test_each_machine_and_workload_has_its_own_advice() -> None:
    own = ladder(h=WHOLE)
    limited = own.assign(link_gbit=1.0)
    table = pd.concat(
        [own, own.assign(hardware_id="g"), own.head(1).assign(workload="vit"), limited], ignore_index=True
    )
    each = by_machine(table)
    assert list(each) == ["cnn on digits, g", "cnn on digits, h"], "one configuration is no choice"
    assert list(by_machine(own.assign(dataset=None, workload="my-loop"))) == ["my-loop"], (
        "a user's loop has no data set"
    )
    assert list(by_machine(own)) == ["cnn on digits"] and slug("cnn on digits, h") == "cnn-on-digits-h"
    found = of_each(each)
    assert found.which.value_counts().to_dict() == dict.fromkeys(each, 4) and of_each({}).empty
    first = found.iloc[0]
    assert first.configuration == describe(first) and len(first.runs) == len(set(first.runs)) == 15


def test_without_a_price_device_hours_decide_and_single_runs_are_reported() -> None:
    runs, epochs = records({"world": 1, "seconds": 1000.0}, {"world": 2, "seconds": 700.0})
    found = recommend(cost.to_finish(runs, epochs, {})).set_index("purpose")
    assert found.world_size["cheapest"] == 1 and "device-hours" in found.reason["cheapest"]
    assert all("a single run" in caveat for caveat in found.caveat)
    epochs["test_accuracy"] = [0.5, 0.9, 0.5, 0.6]
    found = recommend(cost.to_accuracy(runs, epochs, 0.9, PRICES))
    assert set(found.world_size) == {1} and all("1 of 2 configurations" in caveat for caveat in found.caveat)
    assert "GPU-hours" in found.reason[3], "a configuration without a time does not decide what is compared"
    with pytest.raises(ValueError, match="nothing to recommend"):
        recommend(cost.to_accuracy(runs, epochs, 0.95, PRICES))


def test_limited_links_are_measured_against_one_device_which_needs_none() -> None:
    runs, epochs = records({"world": 1, "seconds": 100.0}, {"world": 2, "seconds": 60.0, "link_gbit": 1.0},
                           {"world": 2, "seconds": 80.0, "link_gbit": 0.3})  # fmt: skip
    table = cost.to_finish(runs, epochs, PRICES).set_index("link_gbit")
    assert table.efficiency[1.0] == pytest.approx(100 / 120) and table.efficiency[0.3] == pytest.approx(100 / 160)
    assert table.efficiency[table.world_size == 1].tolist() == [1.0]


def test_further_devices_are_good_value_as_long_as_each_adds_enough() -> None:
    curves = scaling.headline(scaling.efficiency(study(strong={"1x2": 0.9, "1x4": 0.85, "1x8": 0.5})))
    table = cost.benefit(curves, {"h": SHARED}, 0.7).set_index("world_size")
    assert table.verdict.to_dict() == {1: "", 2: "good value", 4: "good value", 8: "diminishing returns"}
    assert table.added.loc[2:].tolist() == pytest.approx([0.8, 0.8, 0.15]), "(4 - 3.4) / 4 of the last four"
    assert table.dearer.tolist() == pytest.approx([1, 1 / 0.9, 1 / 0.85, 2])
    assert (table.dearer_low < table.dearer).loc[2:].all()
    assert table.device_hours[1] == pytest.approx(1e6 * 8 / 7680 / 3600)
    assert table.cost.tolist() == pytest.approx((2 * table.device_hours).tolist()), "8 for a node of 4 devices"
    single = scaling.headline(scaling.efficiency(study(strong={"1x2": 0.9}).query("repeat == 1")))
    assert cost.benefit(single, {}, 0.7).verdict.tolist() == ["", "undecided"]
