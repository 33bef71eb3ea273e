"""The model beside laws: all are fitted to few ranks of one curve, and predict the same points on more."""

from __future__ import annotations

import pytest

from hpc_utils.analyze import comparison, perfmodel

from .test_perfmodel import measured, work


@pytest.fixture(scope="module")
def held_out():
    runs = measured([10.0, 1.0], worlds=(2, 4, 8))
    return perfmodel.held_out(runs, work(), most_ranks=4)


def test_every_law_and_the_model_predict_the_same_points(held_out):
    found = comparison.compare(held_out[1], 4)
    assert set(found.world_size) == {8} and set(found.gbit) == {10.0, 1.0}
    counts = found[found.kind == "weak"].law.value_counts()
    assert counts["Gustafson"] == counts[comparison.MODEL] > 1 and "Amdahl" not in counts
    assert (found.error == found.seconds / found.measured - 1).all()
    assert found[found.law == comparison.MODEL].error.abs().max() < 0.05
    assert comparison.compare(held_out[1], 8).empty, "nothing is left to predict"


def test_one_rank_belongs_to_the_curves_of_every_link(held_out):
    drawn = comparison.curves(held_out[1])
    for _, own in drawn.groupby(comparison.CURVE):
        assert own.world_size.is_unique and own.world_size.nunique() > 1
    assert set(drawn.gbit[drawn.world_size == 1]) == {10.0, 1.0}


def test_the_model_is_drawn_on_every_number_of_ranks_of_a_curve(held_out):
    fitted, errors = held_out
    drawn = comparison.curves(errors)
    lines = comparison.between(fitted, drawn)
    for key, own in lines.groupby(comparison.CURVE):
        points = drawn[(drawn[comparison.CURVE] == list(key)).all(axis=1)]
        assert own.world_size.tolist() == list(range(1, points.world_size.max() + 1))
