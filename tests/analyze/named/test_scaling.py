"""Scaling's named values are the frames' numbers, each with the runs that it rests on."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils import paths, records
from hpc_utils.analyze import findings, scaling, targets, workshop
from hpc_utils.analyze.named import scaling as named

from ..runs import run, study


@pytest.fixture(scope="module")
def laptop() -> pd.DataFrame:
    return records.load(paths.root() / "results/reference/epyc-2core", study="laptop").runs


def by_name(values):
    found = {value.name: value for value in values}
    assert len(found) == len(values)
    return found


def test_one_curve_needs_no_more_than_the_ranks():
    curves = scaling.efficiency(study(strong={"1x2": 0.9, "2x2": 0.8}))
    found = by_name(named.efficiency(curves))
    assert found["strong.efficiency.4"].value == pytest.approx(0.8)
    assert found["strong.speedup.4"].value == pytest.approx(3.2)
    assert {
        "strong.efficiency.2",
        "strong.efficiency.2.over-ddp",
        "strong.throughput.1",
        "strong.step-seconds.4",
    } <= set(found)
    assert not any(name.startswith("weak") for name in found)


def test_layouts_of_the_same_ranks_are_told_apart():
    found = by_name(named.efficiency(scaling.efficiency(study(strong={"1x4": 0.9, "2x2": 0.8}))))
    assert found["strong.efficiency.4.1x4"].value == pytest.approx(0.9)
    assert found["strong.efficiency.4.2x2"].value == pytest.approx(0.8)


def test_real_runs_give_each_number_of_the_frame_its_name_and_its_runs(laptop):
    curves = scaling.efficiency(laptop)
    found = by_name(named.efficiency(curves))
    row = curves[
        (curves.kind == "weak")
        & (curves.baseline == "none")
        & (curves.world_size == 2)
        & (curves.precision == "bf16")
    ].iloc[0]
    value = found["weak.efficiency.2.bf16"]
    assert (value.value, value.low, value.high, value.repeats) == (row.efficiency, row.low, row.high, 3)
    behind = laptop[laptop.run_id.isin(value.runs)]
    assert len(behind) == 6 and set(behind.precision) == {"bf16"} and set(behind.world_size) == {1, 2}
    assert set(behind.parallel[behind.world_size == 1]) == {"none"}, "the headline baseline has no process group"
    assert found["weak.throughput.2.bf16"].value == row.throughput
    assert set(found["weak.throughput.2.bf16"].runs) == set(behind.run_id[behind.world_size == 2])
    many = (curves.world_size > 1).sum()
    assert sum(".efficiency." in name for name in found) == many


def test_memory_and_throughput_of_real_runs(laptop):
    speed = scaling.throughput(laptop)
    found = by_name(
        named.throughput(speed)
        + named.memory(scaling.memory(laptop))
        + named.precision(scaling.precision_gain(laptop))
    )
    row = speed[(speed.world_size == 2) & (speed.global_batch == 1024) & (speed.precision == "fp32")].iloc[0]
    assert found["throughput.2.ddp.global-batch-1024.fp32"].value == row.throughput
    assert found["throughput.gain.bf16"].value == pytest.approx(scaling.precision_gain(laptop).gain.iloc[0])
    assert len(found["throughput.gain.bf16"].runs) == 6
    point = laptop[(laptop.world_size == 2) & (laptop.global_batch == 1024) & (laptop.precision == "fp32")]
    peak = found["memory.peak.2.global-batch-1024.fp32"]
    assert peak.value == point.peak_rss_bytes.astype(float).median() and set(peak.runs) == set(point.run_id)


def test_targets_have_verdict_and_reason():
    runs = study(strong={"1x2": 0.9, "2x4": 0.8}, weak={"1x2": 0.99})
    judged = targets.judge(scaling.efficiency(runs))
    found = by_name(named.targets(judged))
    assert found["strong.target.verdict"].value == "met"
    assert found["strong.target.reached"].value == pytest.approx(0.8)
    assert (found["strong.target.required"].value, found["strong.target.reached-ranks"].value) == (0.7, 8)
    assert found["weak.target.verdict"].value == "not measured" and "no point of 8" in found["weak.target.why"].value
    assert set(found["strong.target.reached"].runs) <= set(runs.run_id) and found["strong.target.reached"].runs


def test_targets_without_a_curve_say_so():
    found = by_name(named.targets(targets.judge(scaling.efficiency(pd.DataFrame([run(1, 8.0, parallel="none")])))))
    assert found["strong.target.verdict"].value == "not measured"
    assert not any("reached" in name for name in found)


def test_a_scheme_on_one_rank_stands_beside_the_headline():
    rows = workshop.rows(study(strong={"1x2": 0.9}))
    [value] = named.overhead(rows)
    assert value.name == "strong.on-one-rank.ddp" and value.value == pytest.approx(1 / 1.02, rel=1e-3)


def test_findings_are_counted():
    spread = study(strong={"1x2": 0.9})
    slow = (spread.world_size == 2) & (spread["repeat"] == 2)
    spread.loc[slow, "seconds"] *= 1.5
    spread.loc[slow, "throughput"] /= 1.5
    wrong = findings.findings(spread)
    found = by_name(named.wrong(wrong))
    assert found["findings.count"].value == len(wrong) > 0
    assert found["findings.repeats-spread"].value == (wrong.finding == "repeats spread").sum()


def test_efficiencies_of_two_precisions_are_compared_with_an_interval(laptop):
    efficiencies = by_name(named.efficiency(scaling.efficiency(laptop)))
    found = by_name(named.precision_efficiency(scaling.efficiency_ratio(laptop)))
    value = found["strong.efficiency-ratio.2.bf16"]
    bf16, fp32 = (efficiencies[f"strong.efficiency.2.{name}"] for name in ("bf16", "fp32"))
    assert value.value == pytest.approx(bf16.value / fp32.value) and value.low < value.value < value.high
    assert value.high / value.value > max(bf16.high / bf16.value, fp32.high / fp32.value) ** 0.5
    assert set(value.runs) == {*bf16.runs, *fp32.runs} and value.repeats == 3
    assert named.precision_efficiency(scaling.efficiency_ratio(study(strong={"1x2": 0.9}))) == []
