"""Amdahl's and Gustafson's laws find the share that they are given, and predict the same points as the model."""

from __future__ import annotations

import pandas as pd
import pytest

from companions.limits import laws
from tests.analyze.model.test_fit import measured

from .test_validation import held_out


@pytest.fixture(scope="module")
def few_ranks() -> pd.DataFrame:
    return held_out(measured([10.0, 1.0], worlds=(2, 4, 8)), most_ranks=4)[1]


def test_every_law_and_the_model_predict_the_same_points(few_ranks):
    compared = laws.against_laws(few_ranks, 4)
    assert set(compared.world_size) == {8} and set(compared.gbit) == {10.0, 1.0}
    counts = compared[compared.kind == "weak"].law.value_counts()
    assert counts["Gustafson"] == counts[laws.MODEL] > 1 and "Amdahl" not in counts
    assert (compared.error == compared.seconds / compared.measured - 1).all()
    assert compared[compared.law == laws.MODEL].error.abs().max() < 0.05
    assert laws.against_laws(few_ranks, 8).empty, "nothing is left to predict"


def test_one_rank_belongs_to_the_curves_of_every_link(few_ranks):
    drawn = laws.curves(few_ranks)
    for _, curve in drawn.groupby(laws.CURVE):
        assert curve.world_size.is_unique and curve.world_size.nunique() > 1
    assert set(drawn.gbit[drawn.world_size == 1]) == {10.0, 1.0}


RANKS = pd.Series([1, 2, 4, 8, 16])
MORE = pd.Series([1, 32])


def test_amdahl_finds_the_serial_share_and_never_a_negative_one():
    predicted = laws.amdahl(RANKS, 2.0 * (0.1 + 0.9 / RANKS), MORE)
    assert predicted.tolist() == pytest.approx([2.0, 2.0 * (0.1 + 0.9 / 32)])
    one, many = laws.amdahl(RANKS, 2.0 / RANKS**1.1, MORE)  # super-linear
    assert one / many == pytest.approx(32)


def test_gustafson_finds_the_serial_share_of_equal_work_a_rank():
    predicted = laws.gustafson(RANKS, 0.5 * RANKS / (RANKS - 0.2 * (RANKS - 1)), MORE)
    assert predicted.tolist() == pytest.approx([0.5, 0.5 * 32 / (32 - 0.2 * 31)], rel=1e-3)
