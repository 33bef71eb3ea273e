"""Efficiency of imported runs, from hand-made frames: as reported and corrected, and which baseline."""

from __future__ import annotations

import pandas as pd
import pytest

from companions.imports.efficiency import efficiency
from companions.imports.tables import COLUMNS


def run(world: int, throughput: float, *, factor: float = 1.0, parallel: str | None = "ddp", **other) -> dict:
    """A run of a fixed global batch of 256; `factor` times as fast as it was by its authors' report."""
    row = dict.fromkeys(COLUMNS) | {
        "run_id": f"{parallel}{world}-{throughput}", "hardware_id": "foreign:theirs",
        "workload": "resnet18", "parallel": parallel, "world_size": world, "global_batch": 256,
        "batch_per_device": 256 // world, "throughput": throughput, "reported_throughput": factor * throughput,
        "verdict": "consistent" if factor == 1 else "counted once per rank",
    }  # fmt: skip
    return row | other


def table(*runs: dict) -> pd.DataFrame:
    return efficiency(pd.DataFrame(runs))


def test_reported_beside_corrected() -> None:
    strong = table(run(1, 1000, parallel="none"), run(2, 1800, factor=2), run(8, 5600, factor=8))
    assert strong.kind.tolist() == ["strong"] * 3
    assert strong.world_size.tolist() == [1, 2, 8]
    assert strong.efficiency.tolist() == pytest.approx([1, 0.9, 0.7])
    assert strong.reported.tolist() == pytest.approx([1, 1.8, 5.6])
    assert strong.verdict.tolist()[1:] == ["counted once per rank"] * 2


def test_the_baseline_is_without_a_group_where_there_is_one() -> None:
    assert set(table(run(1, 1000, parallel="none"), run(1, 950), run(2, 1800)).baseline) == {"none"}
    assert set(table(run(1, 950), run(2, 1800)).baseline) == {"ddp"}
    unstated = table(run(1, 1000, parallel=None), run(2, 1800, parallel=None))
    assert unstated.efficiency.tolist() == pytest.approx([1, 0.9])
    computed = table(run(1, 1000), run(2, 1800, reported_throughput=None, verdict="computed"))
    assert computed.reported.isna().tolist() == [False, True]
    assert table(run(2, 1800)).empty


def test_weak_scaling_has_a_fixed_batch_per_device() -> None:
    batches = ({"global_batch": 64, "batch_per_device": 64}, {"global_batch": 256, "batch_per_device": 64})
    weak = table(run(1, 1000, **batches[0]), run(4, 3600, **batches[1]))
    assert weak.kind.tolist() == ["weak"] * 2 and weak.efficiency.tolist() == pytest.approx([1, 0.9])


def test_runs_of_different_sets_are_not_pooled() -> None:
    runs = [run(1, 1000), run(4, 3600)]
    other = {"hardware_id": "foreign:another"}
    points = table(*runs, *(row | other | {"run_id": f"other-{row['run_id']}"} for row in runs))
    assert len(points) == 4 and set(points.repeats) == {1}
