"""Scaling from hand-made runs whose efficiency is known."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze import scaling
from hpc_utils.records import schema


def run(
    world: int, seconds: float, *, parallel: str = "ddp", batch: int = 512, steps: float | None = 10, **other
) -> dict:
    """A run of `steps` steps (100 for a pass over the data) that took `seconds`."""
    samples = batch * (steps or 100)
    row = dict.fromkeys(schema.names(schema.RUNS)) | {
        "workload": "cnn", "dataset": "digits", "precision": "fp32", "device": "cpu", "device_name": "X",
        "hardware_id": "h", "threads_per_rank": 1, "emulated": False, "oversubscribed": False, "parallel": parallel,
        "world_size": world, "global_batch": batch, "batch_per_device": batch // world, "steps_per_epoch": steps,
        "seconds": seconds, "samples": samples, "throughput": samples / seconds, "repeat": 1,
    }  # fmt: skip
    return row | other


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
    assert math.isnan(four.low), "single runs have no interval"


def test_weak_scaling_compares_steps_not_epochs() -> None:
    runs = pd.DataFrame([run(1, 10.0, parallel="none"), run(2, 12.5, batch=1024), run(4, 20.0, batch=2048)])
    table = scaling.efficiency(runs)
    assert set(table.kind) == {"weak"}
    four = point(table, world_size=4)
    assert (four.speedup, four.efficiency) == pytest.approx((2.0, 0.5))


def test_more_epochs_are_not_less_efficient() -> None:
    """Equal work is compared by time a sample: a run that recorded twice the epochs has the same efficiency."""
    longer = run(2, 10.0) | {"samples": 2 * 512 * 10}
    table = scaling.efficiency(pd.DataFrame([run(1, 8.0, parallel="none"), longer]))
    assert point(table, world_size=2).efficiency == pytest.approx(0.8)


def test_a_pass_over_a_fixed_data_set_is_no_weak_scaling() -> None:
    runs = pd.DataFrame([run(1, 10.0, parallel="none", steps=None), run(2, 6.0, batch=1024, steps=None)])
    assert scaling.efficiency(runs).empty


def test_more_ranks_than_cores_stand_in_no_scaling_figure() -> None:
    runs = pd.DataFrame([run(1, 8.0, parallel="none"), run(2, 5.0), run(4, 4.0, oversubscribed=True)])
    assert set(scaling.efficiency(runs).world_size) == {1, 2}


@pytest.mark.parametrize(
    "other", [{"precision": "bf16"}, {"hardware_id": "g"}, {"emulated": True}, {"workload": "w"}]
)
def test_what_differs_is_never_pooled(other: dict) -> None:
    runs = pd.DataFrame([run(1, 8.0, parallel="none"), run(2, 5.0, **other)])
    assert scaling.efficiency(runs).empty


def test_repeats_give_intervals_that_hold_the_value() -> None:
    alone = [run(1, 8.0 * factor, parallel="none") for factor in (0.98, 1.0, 1.02)]
    two = [run(2, 5.0 * factor) for factor in (0.97, 1.0, 1.03)]
    found = point(scaling.efficiency(pd.DataFrame(alone + two)), world_size=2)
    assert found.efficiency == pytest.approx(0.8)
    assert 0.7 < found.low < 0.8 < found.high < 0.9
    assert found.repeats == 3


def test_throughput_has_one_row_a_configuration() -> None:
    runs = pd.DataFrame(
        [run(1, t, parallel="none") for t in (8.0, 8.1, 8.2)] + [run(2, 5.0), run(2, 5.0, batch=1024)]
    )
    table = scaling.throughput(runs)
    assert sorted(table.repeats) == [1, 1, 3]
    assert point(table, world_size=1).throughput == pytest.approx(5120 / 8.1)


def test_what_a_precision_gains_is_a_ratio_with_an_interval_on_one_process() -> None:
    runs = [run(1, seconds, parallel="none") for seconds in (8.0, 8.2, 7.9)]
    runs += [run(1, seconds, parallel="none", precision="bf16") for seconds in (4.0, 4.1, 3.9)]
    runs += [run(2, 1.0, precision="bf16"), run(2, 2.0)]  # on two ranks, communication is in it
    runs += [run(1, 1.0, parallel="none", precision="bf16", batch=64)]  # nothing to compare it with
    table = scaling.precision_gain(pd.DataFrame(runs))
    assert len(table) == 1
    gain = table.iloc[0]
    assert (gain.precision, gain.global_batch, gain.gain, gain.repeats) == ("bf16", 512, pytest.approx(2.0), 3)
    assert 1.8 < gain.low < 2 < gain.high < 2.2
