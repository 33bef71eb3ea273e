"""The workshop's table: all that was measured, and all that was not."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils.analyze import scaling

from .runs import run, study


def test_measured_points_have_numbers_and_missing_ones_a_row() -> None:
    runs = study(strong={"1x2": 0.9, "1x8": 0.8, "2x4": 0.7})
    table = scaling.workshop(runs)
    assert table.world_size.tolist() == [1, 1, 2, 4, 8, 8, 12]
    assert table.state.tolist() == ["measured"] * 3 + ["not measured"] + ["measured"] * 2 + ["not measured"]
    assert table.parallel.tolist()[:2] == ["none", "ddp"]
    assert table.speedup.tolist()[1:3] == pytest.approx([1 / 1.02, 1.8])
    assert (table.batch_per_device[3], table.global_batch[3]) == (192, 768)
    known = scaling.efficiency(runs)
    known = known[(known.baseline == "none") & (known.layout == "2x4")].iloc[0]
    ours = table[table.layout == "2x4"].iloc[0]
    for name in (
        "throughput",
        "epoch_seconds_high",
        "speedup_low",
        "efficiency",
        "efficiency_low",
        "efficiency_high",
        "peak_bytes",
    ):
        assert ours[name] == pytest.approx(known[name]), name


def test_weak_curves_keep_the_batch_of_a_device() -> None:
    table = scaling.workshop(study(weak={"1x2": 0.9}))
    assert set(table.kind) == {"weak"} and table.batch_per_device.tolist() == [100] * 6
    assert table.global_batch.tolist() == [100, 100, 200, 400, 800, 1200]


def test_what_cannot_or_may_not_be_measured_gives_the_reason() -> None:
    crowd = pd.DataFrame([run(4, 3.0, batch=768, oversubscribed=True)])
    runs = pd.concat([study(strong={"1x2": 0.9}), crowd], ignore_index=True)
    table = scaling.workshop(runs, ranks={"strong": (1, 2, 5)}).set_index("world_size")
    assert table.loc[4, "state"] == "barred" and "more ranks than cores" in table.loc[4, "why"]
    assert pd.isna(table.loc[4, "throughput"]) and pd.isna(table.loc[4, "speedup"])
    assert (table.loc[5, "state"], table.loc[5, "why"]) == ("not measured", "768 samples do not divide over 5 ranks")


def test_without_a_baseline_there_is_no_speed_up_but_all_else() -> None:
    runs = study(strong={"1x2": 0.9, "1x4": 0.8})
    table = scaling.workshop(runs[runs.world_size > 1]).set_index("world_size")
    assert table.speedup.isna().all() and table.loc[4, "throughput"] > 0
    assert table.loc[1, "state"] == "not measured"
    one = scaling.workshop(runs[runs.parallel == "ddp"]).set_index("world_size")
    assert one.loc[4, "efficiency"] == pytest.approx(0.8 * 1.02), "DDP on one rank stands in"
    assert scaling.workshop(runs.iloc[:0]).columns.tolist() == scaling.WORKSHOP
