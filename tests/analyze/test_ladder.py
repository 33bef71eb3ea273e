"""Gains of a ladder whose steps are known, down to what pairing by repeat is for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as reference

from hpc_utils.analyze import equivalence, ladder

from . import ladders

STEPS = {"loader": 1.5, "layout": 1.1, "bf16": 2.0}


def jitter(series: str, repeat: int) -> float:
    return 1 + 0.01 * math.sin(7 * repeat + len(series))


def test_each_step_s_gain_alone_after_those_before_and_together() -> None:
    study, runs, _ = ladders.ladder(STEPS)
    table = ladder.gains(runs, study).set_index("step")
    assert table.alone.to_dict() == pytest.approx(STEPS)
    assert table.marginal.to_dict() == pytest.approx(STEPS)
    assert list(table.together) == pytest.approx([1.5, 1.65, 3.3])
    assert list(table.memory) == pytest.approx([1.1] * 3)
    assert list(table.warmup) == pytest.approx([1.0] * 3)
    assert list(table.marginal_verdict) == [ladder.FASTER] * 3
    assert set(table.marginal_runs["bf16"]) == {
        f"{one}-r{n}" for one in ("upto-layout", "upto-bf16") for n in (1, 2, 3)
    }


def test_intervals_are_of_ratios_within_a_repeat() -> None:
    """The machine is three times slower in the second repeat: that must not widen what a step gains."""
    study, runs, _ = ladders.ladder(STEPS, drift=lambda repeat: 3.0 if repeat == 2 else 1.0, noise=jitter)
    table = ladder.gains(runs, study).set_index("step")
    logs = np.log([jitter("alone-loader", r) ** -1 * 1.5 * jitter("plain", r) for r in (1, 2, 3)])
    half = reference.t.ppf(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    assert math.log(table.alone_high["loader"] / table.alone["loader"]) == pytest.approx(half)
    assert table.alone_high["loader"] / table.alone_low["loader"] < 1.2
    speeds = ladder.speeds(runs, study)
    assert (speeds.high / speeds.low).min() > 1.2, "while each speed alone is as unsure as the machine"


def test_a_step_that_cannot_be_run_stands_in_no_later_rung() -> None:
    study, runs, _ = ladders.ladder(STEPS, barred={"layout": "no such kernels"})
    table = ladder.gains(runs, study).set_index("step")
    assert table.why["layout"] == "no such kernels"
    assert np.isnan(table.loc["layout", ["alone", "marginal", "together"]].astype(float)).all()
    assert table.marginal["bf16"] == pytest.approx(2.0), "against the rung before it that was run"
    assert table.together["bf16"] == pytest.approx(3.0)


def test_the_best_rung_may_leave_steps_out() -> None:
    study, runs, _ = ladders.ladder({"loader": 1.5, "slow": 0.5})
    best = ladder.best(runs, study)
    assert (best.steps, best.gain.value) == (("loader",), pytest.approx(1.5))
    study, runs, _ = ladders.ladder({"slow": 0.5})
    assert ladder.best(runs, study).series == "plain"
    assert ladder.best(runs.iloc[:0], study) is None
    study, runs, _ = ladders.ladder({"slow": 0.5, "fast": 2.0})
    assert ladder.best(runs, study)[:3] == ("alone-fast", "fast alone", ("fast",))


def test_the_best_rung_is_a_row_with_what_it_learnt() -> None:
    study, runs, epochs = ladders.ladder({"loader": 1.5, "bf16": 2.0}, noise=jitter)
    best = ladder.best(runs, study)
    (row,) = ladder.best_table(best, equivalence.table(runs, epochs, study, labels={best.series: best.name})).to_dict("records")  # fmt: skip
    assert (row["name"], row["steps"], row["verdict"]) == ("up to bf16", "loader + bf16", ladder.FASTER)
    assert (row["gain"], row["low"], row["high"], row["repeats"]) == best.gain and len(row["runs"]) == 6
    assert row["accuracy_verdict"] == row["loss_verdict"] == equivalence.EQUAL


def test_one_repeat_has_gains_and_no_intervals() -> None:
    study, runs, _ = ladders.ladder(STEPS, repeats=[1])
    table = ladder.gains(runs, study)
    assert list(table.alone) == pytest.approx(list(STEPS.values()))
    assert table[["alone_low", "together_high"]].isna().all().all()


def test_a_missing_run_takes_its_pair_only() -> None:
    study, runs, _ = ladders.ladder(STEPS, noise=jitter)
    table = ladder.gains(runs[runs.run_id != "plain-r2"], study).set_index("step")
    assert table.repeats["bf16"] == 2
    assert table.marginal_low["bf16"] == ladder.gains(runs, study).set_index("step").marginal_low["bf16"]
    none = ladder.gains(runs[~runs.run_id.str.startswith("plain")], study).set_index("step")
    assert none.alone.isna().all() and none.marginal["bf16"] == pytest.approx(2.0, rel=0.03)


def test_a_rung_that_was_not_measured_does_not_break_the_next() -> None:
    study, runs, _ = ladders.ladder(STEPS)
    table = ladder.gains(runs[~runs.run_id.str.startswith("upto-layout")], study).set_index("step")
    assert np.isnan(table.together["layout"])
    assert table.before.to_dict() == {"loader": "plain", "layout": "loader", "bf16": "loader"}
    assert (table.marginal["bf16"], table.together["bf16"]) == pytest.approx((2.2, 3.3))
    assert (table.memory["bf16"], table.warmup["bf16"]) == pytest.approx((1.21, 2.0))


def test_runs_of_another_torch_or_machine_are_no_pair_and_other_code_is_listed() -> None:
    study, runs, _ = ladders.ladder(STEPS)
    runs = runs.assign(digest="old", torch="2.13.0")
    later = runs.run_id.str.startswith("upto-bf16")
    listed = ladder.left_out(runs.assign(digest=later.map({True: "new", False: "old"})), study)
    assert listed == ["the runs were measured by 2 states of the code: new, old"]
    runs.loc[later, ["torch", "throughput"]] = "2.14.0", 1e6
    table = ladder.gains(runs, study).set_index("step")
    assert np.isnan(table.together["bf16"]) and table.together["layout"] == pytest.approx(1.65)
    assert ladder.left_out(runs, study) == [
        "3 of 18 runs are left out, not measured by the same: torch 2.14.0, not 2.13.0"
    ]
    assert ladder.left_out(runs[~later], study) == []
    assert (
        "device_name Y, not X"
        in ladder.left_out(runs.assign(device_name=later.map({True: "Y", False: "X"})), study)[0]
    )


def test_an_interval_is_told_in_words() -> None:
    told = [ladder.verdict(*ends) for ends in ((1.1, 1.2), (0.8, 0.9), (0.9, 1.1), (np.nan, np.nan))]
    assert told == [ladder.FASTER, ladder.SLOWER, ladder.NOISE, ladder.SINGLE]


def test_profiled_runs_are_no_rungs() -> None:
    study, runs, _ = ladders.ladder(STEPS)
    assert ladder.rungs(runs.assign(profile="torch"), study).empty


def test_where_a_step_s_time_goes() -> None:
    study, runs, epochs = ladders.ladder(STEPS)
    parts = ladder.profile(runs, epochs, study).set_index("step")
    assert list(parts.runs["bf16"]) == [f"upto-bf16-r{repeat}" for repeat in (1, 2, 3)]
    parts = parts.drop(columns="runs")
    assert list(parts.index) == ["plain", *STEPS]
    assert parts.loc["plain"].to_dict() == pytest.approx({"data": 1, "forward": 2, "backward": 4, "optimizer": 1})
    assert parts.backward["bf16"] == pytest.approx(4 / 3.3)


def test_an_epoch_s_first_step_does_not_lengthen_the_mean_step() -> None:
    """Of the steps whose phases were timed it is one of few: their mean is longer than that of all steps."""
    study, runs, epochs = ladders.ladder(STEPS)
    parts = ladder.profile(runs, epochs.assign(step_mean=epochs.step_mean / 2), study).set_index("step")
    parts = parts.drop(columns="runs")
    assert parts.loc["plain"].to_dict() == pytest.approx({"data": 0.5, "forward": 1, "backward": 2, "optimizer": 0.5})
    unknown = epochs.assign(forward_seconds=None, backward_seconds=None, optimizer_seconds=None)
    assert ladder.profile(runs, unknown, study).set_index("step").data["plain"] == pytest.approx(1)
