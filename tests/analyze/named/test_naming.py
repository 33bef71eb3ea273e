"""Names of values: short where nothing else varies, unique, and independent of the order of rows."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze.named import naming


def frame(**columns) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_what_does_not_vary_is_not_said():
    table = frame(world_size=[2, 4], workload=["cnn"] * 2, precision=["fp32"] * 2, batch=[512] * 2)
    assert naming.names(table, "strong.efficiency", ["world_size"]) == ["strong.efficiency.2", "strong.efficiency.4"]


def test_what_tells_rows_apart_is_said_of_all_of_them():
    table = frame(world_size=[2, 2, 4], precision=["fp32", "bf16", "fp32"])
    assert naming.names(table, "e", ["world_size"]) == ["e.2.fp32", "e.2.bf16", "e.4.fp32"]


def test_what_follows_from_a_dimension_before_it_is_not_said():
    table = frame(world_size=[2, 2, 2], workload=["cnn", "resnet18", "resnet18"], dataset=["digits", "cifar10", "cifar10"],
                  batch=[128, 8, 32])  # fmt: skip
    found = naming.names(table, "weak.efficiency", ["world_size"])
    assert found == [
        "weak.efficiency.2.cnn.batch-128",
        "weak.efficiency.2.resnet18.batch-8",
        "weak.efficiency.2.resnet18.batch-32",
    ]


def test_names_do_not_change_with_the_order_of_rows():
    table = frame(
        world_size=[1, 2, 2, 2], parallel=["none", "ddp", "ddp", "fsdp"], link_gbit=[math.nan, 0.3, 1.0, 1.0]
    )
    there, back = (naming.names(own, "t", ["world_size"]) for own in (table, table.iloc[::-1]))
    assert there == back[::-1]
    assert there == ["t.1.alone", "t.2.ddp.300mbit", "t.2.ddp.1gbit", "t.2.fsdp.1gbit"]


def test_the_headline_baseline_is_silent():
    table = frame(world_size=[2, 2], baseline=["none", "ddp"])
    assert naming.names(table, "strong.efficiency", ["world_size"]) == [
        "strong.efficiency.2",
        "strong.efficiency.2.over-ddp",
    ]


def test_rows_that_no_name_can_tell_apart_are_an_error():
    with pytest.raises(ValueError, match=r"e\.2: rows that differ in nothing"):
        naming.names(frame(world_size=[2, 2], note=["a", "b"]), "e", ["world_size"])


@pytest.mark.parametrize(
    ("gbit", "said"), [(0.3, "300mbit"), (2.5, "2500mbit"), (10.0, "10gbit"), (math.inf, "unlimited"), (math.nan, "")]
)
def test_rates(gbit, said):
    assert naming.rate(gbit) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [("DDP, 2 ranks", "ddp-2-ranks"), (25.0, "25"), (0.5, "0-5"), (None, ""), (math.nan, ""), ("comm_hook x bucket_mb", "comm-hook-x-bucket-mb")],
)  # fmt: skip
def test_parts_of_names(value, said):
    assert naming.slug(value) == said


def test_values_carry_number_interval_repeats_and_runs_and_leave_out_what_is_not_known():
    table = frame(world_size=[2, 4], share=[0.5, math.nan], low=[0.4, math.nan], high=[0.6, math.nan], repeats=[3, 1],
                  runs=[("a", "b"), ("c",)], runs_one=[("b", "z"), ("z",)])  # fmt: skip
    [value] = naming.values(
        table,
        "e",
        "share",
        "share",
        lambda row: f"Of {row.world_size}.",
        point=["world_size"],
        runs=("runs", "runs_one"),
    )
    assert (value.name, value.value, value.low, value.high, value.repeats) == ("e.2", 0.5, 0.4, 0.6, 3)
    assert value.runs == ("a", "b", "z") and value.says == "Of 2."
