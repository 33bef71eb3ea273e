"""A run and its repeats by hand, made again: what agrees, what differs, what is inconclusive."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from companions.verification import comparison
from companions.verification.comparison import AGREE, DIFFER, NOT_JUDGED, UNKNOWN, Side, overall, within
from hpc_utils.analyze import stats
from hpc_utils.records.study import Targets
from tests.analyze.runs import run

LOSS = {0: (2.0, 1.0), 1: (2.2, 1.1), 2: (1.9, 0.9)}  # by seed: of two epochs


def side(seconds: list[float], seeds: list[int] | None = None, **other) -> Side:
    """Runs of those times, and two epochs each whose losses are `LOSS` of their seeds, changed by `loss` in the second."""
    loss, accuracy, steps = other.pop("loss", 0.0), other.pop("accuracy", 0.9), other.pop("steps_each", 5)
    scale = other.pop("scale", 1.0)
    rows, epochs = [], []
    for number, taken in enumerate(seconds):
        seed = (seeds or [0] * len(seconds))[number]
        row = run(2, taken, seed=seed, step_p50=taken / 10, parameters=7, torch="2", digest="d")
        row |= {"run_id": f"r{number}"} | other
        rows.append(row)
        epochs += [
            {"run_id": row["run_id"], "epoch": epoch, "samples": 512 * steps, "steps": steps, "seconds": taken / 2,
             "train_loss": scale * LOSS[seed][epoch - 1] + loss * (epoch - 1), "test_loss": None, "test_accuracy": accuracy}
            for epoch in (1, 2)
        ]  # fmt: skip
    return Side.of(pd.DataFrame(rows), pd.DataFrame(epochs))


def judged(then: Side, now: Side, **options) -> dict[str, comparison.Judgement]:
    return {one.quantity: one for one in comparison.compare("r0", then, now, **options)}


THEN = side([10.0, 10.1, 9.9], [0, 1, 2])


def test_the_same_numbers_agree() -> None:
    found = judged(THEN, side([10.05, 9.95, 10.0]))
    assert {one.verdict for one in found.values()} == {AGREE} and overall(list(found.values())) == AGREE
    assert found["throughput"].low < 1 < found["throughput"].high and found["throughput"].then_runs == 3
    assert "test_loss" not in found, "it was never evaluated"


@pytest.mark.parametrize(
    ("estimate", "verdict"),
    [
        ((1.0, 0.95, 1.05), AGREE),
        ((1.05, 1.02, 1.08), AGREE),  # not 1, but within the tolerance
        ((1.019, 0.918, 1.13), UNKNOWN),
        ((1.05, 0.90, 1.08), UNKNOWN),  # below 1/1.1
        ((1.5, 1.08, 2.1), UNKNOWN),
        ((1.5, 1.2, 1.9), DIFFER),
        ((0.8, 0.7, 0.9), DIFFER),
        ((1.0, math.nan, math.nan), UNKNOWN),
    ],
)
def test_a_time_agrees_only_if_its_whole_interval_is_within_the_tolerance(estimate: tuple, verdict: str) -> None:
    assert within(stats.Estimate(*estimate, 3), 0.1)[0] == verdict


def test_noise_is_not_agreement_and_a_slower_machine_differs() -> None:
    noisy = judged(THEN, side([8.0, 10.0, 12.5]))
    assert noisy["throughput"].verdict == overall(list(noisy.values())) == UNKNOWN
    slower = judged(THEN, side([15.0, 15.1, 14.9]))
    assert slower["throughput"].verdict == slower["step_p50"].verdict == overall(list(slower.values())) == DIFFER
    assert slower["throughput"].ratio == pytest.approx(2 / 3) and slower["train_loss"].verdict == AGREE
    assert judged(THEN, side([15.0, 15.1, 14.9]), tolerance=0.6)["throughput"].verdict == AGREE


def test_a_single_run_varies_as_the_others_do() -> None:
    alone = side([10.0])
    found = judged(alone, side([10.05, 9.95, 10.0]))["throughput"]
    assert (found.verdict, found.then_runs) == (AGREE, 1) and "a single run" in found.why
    # By hand: t(2) = 4.3027, the standard deviation of the logs is 0.005, and sqrt(1 + 1/3).
    assert math.log(found.high / found.ratio) == pytest.approx(4.3027 * 0.005 * math.sqrt(4 / 3), rel=1e-3)
    assert judged(alone, side([10.0]))["throughput"].verdict == UNKNOWN


@pytest.mark.parametrize(
    ("then", "change", "verdict"),
    [
        (THEN, {"loss": 0.15}, AGREE),  # another seed makes 0.2
        (THEN, {"loss": 0.25}, DIFFER),
        (side([10.0]), {"loss": 0.04}, AGREE),  # 5 % of 1 without other seeds
        (side([10.0]), {"loss": 0.06}, DIFFER),
        (side([10.0]), {"loss": 0.06, "margins": Targets(loss_margin=0.1)}, AGREE),
        (side([10.0], scale=10.0), {"loss": 0.4, "scale": 10.0}, AGREE),  # a loss's margin is a share of it
        (THEN, {"seeds": [1]}, UNKNOWN),  # another seed is another loss
    ],
)
def test_a_loss_may_differ_by_what_another_seed_makes_or_the_margin_allows(then, change, verdict) -> None:
    options = {"margins": change.pop("margins")} if "margins" in change else {}
    assert judged(then, side([10.0], **change), **options)["train_loss"].verdict == verdict


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.896, AGREE), (0.89, DIFFER)])
def test_the_margin_of_accuracy_is_half_a_point(accuracy: float, verdict: str) -> None:
    assert judged(THEN, side([10.0], accuracy=accuracy))["test_accuracy"].verdict == verdict


def test_other_work_differs() -> None:
    found = judged(THEN, side([10.0, 10.0], steps_each=4))
    assert found["samples"].verdict == found["steps"].verdict == DIFFER
    assert found["steps"].then == 10 and found["steps"].now == 8


@pytest.mark.parametrize("other", [{"hardware_id": "g"}, {"restarts": 1}, {"oversubscribed": True}])
def test_times_that_need_not_agree_are_shown_and_not_judged(other: dict) -> None:
    found = judged(THEN, side([30.0, 31.0], **other))
    assert found["throughput"].verdict == NOT_JUDGED and found["throughput"].why
    assert found["throughput"].ratio == pytest.approx(1 / 3, rel=0.05)
    assert found["train_loss"].verdict == AGREE, "what is computed should be the same anywhere"
    assert overall(list(found.values())) == AGREE


def test_memory_is_judged_where_torch_is_the_same() -> None:
    less = {"peak_rss_bytes": 300 * 2**20}
    assert judged(THEN, side([10.0, 10.0], **less))["peak resident memory"].verdict == DIFFER
    other = judged(THEN, side([10.0, 10.0], torch="3", **less))
    assert other["peak resident memory"].verdict == NOT_JUDGED and other["throughput"].verdict == AGREE
    assert judged(THEN, side([10.0], peak_rss_bytes=None))["peak resident memory"].verdict == NOT_JUDGED


def test_repeats_are_of_one_configuration_and_one_state() -> None:
    other = [{"torch": "3"}, {"link_gbit": 1.0}, {"precision": "bf16"}]
    more = [side([9.0], run_id=f"x{number}", **one).runs for number, one in enumerate(other)]
    runs = pd.concat([THEN.runs, *more], ignore_index=True)
    assert comparison.alike(runs, runs.iloc[0], one_state=True).run_id.tolist() == ["r0", "r1", "r2"]
    assert comparison.alike(runs, runs.iloc[0], one_state=False).run_id.tolist() == ["r0", "r1", "r2", "x0"]
