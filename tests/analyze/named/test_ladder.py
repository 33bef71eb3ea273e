"""A ladder's named values are its gains, costs and verdicts."""

from __future__ import annotations

import pytest

from hpc_utils.analyze import equivalence, ladder
from hpc_utils.analyze.named import ladder as named

from .. import ladders

STEPS = {"whole": 2.0, "bf16": 1.5}


@pytest.fixture
def made():
    return ladders.ladder(
        STEPS, barred={"graphs": "no CUDA graphs"} | {}, noise=lambda series, repeat: 1 + 0.001 * repeat
    )


def by_name(values):
    found = {value.name: value for value in values}
    assert len(found) == len(values)
    return found


def test_gains_alone_in_place_and_together(made):
    study, runs, _ = made
    table = ladder.gains(runs, study)
    found = by_name(named.gains(table, "made-up"))
    row = table[table.step == "bf16"].iloc[0]
    gain = found["ladder.made-up.gain.bf16"]
    assert (gain.value, gain.low, gain.high, gain.repeats) == (row.marginal, row.marginal_low, row.marginal_high, 3)
    assert set(gain.runs) == {
        f"{series}-r{repeat}" for series in ("alone-whole", "upto-bf16") for repeat in (1, 2, 3)
    }
    assert found["ladder.made-up.together.bf16"].value == pytest.approx(3.0)
    assert set(found["ladder.made-up.alone.bf16"].runs) == {
        f"{one}-r{n}" for one in ("plain", "alone-bf16") for n in (1, 2, 3)
    }
    assert found["ladder.made-up.gain-verdict.bf16"].value == "faster"
    assert found["ladder.made-up.memory.bf16"].value == pytest.approx(1.1)


def test_the_fastest_rung(made):
    study, runs, epochs = made
    best = ladder.best(runs, study)
    learnt = equivalence.table(runs, epochs, study, labels={best.series: best.name})
    found = by_name(named.best(best, learnt, "made-up"))
    assert found["ladder.made-up.best.gain"].value == best.gain.value == pytest.approx(3.0)
    assert found["ladder.made-up.best.steps"].value == "whole + bf16"
    assert found["ladder.made-up.best.accuracy"].value.startswith("equal within")
    assert len(found["ladder.made-up.best.gain"].runs) == 6


def test_speeds_and_phases_of_each_rung(made):
    study, runs, epochs = made
    speeds = ladder.speeds(runs, study)
    found = by_name(named.speeds(speeds, "made-up") + named.phases(ladder.profile(runs, epochs, study), "made-up"))
    assert found["ladder.made-up.throughput.plain"].value == speeds.throughput.iloc[0]
    assert found["ladder.made-up.step-seconds.plain"].value == pytest.approx(speeds.step_ms.iloc[0] / 1e3)
    assert found["ladder.made-up.phase.backward.plain"].value == pytest.approx(4e-3, rel=0.01)
    assert set(found["ladder.made-up.throughput.bf16"].runs) == {f"upto-bf16-r{n}" for n in (1, 2, 3)}


def test_what_is_learnt_has_its_90_percent_interval_by_name_and_none_of_95(made):
    study, runs, epochs = made
    noisy = epochs.assign(test_accuracy=epochs.test_accuracy + 0.001 * (epochs.index % 3))
    table = equivalence.table(runs, noisy, study)
    found = by_name(named.learnt(table, "made-up"))
    row = table[(table.step == "bf16") & (table.measure == "accuracy")].iloc[0]
    difference = found["ladder.made-up.accuracy-difference.bf16"]
    assert difference.value == row.difference and not difference.has_interval and difference.repeats == 3
    assert found["ladder.made-up.accuracy-difference-from.bf16"].value == row.low
    assert found["ladder.made-up.accuracy-reached.plain"].value == row.plain
    assert found["ladder.made-up.accuracy.bf16"].value == equivalence.words(row)
    assert {f"plain-r{n}" for n in (1, 2, 3)} < set(difference.runs)
