"""Efficiency of foreign runs, from hand-made frames: as reported and corrected, and which baseline."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze import foreign, scaling
from hpc_utils.records import schema


def run(world: int, throughput: float, *, factor: float = 1.0, parallel: str | None = "ddp", **other) -> dict:
    """A run of a fixed global batch of 256; `factor` times as fast as it was by its authors' report."""
    row = dict.fromkeys([*schema.names(schema.RUNS), *schema.names(schema.FOREIGN)]) | {
        "foreign": "theirs", "hardware_id": "foreign:theirs", "workload": "resnet18", "parallel": parallel,
        "world_size": world, "nodes": 1, "ranks_per_node": world, "global_batch": 256, "batch_per_device": 256 // world,
        "samples": 50_000, "seconds": 50_000 / throughput, "throughput": throughput,
        "oversubscribed": False, "reported_throughput": factor * throughput, "comparable": True, "repeat": 1,
        "verdict": "consistent" if factor == 1 else "counted once per rank",
    }  # fmt: skip
    return row | other


def table(*runs: dict) -> pd.DataFrame:
    return foreign.efficiency(pd.DataFrame(runs))


def test_reported_beside_corrected() -> None:
    found = table(run(1, 1000, parallel="none"), run(2, 1800, factor=2), run(8, 5600, factor=8))
    assert found.kind.tolist() == ["strong"] * 3
    assert found.world_size.tolist() == [1, 2, 8]
    assert found.efficiency.tolist() == pytest.approx([1, 0.9, 0.7])
    assert found.reported.tolist() == pytest.approx([1, 1.8, 5.6])
    assert found.verdict.tolist()[1:] == ["counted once per rank"] * 2


def test_it_is_the_efficiency_that_our_own_runs_have() -> None:
    runs = [run(1, 1000, parallel="none"), run(2, 1800), run(4, 3100)]
    runs += [run(1, 1010, parallel="none", repeat=2), run(2, 1790, repeat=2), run(4, 3150, repeat=2)]
    ours = scaling.efficiency(pd.DataFrame(runs)).query("baseline == 'none'").set_index("world_size")
    theirs = table(*runs).set_index("world_size")
    for column in ("efficiency", "low", "high", "repeats"):
        assert theirs[column].tolist() == pytest.approx(ours[column].tolist(), nan_ok=True)


def test_the_baseline_is_without_a_group_where_there_is_one() -> None:
    found = table(run(1, 1000, parallel="none"), run(1, 950), run(2, 1800)).set_index(["parallel", "world_size"])
    assert set(found.baseline) == {"none"}
    assert found.efficiency.to_dict() == pytest.approx({("none", 1): 1, ("ddp", 1): 0.95, ("ddp", 2): 0.9})
    found = table(run(1, 950), run(2, 1800), run(2, 1700, parallel="horovod"))
    assert found[found.kind == "strong"].baseline.tolist() == ["ddp", "ddp"]
    assert found[found.parallel == "horovod"].note.tolist() == ["no run on one rank of the same configuration"]


@pytest.mark.parametrize(
    ("kind", "batch", "one", "many"),
    [
        ("weak", 64, {"global_batch": 64, "batch_per_device": 64}, {"global_batch": 256, "batch_per_device": 64}),
        ("unstated", None, *[{"global_batch": None, "batch_per_device": None, "parallel": None}] * 2),
    ],
)
def test_the_kind_of_scaling_is_that_of_the_fixed_batch(kind: str, batch: float, one: dict, many: dict) -> None:
    found = table(run(1, 1000, **one), run(4, 3600, **many))
    assert found.kind.tolist() == [kind] * 2 and found.efficiency.tolist() == pytest.approx([1, 0.9])
    assert found.batch.dropna().tolist() == [batch] * 2 * (batch is not None)


def test_runs_of_other_sets_devices_or_layouts_are_not_pooled() -> None:
    runs = [run(1, 1000), run(4, 3600), run(4, 3000, nodes=2, ranks_per_node=2)]
    other = [one | {"foreign": "another", "throughput": 2 * one["throughput"]} for one in runs]
    found = table(*runs, *other)
    assert len(found) == 6
    assert set(found.repeats) == {1}
    assert found[found.world_size == 4].efficiency.tolist() == pytest.approx([0.9, 0.75] * 2)


def test_what_is_in_no_curve_is_there_with_the_reason() -> None:
    found = table(
        run(1, 1000, parallel="none"), run(2, 1800), run(2, 1500, parallel="DataParallel", comparable=False),
        run(4, 3000, precision="bf16"),
    ).set_index("note")  # fmt: skip
    assert found.loc["not comparable"].parallel == "DataParallel"
    assert found.loc["no run on one rank of the same configuration"].precision == "bf16"
    assert found.loc["not comparable", ["efficiency", "reported"]].isna().all()


def test_a_throughput_alone_has_its_place_and_no_reported_efficiency() -> None:
    alone = {"samples": None, "seconds": None, "reported_throughput": None, "verdict": "throughput only, unchecked"}
    found = table(run(1, 1000), run(2, 1800, **alone))
    assert found.efficiency.tolist() == pytest.approx([1, 0.9]) and math.isnan(found.reported.iloc[1])
    assert found.verdict.tolist()[1] == "throughput only, unchecked"
