"""Precision: which ratios are headlines, how wide they are, and which configurations need further repeats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hpc_utils import paths, records
from hpc_utils.analyze import precision
from hpc_utils.records.study import StudyIndex

SET = paths.root() / "results/reference/epyc-2core"


@pytest.fixture(scope="module")
def laptop() -> tuple[records.Records, StudyIndex]:
    """The committed laptop study: three repeats that follow each other."""
    return records.load(SET, study="laptop"), records.read_study("laptop", SET)


def test_efficiencies_are_headlines_with_their_half_widths(laptop) -> None:
    found, study = laptop
    ratios = precision.headline_ratios(found, study)
    assert len(ratios) == 4 and ratios.half_width.is_monotonic_decreasing
    assert ratios.half_width.tolist() == ((ratios.value_high - ratios.value_low) / 2).tolist()
    assert (ratios.rounds == 0).all() and ratios.within.isna().all()


def test_only_configurations_of_wide_ratios_are_repeated(laptop) -> None:
    found, study = laptop
    ratios = precision.headline_ratios(found, study)
    wide, narrow = ratios.half_width[:2]
    assert precision.further_repeats(ratios, study, wide, 8) == {}
    further = precision.further_repeats(ratios, study, (wide + narrow) / 2, 8)
    compared = set(ratios.runs[0])
    assert len(further) == 2 and further.keys() <= compared, "the runs of one ratio, by their first repeat"
    assert all("-r1-" in run_id for run_id in further)
    assert set(further.values()) == {int(np.ceil(3 * (2 * wide / (wide + narrow)) ** 2))}
    every = precision.further_repeats(ratios, study, narrow / 10, 5)
    assert set(every.values()) == {5} and further.keys() < every.keys()
    assert precision.further_repeats(ratios, study, narrow / 10, 3) == {}, "three are made already"


def test_a_ratio_without_an_interval_gets_a_further_repeat(laptop) -> None:
    found, study = laptop
    first = study.model_copy(update={"runs": [run for run in study.runs if run.repeat == 1]})
    ratios = precision.headline_ratios(found.only(first.run_ids), first)
    assert ratios.half_width.isna().all()
    assert set(precision.further_repeats(ratios, first, 0.05, 8).values()) == {2}


def test_the_gains_of_an_ablation_are_headlines() -> None:
    results = paths.root() / "results/reference/epyc-avx512"
    study = records.read_study("optimization-cpu", results)
    ratios = precision.headline_ratios(records.load(results, study=study.name), study)
    gains = ratios[ratios.compared.str.startswith("gain")]
    assert len(gains) > 3 and {*ratios[["half_width", "within", "between"]].dtypes} == {np.dtype(float)}
    above = gains[gains.value > 1].iloc[0]
    assert above.half_width == pytest.approx((above.value_high - above.value_low) / 2 / above.value)


@pytest.mark.parametrize(("asked", "reached"), [(None, None), (0.5, True), (0.001, False)])
def test_the_page_says_whether_a_study_has_the_precision_that_it_asks_for(laptop, asked, reached) -> None:
    sentence = precision.sentence(precision.headline_ratios(*laptop), asked)
    assert bool(sentence) == (asked is not None)
    assert ("not reached" in sentence) == (reached is False)


def test_the_speed_of_the_machine_is_that_of_its_runs_in_a_round(tmp_path: Path) -> None:
    """Two runs of different speed on a machine that is twice as fast in every second round."""
    rows = []
    for turn in range(1, 7):
        speed = 2.0 if turn % 2 else 1.0
        rows += [
            {"run_id": name, "session": "s", "round": turn, "place": 1, "epoch": 1, "steps": 1, "samples": 10}
            | {"seconds": seconds / speed, "ended": 100.0 + turn}
            for name, seconds in (("a", 1.0), ("b", 3.0))
        ]
    table = precision.machine_speed(pd.DataFrame(rows))
    assert table.speed.tolist() == pytest.approx([1.5, 0.75] * 3)
    assert table.moment.tolist() == [0, 1, 2, 3, 4, 5] and (table.configurations == 2).all()
