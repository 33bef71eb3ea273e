"""Full factorials whose effects are known, against least squares, and incomplete ones."""

from __future__ import annotations

import itertools
import math
import zlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from companions.sensitivity import factorial
from hpc_utils.analyze.decide import Verdict
from hpc_utils.records.study import NotApplicable

from . import designs

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
    study, runs = designs.factorial(LEVELS, speed, **more)
    return factorial.designs(runs, study)["s"]


def best(design: factorial.Design, target: float) -> pd.Series:
    return factorial.best(design, target).iloc[0]


def test_a_parameter_of_a_users_own_loop_is_a_factor() -> None:
    study, runs = designs.factorial({"accum": [1, 2], "precision": ["fp32", "bf16"]}, lambda point, repeat: 100.0)
    own = [run.model_copy(update={"parameters": run.parameters | {"workload_args": {"accum": run.parameters["accum"]}, "accum": None}})
           for run in study.runs]  # fmt: skip
    design = factorial.designs(runs, study.model_copy(update={"runs": own}))["s"]
    assert design.levels == {"accum": [1, 2], "precision": ["fp32", "bf16"]}


def test_of_a_study_the_series_that_combine_options_are_factorials() -> None:
    study, runs = designs.factorial(LEVELS, exact)
    scaling = [run.model_copy(update={"series": "scaling", "ranks": n % 3 + 1}) for n, run in enumerate(study.runs)]
    values = {"bucket_mb": 25, "precision": "fp8"}  # 25 is the level 25.0
    barred = [NotApplicable(series="s", ranks=2, values=values, why="no units")]
    several = study.model_copy(update={"runs": study.runs + scaling, "not_applicable": barred})
    ((series, found),) = factorial.designs(runs.assign(torch="2.13"), several).items()
    assert (series, found.levels) == ("s", LEVELS)
    assert found.left_out == ["precision=fp8 is not applicable there"]
    mixed = factorial.designs(runs.assign(torch=(runs.repeat == 3).map({True: "2.14", False: "2.13"})), study)["s"]
    assert set(mixed.values.repeat) == {1, 2} and "18 of 54" in mixed.left_out[0]


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
    assert split.share.sum() == pytest.approx(1) and split.freedom.sum() == 3 * 18 - 1
    row = factorial.main_effects(found).set_index(["factor", "level"]).loc["precision", "bf16"]
    half = scipy.stats.t.ppf(0.975, 34) * math.sqrt(everything / 34 * 2 / 18)  # 18 runs a level
    assert math.log(row.gain_high / row.gain) == pytest.approx(half) == math.log(row.gain / row.gain_low)


def test_only_the_interaction_that_was_put_in_is_beyond_noise() -> None:
    split = factorial.effects(designed()).set_index("effect")
    assert set(split.index[split.beyond]) == {"batch_per_device", "precision", "batch_per_device x precision"}
    table = factorial.interactions(designed()).set_index(["first", "first_level", "second", "second_level"])
    row = table.loc["batch_per_device", 128, "precision", "bf16"]
    assert row.beyond_low < 1.5 < row.beyond_high and row.beyond_high / row.beyond_low < 1.1
    none = table.loc["bucket_mb", 0.1, "batch_per_device", 128]
    assert none.beyond_low < 1 < none.beyond_high


def test_the_best_point_is_judged_against_the_first_levels() -> None:
    row = best(designed(), 0.2)
    assert row.reference == "bucket_mb=25.0, batch_per_device=64, precision=fp32"
    assert row.point.endswith("batch_per_device=128, precision=bf16") and row.verdict == Verdict.MET
    assert row.gain_low < 2.7 < row.gain_high
    assert (row.repeats, row.target, len(row.runs)) == (3, 1.2, 54)
    assert best(designed(), 3.0).verdict == Verdict.MISSED
    assert best(designed(), row.gain - 1).verdict == Verdict.UNDECIDED


@pytest.mark.parametrize(("noise", "verdict"), [(0.001, Verdict.MISSED), (0.3, Verdict.UNDECIDED)])
def test_a_reference_that_is_the_fastest_is_judged_by_the_others_intervals(noise: float, verdict: str) -> None:
    def speed(point: dict, repeat: int) -> float:
        strays = (zlib.crc32(str(point).encode()) + repeat) % 3 - 1  # over the repeats by nothing
        return (1100 if tuple(point.values()) == (25.0, 64, "fp32") else 1000) * math.exp(noise * strays)

    row = best(designed(speed), 0.2)
    assert (row.point, row.gain, row.verdict) == (row.reference, 1.0, verdict)
    assert np.isnan([row.gain_low, row.gain_high]).all()


def test_without_the_reference_the_target_cannot_be_judged() -> None:
    rest = designed(exact, without=lambda point, repeat: point["precision"] == "fp32")
    found = best(rest, 0.2)
    assert rest.levels["precision"] == ["bf16", "fp16"]
    assert found.verdict == Verdict.UNDECIDED and "precision=fp32" in found.why


def test_one_repeat_has_effects_and_no_intervals() -> None:
    found = designed(repeats=[1])
    assert factorial.main_effects(found).gain_low.isna().all() and not factorial.effects(found).beyond.any()
    assert best(found, 0.2).verdict == Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("gone", "levels", "repeats", "left_out"),
    [
        (lambda point, repeat: point == (1.0, 64, "fp16"), {"precision": ["fp32", "bf16"]}, {1, 2, 3},
         ["precision=fp16 is left out: 15 of its 18 runs were measured"]),
        (lambda point, repeat: repeat == 3 and point[1] == 128, {}, {1, 2},
         ["repeat=3 is left out: 9 of its 18 runs were measured"]),
        # Of two repeats one run each is missing: one repeat alone would hold all points, and show nothing of noise.
        (lambda point, repeat: (repeat, point) in {(2, (0.1, 128, "fp16")), (3, (0.1, 64, "fp16"))},
         {"bucket_mb": [25.0, 1.0]}, {1, 2, 3}, None),
        (lambda point, repeat: point[1] == 128, {"batch_per_device": None}, {1, 2, 3},
         ["batch_per_device=128 is left out: 0 of its 27 runs were measured",
          "batch_per_device is no factor: 64 alone is left of it"]),
    ],
)  # fmt: skip
def test_what_was_not_measured_completely_is_left_out(gone, levels: dict, repeats: set, left_out: list) -> None:
    rest = designed(without=lambda point, repeat: gone(tuple(point.values()), repeat))
    assert rest.levels == {name: own for name, own in (LEVELS | levels).items() if own}
    assert set(rest.values.repeat) == repeats and left_out in (None, rest.left_out)
    assert factorial.effects(rest).share.sum() == pytest.approx(1)


@pytest.mark.parametrize("measured", [{(25.0, 64, "fp32")}, set()])
def test_without_a_factor_there_is_no_design(measured: set) -> None:
    study, runs = designs.factorial(LEVELS, exact)
    own = runs[[tuple(run.parameters[name] for name in LEVELS) in measured for run in study.runs]]
    design = factorial.designs(own, study)["s"]
    assert design.levels == {} and "no parameter has two values" in design.left_out[0]


def test_a_level_may_be_the_absence_of_a_value() -> None:
    levels = {"link_gbit": [None, 1.0], "precision": ["fp32", "bf16"]}
    study, runs = designs.factorial(levels, lambda point, repeat: 1000.0 * (point["link_gbit"] or 2.0) + repeat)
    (design,) = factorial.designs(runs, study).values()
    assert (
        design.levels == levels
        and factorial.main_effects(design).gain[0] > 1.9 * factorial.main_effects(design).gain[1]
    )
