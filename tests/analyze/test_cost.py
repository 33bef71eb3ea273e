"""What hand-made runs take, and what is recommended: every number below can be checked in one's head."""

from __future__ import annotations

import itertools
import math

import pandas as pd
import pytest

from hpc_utils.analyze import cost, scaling
from hpc_utils.analyze.recommend import by_machine, describe, of_each, recommend, slug
from hpc_utils.analyze.scaling import GAIN
from hpc_utils.launch.cluster import NodeType
from hpc_utils.records import schema

from .runs import run, study

SHARED = NodeType(partition="p", gpus=4, gpu="a100", precisions=["fp32"], price=8.0, unit="GPU-hours")
WHOLE = SHARED.model_copy(update={"exclusive": True})
PRICES = {"h": SHARED}


def records(*kinds: dict, epochs: int = 2, repeats: int = 1, **rows):
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
        all_epochs += [blank | epoch | {"epoch": n} for n in range(1, epochs + 1)]
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
    assert (found["wall_seconds"], found["device_hours"], found["core_hours"]) == (3 * 3600, 11, 18)
    assert (found["energy_kwh"], found["energy_counted"]) == (2, 2)
    one = cost.total(runs[:1], epochs)
    assert (one["core_hours"], one["energy_kwh"]) == (16, 1), "only its own epochs"
    nothing = cost.total(runs[:0], epochs)
    assert math.isnan(nothing.pop("energy_kwh")) and set(nothing.values()) == {0}


def test_what_is_not_known_is_absent_and_not_zero() -> None:
    runs, epochs = records({"world": 1, "seconds": 10.0})
    epochs.loc[0, "energy_joules"] = None
    row = cost.per_run(runs, epochs, {}).iloc[0]
    assert math.isnan(row.cost) and row.unit == "" and math.isnan(row.energy_kwh) and row.device_hours > 0
    nothing = epochs.assign(energy_joules=pd.Series([None, None], dtype=object))
    assert math.isnan(cost.total(runs, nothing)["energy_kwh"])


def test_energy_rests_on_all_repeats_of_a_configuration() -> None:
    runs, epochs = records({"world": 1, "seconds": 10.0}, {"world": 2, "seconds": 10.0}, repeats=3)
    epochs.loc[0, "energy_joules"] = None
    table = cost.to_finish(runs, epochs, PRICES).set_index("world_size")
    assert table.repeats.tolist() == [3, 3] and table.seconds_low.notna().all()
    assert table.filter(like="energy_kwh").isna().all(axis=1).to_dict() == {1: True, 2: False}


def test_a_profiled_run_is_no_configuration_to_use() -> None:
    runs, epochs = records({"world": 1, "seconds": 1000.0}, {"world": 1, "seconds": 900.0, "profile": "torch"})
    assert cost.to_finish(runs, epochs, PRICES).seconds.tolist() == [1000]
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
    assert table.loc["other", 1].unit == "" and cost.currency(table) == ("device_hours", "device-hours")
    assert cost.currency(table.loc[["h"]]) == ("cost", "GPU-hours")
    assert math.isnan(two.seconds_low), "a single run has no interval"
    assert "efficiency" not in table, (
        "two devices alone would be 100 % efficient: `scaling.efficiency` has one against one device"
    )


TIMES = {1: 10000.0, 2: 5200.0, 4: 2900.0, 8: 2000.0, 12: 1990.0}


def ladder_records(times: dict[int, float] = TIMES):
    """Three repeats within 2 %."""
    return records(
        *({"world": world, "seconds": seconds, "batch": 768} for world, seconds in times.items()), repeats=3
    )


def ladder(**prices) -> pd.DataFrame:
    """1, 2, 4, 8 and 12 devices: 10000, 5200, 2900, 2000 and 1990 s of training."""
    return cost.to_finish(*ladder_records(), prices or PRICES)


def test_the_frontier_holds_what_nothing_beats_in_both() -> None:
    whole = ladder(h=WHOLE)
    table = cost.pareto(pd.concat([whole, whole[whole.world_size == 8]]), "cost")
    assert table.world_size.tolist() == [12, 8, 8, 4, 2, 1]
    assert table.pareto.tolist() == [True, True, True, True, False, False], "whole nodes: one device pays for four"
    assert cost.pareto(ladder(), "cost").pareto.all(), "shared ones: fewer devices always cost less"


def test_each_purpose_has_its_configuration_its_verdict_and_its_reason(monkeypatch) -> None:
    monkeypatch.setattr("hpc_utils.analyze.recommend.MINUTES", 30)
    table = ladder(h=WHOLE)
    runs, _ = ladder_records()
    advice = recommend(table, runs).set_index("purpose")
    chosen = {"development": 4, "production": 8, "fastest": 12, "cheapest": 4, "simplest": 8}
    assert advice.world_size.to_dict() == chosen
    assert "within 30 min" in advice.reason["development"]
    assert "1.43 times the least cost" in advice.reason["production"], "two nodes for 2000 s: 1.38 times"
    assert "GPU-hours" in advice.reason["cheapest"]
    for purpose in ("fastest", "simplest"):
        row = advice.loc[purpose]
        assert row.verdict == "undecided" and row.ratio_low < 1 < row.ratio_high, "1990 against 2000 s"
        assert row.ratio == pytest.approx(2000 / 1990)
    assert advice.verdict["cheapest"] == "decided"
    assert advice.ratio["cheapest"] == pytest.approx(2 * 2000 / 2900), "two nodes for 2000 s, against one for 2900 s"
    assert advice.ratio_low["cheapest"] > 1
    monkeypatch.setattr("hpc_utils.analyze.recommend.MINUTES", 1)
    assert recommend(table, runs).reason[0].startswith("no epoch trains faster: 1")


def test_production_is_frugal_whatever_the_precision() -> None:
    """Four devices are 86 % efficient in fp32 and 67 % in bf16, where they take half the time."""
    speeds = {"fp32": {1: 10000.0, 4: 2900.0}, "bf16": {1: 4000.0, 4: 1500.0}}
    runs, epochs = records(
        *(
            {"world": world, "seconds": seconds, "batch": 768, "precision": precision}
            for precision, times in speeds.items()
            for world, seconds in times.items()
        ),
        repeats=3,
    )
    production = recommend(cost.to_finish(runs, epochs, PRICES), runs).set_index("purpose").loc["production"]
    assert (production.world_size, production.precision) == (1, "bf16")


def test_the_fastest_is_that_of_the_speed_up_and_no_start_of_uneven_length_hides_it() -> None:
    """Wall times overlap, because set-up takes from 10 to 900 s; the speed-up does not."""
    runs, epochs = ladder_records({1: 1000.0, 2: 562.0})
    runs = runs.assign(setup_seconds=[10.0, 900.0, 400.0, 900.0, 10.0, 400.0])
    table = cost.to_finish(runs, epochs, {})
    assert table.wall_seconds_low.max() < table.wall_seconds_high.min()
    two = scaling.efficiency(runs).set_index("world_size").loc[2]
    assert two.speedup_low > 1
    advice = recommend(table, runs).set_index("purpose")
    for purpose in ("fastest", "simplest"):
        row = advice.loc[purpose]
        assert (row.world_size, row.verdict) == (2, "decided")
        assert [row.ratio, row.ratio_low, row.ratio_high] == pytest.approx(two[GAIN[:3]].tolist())
    assert advice.world_size["cheapest"] == 1


def test_turns_decide_what_separate_medians_do_not() -> None:
    """A machine whose speed varies by a third from run to run, while two devices are 10 % faster in every round."""
    runs, epochs = ladder_records({1: 1000.0, 2: 1000.0 / 1.1})
    drift = [1.0, 1.3, 0.8] * 2
    runs = runs.assign(seconds=runs.seconds * drift, throughput=runs.throughput / drift)
    epochs["seconds"] = epochs.run_id.map(runs.set_index("run_id").seconds) / 2
    alone = recommend(cost.to_finish(runs, epochs, {}), runs).set_index("purpose")
    assert alone.verdict["fastest"] == "undecided" and alone.world_size["simplest"] == 1
    blocks = [{(f"session {row.repeat}", turn): 1 + 0.01 * (-1) ** (turn * row.world_size) for turn in range(20)}
              for row in runs.itertuples()]  # fmt: skip
    runs = runs.assign(blocks=blocks)
    together = recommend(cost.to_finish(runs, epochs, {}), runs).set_index("purpose")
    assert together.verdict["fastest"] == "decided" and together.world_size["simplest"] == 2
    assert together.ratio["fastest"] == pytest.approx(1.1, rel=0.01)


def test_each_machine_and_workload_has_its_own_advice() -> None:
    own = ladder(h=WHOLE)
    runs, _ = ladder_records()
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
    found = of_each(each, runs)
    assert found.which.value_counts().to_dict() == dict.fromkeys(each, 5) and of_each({}, runs).empty
    first = found.iloc[0]
    assert first.configuration == describe(first) and len(first.runs) == len(set(first.runs)) == 15


def test_without_a_price_device_hours_decide_and_single_runs_are_reported() -> None:
    runs, epochs = records({"world": 1, "seconds": 1000.0}, {"world": 2, "seconds": 700.0})
    found = recommend(cost.to_finish(runs, epochs, {}), runs).set_index("purpose")
    assert found.world_size["cheapest"] == 1 and "device-hours" in found.reason["cheapest"]
    assert found.world_size["fastest"] == 2 and found.verdict["fastest"] == "undecided"
    assert found.world_size["simplest"] == 2, "one device was slower, though no interval says so"
    assert found.verdict["development"] == "the only one" and math.isnan(found.ratio["development"])
    assert all("a single run" in caveat for caveat in found.caveat)


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
