"""Gains of a ladder whose steps are known, down to what pairing by repeat is for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as reference

from hpc_utils.analyze import ablation
from hpc_utils.records.study import StudyIndex, Targets

from . import ladders
from .runs import run, study

STEPS = {"loader": 1.5, "layout": 1.1, "bf16": 2.0}


def jitter(series: str, repeat: int) -> float:
    return 1 + 0.01 * math.sin(7 * repeat + len(series))


def test_each_step_s_gain_alone_after_those_before_and_together() -> None:
    study, runs, _ = ladders.ladder(STEPS)
    table = ladders.of(runs, study).gains.set_index("step")
    assert table.alone.to_dict() == pytest.approx(STEPS)
    assert table.marginal.to_dict() == pytest.approx(STEPS)
    assert list(table.together) == pytest.approx([1.5, 1.65, 3.3])
    assert list(table.memory) == pytest.approx([1.1] * 3)
    assert list(table.warmup) == pytest.approx([1.0] * 3)
    assert list(table.marginal_verdict) == [ablation.FASTER] * 3
    assert set(table.marginal_runs["bf16"]) == {
        f"{one}-r{n}" for one in ("upto-layout", "upto-bf16") for n in (1, 2, 3)
    }


def test_intervals_are_of_ratios_within_a_repeat() -> None:
    """The machine is three times slower in the second repeat: that must not widen what a step gains."""
    study, runs, _ = ladders.ladder(STEPS, drift=lambda repeat: 3.0 if repeat == 2 else 1.0, noise=jitter)
    table = ladders.of(runs, study).gains.set_index("step")
    logs = np.log([jitter("alone-loader", r) ** -1 * 1.5 * jitter("plain", r) for r in (1, 2, 3)])
    half = reference.t.ppf(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    assert math.log(table.alone_high["loader"] / table.alone["loader"]) == pytest.approx(half)
    assert table.alone_high["loader"] / table.alone_low["loader"] < 1.2
    speeds = ladders.of(runs, study).speeds()
    assert (speeds.throughput_high / speeds.throughput_low).min() > 1.2, (
        "while each speed alone is as unsure as the machine"
    )


def test_a_process_group_is_compared_within_a_repeat_and_configuration() -> None:
    """DDP takes 1 / 0.8 of the time without a group, and nothing in the other configuration; the second repeat is slow."""
    rows, index = [], []
    for series, settings, share in (("eager", "defaults", 0.8), ("graph", "step_graph=true", 1.0)):
        for repeat, parallel in itertools.product((1, 2, 3), ("none", "ddp")):
            seconds = (3.0 if repeat == 2 else 1.0) / (share if parallel == "ddp" else 1.0)
            about = {"run_id": f"{series}-{parallel}-r{repeat}", "repeat": repeat, "settings": settings}
            rows.append(run(1, seconds, parallel=parallel, **about))
            index.append({"run_id": about["run_id"], "series": series, "repeat": repeat})
    index.append({"run_id": "graph-ddp-r1", "series": "alone"})
    found = ablation.process_group(pd.DataFrame(rows), StudyIndex(runs=index)).set_index("series")
    assert found.ratio.to_dict() == pytest.approx({"eager": 0.8, "graph": 1.0})
    assert found.ratio_low["eager"] == pytest.approx(0.8), "the slow repeat is slow on both sides"
    assert list(found.repeats) == [3, 3] and set(found.parallel) == {"ddp"}
    assert found.runs["graph"] == tuple(f"graph-{parallel}-r{n}" for parallel in ("none", "ddp") for n in (1, 2, 3))
    assert ablation.process_group(pd.DataFrame(rows)[:0], StudyIndex(runs=index)).empty


def test_a_step_that_cannot_run_is_in_no_later_configuration() -> None:
    study, runs, _ = ladders.ladder(STEPS, barred={"layout": "no such kernels"})
    table = ladders.of(runs, study).gains.set_index("step")
    assert table.why["layout"] == "no such kernels"
    assert np.isnan(table.loc["layout", ["alone", "marginal", "together"]].astype(float)).all()
    assert table.marginal["bf16"] == pytest.approx(2.0), "against the rung before it that was run"
    assert table.together["bf16"] == pytest.approx(3.0)


def test_the_best_configuration_may_leave_steps_out() -> None:
    study, runs, _ = ladders.ladder({"loader": 1.5, "slow": 0.5})
    best = ladders.of(runs, study).best
    assert (best.steps, best.gain.value) == (("loader",), pytest.approx(1.5))
    study, runs, _ = ladders.ladder({"slow": 0.5})
    assert ladders.of(runs, study).best.series == "plain"
    assert ladders.of(runs.iloc[:0], study).best is None
    study, runs, _ = ladders.ladder({"slow": 0.5, "fast": 2.0})
    assert ladders.of(runs, study).best[:3] == ("alone-fast", "fast alone", ("fast",))


def test_the_best_configuration_is_a_row_with_what_it_learnt() -> None:
    study, runs, epochs = ladders.ladder({"loader": 1.5, "bf16": 2.0}, noise=jitter)
    best = ladders.of(runs, study).best
    (row,) = ladders.of(runs, study, epochs).best_table().to_dict("records")
    assert (row["name"], row["steps"], row["verdict"]) == ("up to bf16", "loader + bf16", ablation.FASTER)
    assert (row["gain"], row["gain_low"], row["gain_high"], row["repeats"]) == best.gain and len(row["runs"]) == 6
    assert row["accuracy_verdict"] == row["loss_verdict"] == ablation.EQUAL


def test_a_missing_run_takes_its_pair_only() -> None:
    study, runs, _ = ladders.ladder(STEPS, noise=jitter)
    table = ladders.of(runs[runs.run_id != "plain-r2"], study).gains.set_index("step")
    assert table.repeats["bf16"] == 2
    assert table.marginal_low["bf16"] == ladders.of(runs, study).gains.set_index("step").marginal_low["bf16"]
    none = ladders.of(runs[~runs.run_id.str.startswith("plain")], study).gains.set_index("step")
    assert none.alone.isna().all() and none.marginal["bf16"] == pytest.approx(2.0, rel=0.03)


def test_a_configuration_that_was_not_measured_does_not_break_the_next() -> None:
    study, runs, _ = ladders.ladder(STEPS)
    table = ladders.of(runs[~runs.run_id.str.startswith("upto-layout")], study).gains.set_index("step")
    assert np.isnan(table.together["layout"])
    assert table.before.to_dict() == {"loader": "plain", "layout": "loader", "bf16": "loader"}
    assert (table.marginal["bf16"], table.together["bf16"]) == pytest.approx((2.2, 3.3))
    assert (table.memory["bf16"], table.warmup["bf16"]) == pytest.approx((1.21, 2.0))


def test_runs_of_another_torch_or_machine_are_no_pair_and_other_code_is_listed() -> None:
    study, runs, _ = ladders.ladder(STEPS)
    runs = runs.assign(digest="old", torch="2.13.0")
    later = runs.run_id.str.startswith("upto-bf16")
    listed = ladders.of(runs.assign(digest=later.map({True: "new", False: "old"})), study).measured[1]
    assert listed == ["the runs were measured by 2 states of the code: new, old"]
    runs.loc[later, ["torch", "throughput"]] = "2.14.0", 1e6
    table = ladders.of(runs, study).gains.set_index("step")
    assert np.isnan(table.together["bf16"]) and table.together["layout"] == pytest.approx(1.65)
    (line,) = ladders.of(runs, study).measured[1]
    assert line.startswith("3 of 18 runs are left out") and "2.14.0" in line
    assert ladders.of(runs[~later], study).measured[1] == []
    other = runs.assign(torch="2.13.0", device_name=later.map({True: "Y", False: "X"}))
    assert ladders.of(other, study).measured[1][0].endswith("Y")


def test_an_interval_is_reported_in_words() -> None:
    found = [ablation.verdict(*ends) for ends in ((1.1, 1.2), (0.8, 0.9), (0.9, 1.1), (np.nan, np.nan))]
    assert found == [ablation.FASTER, ablation.SLOWER, ablation.NOISE, ablation.SINGLE]
    study, runs, _ = ladders.ladder(STEPS, repeats=[1])
    table = ladders.of(runs, study).gains
    assert set(table.alone_verdict) == {ablation.SINGLE} and table.together_high.isna().all()
    assert ladders.of(runs.assign(profile="torch"), study).configurations.empty


def test_where_a_step_s_time_goes() -> None:
    study, runs, epochs = ladders.ladder(STEPS)
    parts = ladders.of(runs, study, epochs).phases.set_index("step")
    assert list(parts.runs["bf16"]) == [f"upto-bf16-r{repeat}" for repeat in (1, 2, 3)]
    parts = parts.drop(columns=["runs", "undivided_seconds"])
    assert list(parts.index) == ["plain", *STEPS]
    assert parts.loc["plain"].to_dict() == pytest.approx(
        {"data_seconds": 1e-3, "forward_seconds": 2e-3, "backward_seconds": 4e-3, "optimizer_seconds": 1e-3}
    )
    assert parts.backward_seconds["bf16"] == pytest.approx(4e-3 / 3.3)


def test_an_epoch_s_first_step_does_not_lengthen_the_mean_step() -> None:
    """Of the steps whose phases were timed it is one of few: their mean is longer than that of all steps."""
    study, runs, epochs = ladders.ladder(STEPS)
    parts = ladders.of(runs, study, epochs.assign(step_mean=epochs.step_mean / 2)).phases.set_index("step")
    parts = parts.drop(columns=["runs", "undivided_seconds"])
    assert parts.loc["plain"].to_dict() == pytest.approx(
        {"data_seconds": 5e-4, "forward_seconds": 1e-3, "backward_seconds": 2e-3, "optimizer_seconds": 5e-4}
    )
    unknown = epochs.assign(forward_seconds=None, backward_seconds=None, optimizer_seconds=None)
    captured = ladders.of(runs, study, unknown).phases.set_index("step").loc["plain"]
    assert captured[["data_seconds", "undivided_seconds"]].tolist() == pytest.approx([1e-3, 7e-3]), (
        "of a mean step of 8 ms"
    )


# -- equal learning


@pytest.mark.parametrize("seed", range(8))
def test_it_is_two_one_sided_tests(seed: int) -> None:
    generator = np.random.default_rng(seed)
    differences, margin = generator.normal(generator.normal(0, 0.5), 0.5, 5), 0.7
    below = reference.ttest_1samp(differences, -margin, alternative="greater").pvalue
    above = reference.ttest_1samp(differences, margin, alternative="less").pvalue
    zero = reference.ttest_1samp(differences, 0).pvalue
    expected = ablation.EQUAL if max(below, above) < 0.05 else ablation.DIFFERS if zero < 0.05 else ablation.UNKNOWN
    assert ablation.judge(differences, margin)[1] == expected


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.001, -0.001, 0.0], ablation.EQUAL),
        ([0.0021, 0.002, 0.0019], ablation.EQUAL),  # a sure difference within the margin
        ([0.0, 0.0, 0.0], ablation.EQUAL),
        ([0.051, 0.049, 0.05], ablation.DIFFERS),
        ([0.05, -0.05, 0.0], ablation.UNKNOWN),
        ([0.0], ablation.UNKNOWN),
        ([], ablation.UNKNOWN),
    ],
)
def test_all_three_verdicts_are_reached(differences: list[float], verdict: str) -> None:
    assert ablation.judge(differences, 0.01)[1] == verdict


def test_configurations_are_compared_with_the_plain_loop_seed_by_seed() -> None:
    """Accuracy differs by 2 points between seeds, and by none between rungs."""
    study, runs, epochs = ladders.ladder({"a": 1.2, "b": 1.1})
    worse = epochs.run_id.str.startswith("upto-b")
    epochs.loc[worse, "test_loss"] *= 1.2
    study = study.model_copy(update={"targets": Targets(accuracy_margin=0.005, loss_margin=0.05)})
    table = ladders.of(runs, study, epochs).learnt
    verdicts = table.set_index(["step", "measure"]).verdict
    assert verdicts["a", "accuracy"] == verdicts["b", "accuracy"] == verdicts["a", "loss"] == ablation.EQUAL
    assert verdicts["b", "loss"] == ablation.DIFFERS
    assert table.words[:4].tolist() == [
        "equal within 0.5 points", "equal within 5 %", "equal within 0.5 points", "differs by 20 %",
    ]  # fmt: skip


def test_the_fastest_configuration_stands_below_the_cumulative_ones() -> None:
    study, runs, epochs = ladders.ladder({"slow": 0.5, "fast": 2.0})
    best = ladders.of(runs, study).best
    table = ladders.of(runs, study, epochs).learnt
    assert table.step.tolist() == ["slow", "slow", "fast", "fast", best.name, best.name]
    row = table[(table.step == best.name) & (table.measure == "accuracy")].iloc[0]
    assert (row.difference, row.repeats, row.verdict) == (0, 3, ablation.EQUAL)
    assert set(row.runs) == {f"{series}-r{n}" for series in ("plain", best.series) for n in (1, 2, 3)}


def test_without_evaluation_the_training_loss_is_compared() -> None:
    study, runs, epochs = ladders.ladder({"a": 1.2})
    table = ladders.of(runs, study, epochs.assign(test_accuracy=None, test_loss=None)).learnt
    assert (list(table.measure), list(table.plain)) == (["loss"] * 2, pytest.approx([0.4] * 2))
    bare = epochs.assign(test_accuracy=None, test_loss=None, train_loss=None)
    assert ladders.of(runs, study, bare).learnt.empty


def test_several_ranks_are_compared_with_one_seed_by_seed() -> None:
    """Two ranks are equal; four lose two points with every seed; a batch of its own has nothing to be compared with."""
    runs = study(strong={"1x2": 0.9, "1x4": 0.8}, weak={"1x2": 0.9})
    reached = 0.9 + 0.01 * runs.repeat - 0.02 * (runs.world_size == 4)
    epochs = runs[["run_id"]].assign(epoch=1, test_accuracy=reached, test_loss=None, train_loss=None)
    table = ablation.across_ranks(runs, epochs, Targets(accuracy_margin=0.005))
    strong = table[table.global_batch == 768].set_index("layout")
    assert strong.verdict.to_dict() == {"1x2": ablation.EQUAL, "1x4": ablation.DIFFERS}
    assert strong.difference.to_dict() == pytest.approx({"1x2": 0, "1x4": -0.02})
    assert len(strong.runs["1x4"]) == 6
    two = pd.concat([runs, runs.assign(run_id=runs.run_id + "x", settings='workload_args={"width": 96}')])
    table = ablation.across_ranks(two, pd.concat([epochs, epochs.assign(run_id=epochs.run_id + "x")]), Targets())
    keys = ["settings", "global_batch", "layout", "measure"]
    assert table.settings.nunique(dropna=False) == 2 and not table.duplicated(keys).any()
