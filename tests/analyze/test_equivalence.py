"""Equal within a margin is shown, not assumed: against t tests by scipy, and at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as reference

from hpc_utils.analyze import equivalence, ladder
from hpc_utils.records.study import Targets

from . import ladders


@pytest.mark.parametrize("seed", range(20))
def test_it_is_two_one_sided_tests(seed: int) -> None:
    generator = np.random.default_rng(seed)
    differences, margin = generator.normal(generator.normal(0, 0.5), 0.5, 5), 0.7
    below = reference.ttest_1samp(differences, -margin, alternative="greater").pvalue
    above = reference.ttest_1samp(differences, margin, alternative="less").pvalue
    zero = reference.ttest_1samp(differences, 0).pvalue
    expected = (
        equivalence.EQUAL if max(below, above) < 0.05 else equivalence.DIFFERS if zero < 0.05 else equivalence.UNKNOWN
    )
    assert equivalence.judge(differences, margin).verdict == expected


def test_all_three_verdicts_are_reached() -> None:
    assert equivalence.judge([0.001, -0.001, 0.0], 0.01).verdict == equivalence.EQUAL
    assert equivalence.judge([0.051, 0.049, 0.05], 0.01).verdict == equivalence.DIFFERS
    assert equivalence.judge([0.05, -0.05, 0.0], 0.01).verdict == equivalence.UNKNOWN


def test_one_pair_shows_nothing_and_the_same_bits_are_equal() -> None:
    assert equivalence.judge([0.0], 0.01).verdict == equivalence.UNKNOWN
    assert equivalence.judge([], 0.01).verdict == equivalence.UNKNOWN
    same = equivalence.judge([0.0] * 3, 0.01)
    assert (same.verdict, same.low, same.high) == (equivalence.EQUAL, 0, 0)
    with pytest.raises(ValueError, match="a margin is positive"):
        equivalence.judge([0.0] * 3, 0)


def test_a_small_sure_difference_within_the_margin_is_equal() -> None:
    assert equivalence.judge([0.0021, 0.002, 0.0019], 0.01).verdict == equivalence.EQUAL


def test_rungs_are_compared_with_the_plain_loop_seed_by_seed() -> None:
    """Accuracy differs by 2 points between seeds, and by none between rungs."""
    study, runs, epochs = ladders.ladder({"a": 1.2, "b": 1.1})
    worse = epochs.run_id.str.startswith("upto-b")
    epochs.loc[worse, "test_loss"] *= 1.2
    table = equivalence.table(runs, epochs, study, Targets(accuracy_margin=0.005, loss_margin=0.05))
    verdicts = table.set_index(["step", "measure"]).verdict
    assert verdicts["a", "accuracy"] == verdicts["b", "accuracy"] == verdicts["a", "loss"] == equivalence.EQUAL
    assert verdicts["b", "loss"] == equivalence.DIFFERS
    assert table.words.tolist() == [
        "equal within 0.5 points", "equal within 5 %", "equal within 0.5 points", "differs by 20 %",
    ]  # fmt: skip


def test_a_rung_that_is_no_cumulative_one_is_judged_as_well() -> None:
    study, runs, epochs = ladders.ladder({"slow": 0.5, "fast": 2.0})
    epochs.loc[epochs.run_id.str.startswith("alone-fast"), "test_loss"] *= 1.2
    table = equivalence.table(runs, epochs, study, labels={"alone-fast": "fast alone"})
    assert list(table.step) == ["fast alone"] * 2
    assert list(table.verdict) == [equivalence.EQUAL, equivalence.DIFFERS]


def test_the_fastest_configuration_stands_below_the_cumulative_ones() -> None:
    study, runs, epochs = ladders.ladder({"slow": 0.5, "fast": 2.0})
    best = ladder.best(runs, study)
    table = equivalence.with_best(runs, epochs, study, best)
    assert table.step.tolist() == ["slow", "slow", "fast", "fast", best.name, best.name]
    assert equivalence.with_best(runs, epochs, study, None).equals(equivalence.table(runs, epochs, study))
    row = table[(table.step == best.name) & (table.measure == "accuracy")].iloc[0]
    assert (row.difference, row.repeats, row.verdict) == (0, 3, equivalence.EQUAL)
    assert set(row.runs) == {f"{series}-r{n}" for series in ("plain", best.series) for n in (1, 2, 3)}


def test_without_evaluation_the_training_loss_is_compared() -> None:
    study, runs, epochs = ladders.ladder({"a": 1.2})
    table = equivalence.table(runs, epochs.assign(test_accuracy=None, test_loss=None), study)
    assert (list(table.measure), list(table.plain)) == (["loss"], pytest.approx([0.4]))
    bare = epochs.assign(test_accuracy=None, test_loss=None, train_loss=None)
    assert equivalence.table(runs, bare, study).empty
