"""Verdicts of curves whose efficiency is known."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze import scaling
from hpc_utils.analyze.targets import judge, sentences
from hpc_utils.records.study import NotApplicable, StudyIndex, StudyRun, Targets

from .runs import study


def verdicts(runs: pd.DataFrame, targets: Targets | None = None, kind: str = "strong") -> pd.DataFrame:
    found = judge(scaling.efficiency(runs), targets or Targets())
    return found[found.kind == kind].reset_index(drop=True)


@pytest.mark.parametrize(
    ("efficiency", "expected"), [(0.9, "met"), (0.5, "missed"), (0.7, "undecided"), (0.705, "undecided")]
)
def test_strong_efficiency_is_judged_on_eight_ranks_by_its_interval(efficiency: float, expected: str) -> None:
    (found,) = verdicts(study(strong={"1x4": 0.95, "1x8": efficiency, "1x12": 0.1})).to_dict("records")
    assert (found["verdict"], found["ranks"], found["baseline"]) == (expected, 8, "none")
    assert found["value"] == pytest.approx(efficiency) and found["value_low"] < efficiency < found["value_high"]


@pytest.mark.parametrize(("efficiency", "expected"), [(0.97, "met"), (0.8, "missed"), (0.91, "undecided")])
def test_weak_variation_is_judged_over_all_rank_counts(efficiency: float, expected: str) -> None:
    (found,) = verdicts(study(weak={"1x2": efficiency, "1x8": 0.98}), kind="weak").to_dict("records")
    assert (found["verdict"], found["ranks"], found["layout"]) == (expected, 8, "1x2" if efficiency < 0.98 else "1x8")


def test_weak_points_beyond_the_target_are_not_judged() -> None:
    (found,) = verdicts(study(weak={"1x2": 0.98, "1x8": 0.98, "1x16": 0.5}), kind="weak").to_dict("records")
    assert (found["verdict"], found["ranks"]) == ("met", 8)


def test_each_layout_of_the_rank_count_is_judged() -> None:
    found = verdicts(study(strong={"1x8": 0.9, "2x4": 0.5}))
    assert dict(zip(found.layout, found.verdict, strict=True)) == {"1x8": "met", "2x4": "missed"}


@pytest.mark.parametrize(
    ("curve", "ranks", "verdict"),
    [
        ({"strong": {"1x2": 0.9, "1x4": 0.8}}, 4, "not measured"),
        ({"strong": {"1x12": 0.9}}, 12, "not measured"),
        ({"weak": {"1x2": 0.98}}, 2, "not measured"),
        ({"weak": {"1x2": 0.6}}, 2, "missed"),  # more ranks cannot reduce the variation
        ({"weak": {"1x12": 0.98}}, 12, "met"),
    ],
)
def test_without_eight_ranks_the_largest_count_is_shown(curve: dict, ranks: int, verdict: str) -> None:
    (found,) = verdicts(study(**curve), kind=next(iter(curve))).to_dict("records")
    assert (found["verdict"], found["at_ranks"], found["ranks"]) == (verdict, 8, ranks)


def test_a_target_at_ranks_that_the_study_does_not_contain_is_none_of_it() -> None:
    def index(**fixed: int) -> StudyIndex:
        runs = [StudyRun(run_id=str(ranks), ranks=ranks, parameters=fixed) for ranks in (1, 2, 4)]
        beyond = [NotApplicable(series="s", ranks=8, values={}, why="one machine")] * ("series" in fixed)
        return StudyIndex(runs=runs, targets=Targets(strong_ranks=4, weak_ranks=6), not_applicable=beyond)

    strong, weak = index(global_batch=64), index(batch_per_device=64)
    assert (strong.ranks, weak.ranks) == ({"strong": {1, 2, 4}, "weak": set()}, {"strong": set(), "weak": {1, 2, 4}})
    assert (strong.scaling_targets.strong_ranks, strong.scaling_targets.weak_ranks) == (4, None)
    assert (weak.scaling_targets.strong_ranks, weak.scaling_targets.weak_ranks) == (None, None)
    assert index(batch_per_device=64, series=1).scaling_targets.weak_ranks == 6, "planned, though not possible here"
    found = judge(scaling.efficiency(study(strong={"1x2": 0.9}, weak={"1x2": 0.9})), strong.scaling_targets)
    assert (
        set(found.kind) == {"strong"}
        and judge(scaling.efficiency(study(strong={"1x2": 0.9})), weak.scaling_targets).empty
    )


def test_single_runs_decide_nothing() -> None:
    runs = study(strong={"1x8": 0.9}, weak={"1x8": 0.99})
    found = judge(scaling.efficiency(runs[runs.repeat == 1]), Targets())
    assert set(found.verdict) == {"undecided"} and found.why.str.contains("a single run").all()
    assert found.value_low.isna().all()


def test_a_target_without_a_curve_has_its_row() -> None:
    (found,) = verdicts(study(weak={"1x2": 0.98})).to_dict("records")
    assert found["verdict"] == "not measured" and "`hpc study run`" in found["why"]
    assert math.isnan(found["value"])


def test_a_sentence_names_the_variant() -> None:
    runs = study(strong={"1x8": 0.9})
    both = [runs.assign(run_id=runs.run_id + width, settings=f'workload_args={{"width": {width}}}') for width in "12"]
    lines = [
        line for line in sentences(judge(scaling.efficiency(pd.concat(both)), Targets())) if line.startswith("strong")
    ]
    assert [("width=1" in line, "width=2" in line) for line in lines] == [(True, False), (False, True)]
    assert any("not measured" in line for line in sentences(judge(scaling.efficiency(runs), Targets())))


def test_a_study_s_own_targets_are_the_ones_judged() -> None:
    targets = Targets(strong_efficiency=0.95, strong_ranks=4)
    assert targets.weak_ranks == Targets().weak_ranks == 8
    (found,) = verdicts(study(strong={"1x4": 0.9, "1x8": 0.99}), targets).to_dict("records")
    assert (found["verdict"], found["ranks"], found["required"]) == ("missed", 4, 0.95)


def test_a_study_may_have_no_targets() -> None:
    none = Targets(strong_ranks="none", weak_ranks="none")
    assert verdicts(study(strong={"1x8": 0.9}, weak={"1x8": 0.9}), none).empty
    assert Targets(**none.model_dump()) == none


def test_ddp_on_one_rank_replaces_a_baseline_that_was_not_measured() -> None:
    runs = study(strong={"1x8": 0.9})
    (found,) = verdicts(runs[runs.parallel == "ddp"]).to_dict("records")
    assert found["baseline"] == "ddp" and found["value"] == pytest.approx(0.9 * 1.02)
    (sentence,) = scaling.sentences(scaling.efficiency(runs[runs.parallel == "ddp"]))
    assert all("DDP on one rank" in words for words in (sentence, found["why"]))
    (sentence,), (usual,) = scaling.sentences(scaling.efficiency(runs)), verdicts(runs).to_dict("records")
    assert usual["baseline"] == "none" and not any("DDP" in words for words in (sentence, usual["why"]))
    assert set(scaling.workshop(runs[runs.parallel == "ddp"]).baseline.dropna()) == {"ddp"}
