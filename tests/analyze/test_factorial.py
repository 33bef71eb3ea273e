"""Full factorials whose effects are known, against least squares, and incomplete ones."""

from __future__ import annotations

import itertools
import math
import zlib

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze import factorial
from hpc_utils.analyze.targets import MET, MISSED, UNDECIDED
from hpc_utils.records.study import NotApplicable

from . import ladders

LEVELS = {"bucket_mb": [25.0, 1.0, 0.1], "batch_per_device": [64, 128], "precision": ["fp32", "bf16", "fp16"]}


def noisy(point: dict, repeat: int) -> float:
    """Batch gains 1.5; bf16 1.2, but 1.8 at the larger batch; the bucket nothing; one repeat is 30 % slower."""
    gain = 1.5 if point["batch_per_device"] == 128 else 1.0
    if point["precision"] == "bf16":
        gain *= 1.8 if point["batch_per_device"] == 128 else 1.2
    generator = np.random.default_rng(zlib.crc32(f"{point}{repeat}".encode()))
    return 1000 * gain * (0.7 if repeat == 2 else 1) * math.exp(generator.normal(0, 0.01))


def exact(point: dict, repeat: int) -> float:
    return (
        1000
        * {64: 1.0, 128: 1.5}[point["batch_per_device"]]
        * {"fp32": 1.0, "bf16": 1.2, "fp16": 0.5}[point["precision"]]
    )


def designed(speed=noisy, **more) -> factorial.Design:
    study, runs = ladders.factorial(LEVELS, speed, **more)
    return factorial.design(runs, study)


def test_the_factors_are_what_the_runs_differ_in() -> None:
    assert designed().levels == LEVELS


def test_of_a_study_the_series_that_combine_options_are_factorials() -> None:
    study, runs = ladders.factorial(LEVELS, exact)
    changes = [{"series": "scaling", "ranks": number % 3 + 1} for number in range(len(study.runs))]
    other = [run.model_copy(update=change) for run, change in zip(study.runs, changes, strict=True)]
    alone = [study.runs[0].model_copy(update={"series": "plain"})]
    several = study.model_copy(update={"runs": study.runs + other + alone})
    assert list(factorial.designs(runs, several)) == ["s"]


def test_main_effects_without_noise_are_what_was_put_in() -> None:
    table = factorial.main_effects(designed(exact)).set_index(["factor", "level"]).gain
    assert table["batch_per_device", 128] == pytest.approx(1.5)
    assert table["precision", "fp16"] == pytest.approx(0.5)
    assert table["bucket_mb", 0.1] == pytest.approx(1.0)
    split = factorial.effects(designed(exact)).set_index("effect")
    assert split.share[["bucket_mb", "batch_per_device", "precision"]].sum() == pytest.approx(1)
    assert split.share[[name for name in split.index if " x " in name]].max() < 1e-12


def dummies(values: pd.DataFrame, *terms: tuple[str, ...]) -> np.ndarray:
    """The design matrix of those terms, by indicator columns."""
    columns = [np.ones(len(values))]
    for term in terms:
        joined = values[list(term)].astype(str).agg("|".join, axis=1)
        columns += [(joined == one).to_numpy(float) for one in sorted(set(joined))]
    return np.stack(columns, axis=1)


def test_the_split_is_that_of_least_squares() -> None:
    """Each term's sum of squares is what the residual loses by it: the design is balanced."""
    found = designed()
    logs, values = np.log(found.values.throughput.to_numpy(float)), found.values

    def residual(*terms: tuple[str, ...]) -> float:
        matrix = dummies(values, *terms)
        return float(((logs - matrix @ np.linalg.lstsq(matrix, logs, rcond=None)[0]) ** 2).sum())

    split, total = factorial.effects(found).set_index("effect"), residual()
    names = list(LEVELS)
    for name in names:
        assert split.share[name] == pytest.approx((total - residual((name,))) / total)
    for one, other in itertools.combinations(names, 2):
        gained = residual((one,), (other,)) - residual((one, other))
        assert split.share[f"{one} x {other}"] == pytest.approx(gained / total)
    everything = residual(tuple(names), ("repeat",))
    assert split.share[factorial.NOISE] == pytest.approx(everything / total)
    assert split.share.sum() == pytest.approx(1)
    assert split.freedom.sum() == 3 * 18 - 1


def test_only_the_interaction_that_was_put_in_is_beyond_noise() -> None:
    split = factorial.effects(designed()).set_index("effect")
    assert set(split.index[split.beyond]) == {"batch_per_device", "precision", "batch_per_device x precision"}
    table = factorial.interactions(designed()).set_index(["first", "first_level", "second", "second_level"])
    row = table.loc["batch_per_device", 128, "precision", "bf16"]
    assert row.low < 1.5 < row.high and row.high / row.low < 1.1
    assert (
        table.loc["bucket_mb", 0.1, "batch_per_device", 128].low
        < 1
        < table.loc["bucket_mb", 0.1, "batch_per_device", 128].high
    )


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    study, runs = ladders.factorial(LEVELS, exact)
    generator, held = np.random.default_rng(0), []
    for _ in range(200):
        own = runs.assign(throughput=runs.throughput * np.exp(generator.normal(0, 0.05, len(runs))))
        row = (
            factorial.main_effects(factorial.design(own, study))
            .set_index(["factor", "level"])
            .loc["precision", "bf16"]
        )
        held.append(row.low < 1.2 < row.high)
    assert 0.90 < np.mean(held) < 0.99


def test_the_best_point_is_judged_against_the_first_levels() -> None:
    best = factorial.best(designed(), 0.2)
    assert best.reference == {"bucket_mb": 25.0, "batch_per_device": 64, "precision": "fp32"}
    assert (best.point["batch_per_device"], best.point["precision"], best.verdict) == (128, "bf16", MET)
    assert best.low < 2.7 < best.high
    assert factorial.best(designed(), 3.0).verdict == MISSED
    assert factorial.best(designed(), best.gain - 1).verdict == UNDECIDED
    (row,) = factorial.best_table(designed(), 0.2).to_dict("records")
    assert (row["gain"], row["low"], row["high"], row["verdict"]) == (best.gain, best.low, best.high, MET)
    assert (row["repeats"], row["target"], len(row["runs"])) == (3, 1.2, 54) and "precision=bf16" in row["point"]
    slower = designed(lambda point, repeat: 1000 if tuple(point.values()) == (25.0, 64, "fp32") else 900 + repeat)
    assert (factorial.best(slower, 0.2).gain, factorial.best(slower, 0.2).verdict) == (1.0, MISSED)


@pytest.mark.parametrize(("noise", "verdict"), [(0.001, MISSED), (0.3, UNDECIDED)])
def test_a_reference_that_is_the_fastest_is_judged_by_the_others_intervals(noise: float, verdict: str) -> None:
    def speed(point: dict, repeat: int) -> float:
        strays = (zlib.crc32(str(point).encode()) + repeat) % 3 - 1  # over the repeats by nothing
        return (1100 if tuple(point.values()) == (25.0, 64, "fp32") else 1000) * math.exp(noise * strays)

    best = factorial.best(designed(speed), 0.2)
    assert (best.point, best.gain, best.verdict) == (best.reference, 1.0, verdict)
    assert np.isnan([best.low, best.high]).all()


def test_without_the_reference_the_target_cannot_be_judged() -> None:
    rest = factorial.complete(designed(exact, without=lambda point, repeat: point["precision"] == "fp32"))
    found = factorial.best(rest, 0.2)
    assert rest.levels["precision"] == ["bf16", "fp16"]
    assert (found.verdict, found.why) == (UNDECIDED, "the reference (precision=fp32) was not measured completely")
    alone = factorial.complete(designed(exact, without=lambda point, repeat: point["precision"] in ("fp32", "fp16")))
    assert "precision=fp32" in factorial.best(alone, 0.2).why


def test_a_failed_run_does_not_cost_the_only_other_repeats() -> None:
    """A run failed in each of two repeats: one repeat alone would hold all points, and tell nothing of noise."""
    gone = {(2, (0.1, 128, "fp16")), (3, (0.1, 64, "fp16"))}
    rest = factorial.complete(designed(without=lambda point, repeat: (repeat, tuple(point.values())) in gone))
    assert set(rest.values.repeat) == {1, 2, 3} and len(rest.values) == 36
    one = {(2, (0.1, 128, "fp16"))}
    rest = factorial.complete(designed(without=lambda point, repeat: (repeat, tuple(point.values())) in one))
    assert rest.levels == LEVELS and rest.left_out == ["repeat=2 is left out: 17 of its 18 runs were measured"]


def test_runs_of_another_torch_are_no_part_of_the_design_and_other_code_is_listed() -> None:
    study, runs = ladders.factorial(LEVELS, exact)
    other = runs.repeat == 3
    found = factorial.design(runs.assign(torch=other.map({True: "2.14", False: "2.13"})), study)
    assert set(found.values.repeat) == {1, 2}
    assert found.left_out == ["18 of 54 runs are left out, not measured by the same: torch 2.14, not 2.13"]
    found = factorial.design(runs.assign(digest=other.map({True: "new", False: "old"})), study)
    assert set(found.values.repeat) == {1, 2, 3}
    assert found.left_out == ["the runs were measured by 2 states of the code: new, old"]


def test_a_level_is_the_same_number_however_it_was_written() -> None:
    study, runs = ladders.factorial(LEVELS, exact)
    values = [{"bucket_mb": 25, "precision": precision} for precision in ("fp32", "fp8")]
    barred = [NotApplicable(series="s", ranks=2, values=own, why="no units") for own in values]
    found = factorial.design(runs, study.model_copy(update={"not_applicable": barred}))
    assert found.left_out == ["precision=fp8 is not applicable there"]


def test_one_repeat_has_effects_and_no_intervals() -> None:
    found = designed(repeats=[1])
    assert factorial.main_effects(found).low.isna().all()
    assert not factorial.effects(found).beyond.any()
    best = factorial.best(found, 0.2)
    assert best.verdict == UNDECIDED


def test_a_missing_point_is_refused_by_name_and_its_level_left_out() -> None:
    found = designed(without=lambda point, repeat: tuple(point.values()) == (1.0, 64, "fp16"))
    with pytest.raises(factorial.Incomplete, match="3 of 54 runs"):
        factorial.effects(found)
    rest = factorial.complete(found)
    assert rest.left_out == ["precision=fp16 is left out: 15 of its 18 runs were measured"]
    assert len(rest.values) >= 3 * 12
    assert factorial.effects(rest).share.sum() == pytest.approx(1)


def test_an_unmeasured_level_costs_no_other() -> None:
    rest = factorial.complete(designed(without=lambda point, repeat: point["precision"] == "bf16"))
    assert rest.levels == LEVELS | {"precision": ["fp32", "fp16"]}


def test_a_repeat_that_was_broken_off_is_left_out() -> None:
    rest = factorial.complete(
        designed(without=lambda point, repeat: repeat == 3 and point["batch_per_device"] == 128)
    )
    assert rest.levels == LEVELS and set(rest.values.repeat) == {1, 2}
    assert rest.left_out == ["repeat=3 is left out: 9 of its 18 runs were measured"]


def test_a_single_level_is_no_factor_and_nothing_is_no_design() -> None:
    rest = factorial.complete(designed(without=lambda point, repeat: point["batch_per_device"] == 128))
    assert "batch_per_device" not in rest.levels
    assert "batch_per_device is no factor: 64 alone is left of it" in rest.left_out
    assert factorial.main_effects(rest).factor.nunique() == 2
    one = designed(without=lambda point, repeat: tuple(point.values()) != (25.0, 64, "fp32"))
    with pytest.raises(factorial.Incomplete, match="no parameter has two values"):
        factorial.complete(one)
    study, runs = ladders.factorial(LEVELS, exact)
    with pytest.raises(factorial.Incomplete, match="nothing is complete"):
        factorial.complete(factorial.design(runs.iloc[:0], study))
    alone = study.model_copy(update={"runs": study.runs[:1]})
    with pytest.raises(ValueError, match="differ in no parameter"):
        factorial.design(runs, alone)
