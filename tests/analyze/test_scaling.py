"""Scaling from hand-made runs whose efficiency is known."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze import points, scaling

from .runs import MIB, run, study


def point(table: pd.DataFrame, **wanted) -> pd.Series:
    for name, value in wanted.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_strong_scaling_is_time_of_one_over_n_times_time_of_n() -> None:
    runs = pd.DataFrame([run(1, 8.0, parallel="none"), run(1, 8.8), run(2, 5.0), run(4, 4.0)])
    table = scaling.efficiency(runs)
    assert set(table.kind) == {"strong"}
    four = point(table, baseline="none", world_size=4)
    assert (four.speedup, four.efficiency) == pytest.approx((2.0, 0.5))
    assert point(table, baseline="ddp", world_size=2).efficiency == pytest.approx(8.8 / 10)
    assert point(table, baseline="none", world_size=1).efficiency == 1
    assert math.isnan(four.efficiency_low), "single runs have no interval"


def test_curves_without_a_run_on_one_rank_have_no_efficiency() -> None:
    assert scaling.efficiency(pd.DataFrame([run(2, 5.0), run(4, 4.0)])).empty


def test_weak_scaling_compares_steps_not_epochs() -> None:
    runs = pd.DataFrame([run(1, 10.0, parallel="none"), run(2, 12.5, batch=1024), run(4, 20.0, batch=2048)])
    table = scaling.efficiency(runs)
    assert set(table.kind) == {"weak"}
    four = point(table, world_size=4)
    assert (four.speedup, four.efficiency) == pytest.approx((2.0, 0.5))


def test_whole_epochs_of_a_fixed_batch_per_device_are_compared_by_their_steps() -> None:
    whole = [run(1, 10.0, parallel="none", steps=None), run(2, 6.25, batch=1024, steps=None, samples=51_200)]
    table = scaling.efficiency(pd.DataFrame(whole))
    assert set(table.kind) == {"weak"} and table.steps_per_epoch.isna().all()
    assert point(table, world_size=2).efficiency == pytest.approx(0.8)  # 100 steps of 0.1 s, 50 of 0.125 s
    longer = run(2, 10.0) | {"samples": 2 * 512 * 10}  # twice the epochs
    table = scaling.efficiency(pd.DataFrame([run(1, 8.0, parallel="none"), longer]))
    assert point(table, world_size=2).efficiency == pytest.approx(0.8)


def test_the_outcome_is_each_curve_at_its_largest_rank_count() -> None:
    runs = study(strong={"1x2": 0.9, "1x4": 0.7, "2x2": 0.8}, weak={"1x2": 0.95}, test_accuracy=0.9)
    strong, weak = scaling.outcome(runs, runs[["run_id", "test_accuracy"]].assign(epoch=1)).itertuples()
    assert (strong.kind, strong.layout, strong.baseline, strong.learned) == ("strong", "2x2", "none", 0.9)
    assert (weak.kind, weak.layout) == ("weak", "1x2")
    assert (strong.efficiency, weak.efficiency) == pytest.approx((0.8, 0.95))
    one = pd.DataFrame([run(1, 8.0), run(1, 4.0, batch=1024), run(1, 5.0, precision="bf16")])
    alone = scaling.outcome(one, one[["run_id", "test_accuracy"]].assign(epoch=1))
    assert list(zip(alone.kind, alone.precision, alone.batch, strict=True)) == [("", "fp32", 1024), ("", "bf16", 512)]
    assert alone.efficiency.isna().all()


def test_the_comparison_has_every_configuration_with_its_speed_up_and_accuracy() -> None:
    runs = study(strong={"1x2": 0.9}, test_accuracy=0.9)
    other = pd.DataFrame([run(1, 8.0, batch=64, profile="torch"), run(1, 8.0, batch=96)])
    runs = pd.concat([runs, other], ignore_index=True)
    found = scaling.comparison(runs, runs[["run_id", "test_accuracy"]].assign(epoch=1))
    speedups = dict(
        zip(zip(found.global_batch, found.world_size, found.parallel, strict=True), found.speedup, strict=True)
    )
    assert speedups[768, 2, "ddp"] == pytest.approx(1.8) and speedups[768, 1, "none"] == 1
    assert speedups[96, 1, "ddp"] > 0 and (64, 1, "ddp") not in speedups
    assert found.learned[found.global_batch == 768].tolist() == pytest.approx([0.9] * 3)


def test_all_speed_ups_of_a_task_are_over_one_reference_the_stated_one_if_there_is_one() -> None:
    plain = run(1, 8.0, parallel="none")
    fast = run(1, 2.0, parallel="none", precision="fp16")
    runs = pd.DataFrame([plain, fast, run(2, 5.0), run(2, 1.0, shared=True, precision="fp16")])
    epochs = runs[["run_id"]].assign(epoch=1, test_loss=1.0)
    speedups = scaling.comparison(runs, epochs).set_index(["world_size", "precision"]).speedup
    assert speedups.drop((2, "fp16")).to_dict() == {(1, "fp32"): 1, (1, "fp16"): 4, (2, "fp32"): 1.6}
    assert math.isnan(speedups[2, "fp16"]), "of a shared machine"
    found = scaling.comparison(runs, epochs, fast["run_id"])
    assert found[found.is_reference].precision.tolist() == ["fp16"] and 0.25 in found.speedup.tolist()


def test_runs_on_data_that_grew_in_between_are_not_repeats_of_one_configuration() -> None:
    runs = study(strong={"1x2": 0.9}).assign(train_samples=1000)
    grown = runs.assign(train_samples=runs.train_samples + 500 * (runs.repeat == 3))
    found = scaling.efficiency(grown)
    assert len(found) == 2 * len(scaling.efficiency(runs))
    assert found.groupby("train_samples").repeats.max().to_dict() == {1000: 2, 1500: 1}


def test_another_model_has_a_reference_of_its_own() -> None:
    wide = {"parameters": 4000, "settings": 'workload_args={"width": 96}'}
    runs = pd.DataFrame([run(1, 8.0, parallel="none", parameters=1000), run(1, 16.0, parallel="none", **wide)])
    found = scaling.comparison(runs, runs[["run_id"]].assign(epoch=1, test_loss=1.0))
    assert found.speedup.tolist() == [1, 1] and found.is_reference.all()


def test_more_ranks_than_cores_stand_in_no_scaling_figure() -> None:
    runs = pd.DataFrame(
        [run(1, 8.0, parallel="none"), run(2, 5.0), run(4, 4.0, oversubscribed=True), run(8, 1.0, shared=True)]
    )
    assert set(scaling.efficiency(runs).world_size) == {1, 2}


@pytest.mark.parametrize(
    "other", [{"precision": "bf16"}, {"hardware_id": "g"}, {"threads_per_rank": 2}, {"workload": "w"}]
)
def test_what_differs_is_never_pooled(other: dict) -> None:
    runs = pd.DataFrame([run(1, 8.0, parallel="none"), run(2, 5.0, **other)])
    assert scaling.efficiency(runs).empty


def test_repeats_give_intervals_that_hold_the_value() -> None:
    alone = [run(1, 8.0 * factor, parallel="none") for factor in (0.98, 1.0, 1.02)]
    two = [run(2, 5.0 * factor) for factor in (0.97, 1.0, 1.03)]
    found = point(scaling.efficiency(pd.DataFrame(alone + two)), world_size=2)
    assert found.efficiency == pytest.approx(0.8)
    assert 0.7 < found.efficiency_low < 0.8 < found.efficiency_high < 0.9
    assert found.repeats == 3
    assert set(found.runs) == {row["run_id"] for row in two} and set(found.runs_base) == {
        row["run_id"] for row in alone
    }
    (sentence,) = scaling.sentences(scaling.efficiency(pd.DataFrame(alone + two)))
    assert "2 ranks" in sentence and "80%" in sentence and "1.60" in sentence


def test_what_a_precision_gains_is_a_ratio_with_an_interval_on_one_process() -> None:
    runs = [run(1, seconds, parallel="none") for seconds in (8.0, 8.2, 7.9)]
    runs += [run(1, seconds, parallel="none", precision="bf16") for seconds in (4.0, 4.1, 3.9)]
    runs += [run(2, 1.0, precision="bf16"), run(2, 2.0)]  # on two ranks, communication is in it
    runs += [run(1, 1.0, parallel="none", precision="bf16", batch=64)]  # nothing to compare it with
    table = scaling.precision_gain(pd.DataFrame(runs))
    assert len(table) == 1
    gain = table.iloc[0]
    assert (gain.precision, gain.global_batch, gain.gain, gain.repeats) == ("bf16", 512, pytest.approx(2.0), 3)
    assert 1.8 < gain.gain_low < 2 < gain.gain_high < 2.2
    (sentence,) = scaling.precision_sentences(table)
    assert "2.00" in sentence and f"{gain.gain_low:.2f} to {gain.gain_high:.2f}" in sentence
    both = pd.concat([table.assign(settings=f"seed={number}") for number in (1, 2)])
    assert ["seed=1" in line for line in scaling.precision_sentences(both)] == [True, False]


def test_curves_of_other_devices_have_names_of_their_own() -> None:
    halves = [study(weak={"1x2": 0.9}).assign(threads_per_rank=0.5, share_period=period) for period in (0.01, 0.02)]
    runs = pd.concat([study(weak={"1x2": 0.9}), *halves])
    table = scaling.efficiency(runs.assign(run_id=[f"run{number}" for number in range(len(runs))]))
    names = scaling.curve_names(scaling.headline(table)).unique()
    assert (
        len(names) == 3 and sum("core" in name for name in names) == 3 and sum("20 ms" in name for name in names) == 1
    )


def test_layouts_of_one_rank_count_are_points_of_their_own() -> None:
    runs = study(strong={"1x8": 0.9, "2x4": 0.8, "4x2": 0.7, "1x12": 0.6})
    table = scaling.efficiency(runs)
    for layout, expected in {"1x8": 0.9, "2x4": 0.8, "4x2": 0.7}.items():
        found = point(table, baseline="none", layout=layout)
        assert (found.world_size, found.repeats) == (8, 3)
        assert found.efficiency == pytest.approx(expected)
        assert found.speedup == pytest.approx(8 * expected)
        assert (found.speedup_low, found.speedup_high) == pytest.approx(
            (8 * found.efficiency_low, 8 * found.efficiency_high)
        )
    assert point(points.gather(runs), layout="2x4").repeats == 3
    assert point(scaling.throughput(runs), layout="2x4").repeats == 3


def test_a_point_has_every_measure_with_its_interval() -> None:
    found = point(points.gather(study(weak={"1x2": 0.8})), world_size=2)
    assert (found.step_seconds, found.epoch_seconds, found.throughput) == pytest.approx((1.0, 10.0, 200.0))
    assert found.step_seconds_low < 1 < found.step_seconds_high and found.repeats == 3
    assert (found.memory, found.peak_bytes, found.mode_bytes) == ("resident", 400 * MIB, 290 * MIB)
    weak = point(scaling.efficiency(study(weak={"1x2": 0.8})), world_size=2, baseline="none")
    assert (weak.speedup, weak.efficiency) == pytest.approx((1.6, 0.8))
    assert weak.speedup_low == pytest.approx(2 * weak.efficiency_low)


def test_unknown_layouts_and_memory_are_unknown_not_lost() -> None:
    """As of results that others measured."""
    rows = [run(world, 8.0 / world, parallel="ddp" if world > 1 else "none") for world in (1, 2, 4)]
    unknown = {"nodes": None, "ranks_per_node": None, "peak_rss_bytes": None, "mean_rss_bytes": None}
    runs = pd.DataFrame([row | unknown for row in rows])
    table = scaling.efficiency(runs)
    assert table.layout.tolist() == ["1x1", "2", "4"] and table.efficiency.tolist() == [1, 1, 1]
    assert table.peak_bytes.isna().all()
    assert set(scaling.memory(runs).statistic) == {"mode"}


def test_the_accelerator_s_memory_is_taken_where_there_is_one() -> None:
    allocated = {"peak_allocated_bytes": 9 * MIB, "mean_allocated_bytes": 8.5 * MIB, "mode_allocated_bytes": 8 * MIB}
    (found,) = points.gather(pd.DataFrame([run(1, 1.0) | allocated])).to_dict("records")
    assert (found["memory"], found["peak_bytes"], found["mean_bytes"]) == ("allocated", 9 * MIB, 8.5 * MIB)


def test_memory_is_compared_with_one_device_s() -> None:
    runs = study(strong={"1x2": 0.9})
    runs.loc[runs.world_size == 2, "peak_rss_bytes"] = [200 * MIB, 210 * MIB, 190 * MIB]
    runs["device_bytes"] = 1000 * MIB
    table = scaling.memory(runs)
    found = point(table, world_size=2, baseline="none", statistic="peak")
    assert (found.bytes, found.ratio, found.repeats) == (200 * MIB, 0.5, 3)
    assert found.of_device == 0.2
    assert found.ratio_low < 0.5 < found.ratio_high < 0.6
    assert point(table, world_size=2, baseline="ddp", statistic="mode").ratio == 1
    assert math.isnan(point(table, world_size=1, baseline="ddp", statistic="mode").ratio_low)


def test_weak_variation_is_the_largest_stray_of_a_step_with_an_interval() -> None:
    runs = study(weak={"1x2": 0.9, "1x4": 1 / 0.8, "1x8": 0.95})
    found = point(scaling.variation(scaling.efficiency(runs)), baseline="none")
    assert found.variation == pytest.approx(0.2) and (found.world_size, found.layout) == (4, "1x4")
    assert 0.15 < found.variation_low < 0.2 < found.variation_high < 0.25 and found.ranks == 8
    none = point(scaling.variation(scaling.efficiency(study(weak={"1x2": 1.0}))), baseline="none")
    assert none.variation_low == 0 < none.variation_high, "an interval around no stray begins at none"
    single = runs[(runs.world_size != 2) | (runs.repeat == 1)]
    found = point(scaling.variation(scaling.efficiency(single)), baseline="none")
    assert found.variation == pytest.approx(0.2) and math.isnan(found.variation_high) and found.repeats == 1


def test_no_runs_have_no_points() -> None:
    none = pd.DataFrame([run(1, 1.0)]).iloc[:0]
    table = scaling.efficiency(none)
    assert len(points.gather(none)) == len(table) == len(scaling.memory(none)) == len(scaling.variation(table)) == 0
    assert {"efficiency", "speedup_low", "throughput"} <= set(table)


def test_strategies_are_never_one_curve_but_share_the_process_without_a_group() -> None:
    alone, rows = run(1, 8.0, parallel="none"), []
    for parallel, one, two in (("ddp", 8.4, 5.0), ("zero1", 8.8, 6.0), ("fsdp", 9.6, 8.0)):
        rows += [run(1, one, parallel=parallel), run(2, two, parallel=parallel)]
    table = scaling.efficiency(pd.DataFrame([alone, *rows]))
    for parallel, one, two in (("ddp", 8.4, 5.0), ("zero1", 8.8, 6.0), ("fsdp", 9.6, 8.0)):
        own = {"scheme": parallel, "world_size": 2, "parallel": parallel}
        assert point(table, **own, baseline="none").efficiency == pytest.approx(8.0 / two / 2)
        assert point(table, **own, baseline=parallel).efficiency == pytest.approx(one / two / 2)
    assert len(table) == 3 * 2 * 2, "of each scheme one rank and two, against either baseline"
