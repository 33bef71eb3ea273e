"""The model beside laws: one curve at a time, and every one predicts the largest from the rest."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze import comparison, laws

from .test_perfmodel import measured, work


def test_every_law_predicts_the_largest_from_the_rest(monkeypatch):
    monkeypatch.setattr(laws, "extrap_program", lambda: None)
    (curve,) = comparison.curves(measured([1.0], worlds=(2, 4, 8)).query("batch_per_device == 8"))
    assert curve[:3] == ("weak", 8.0, 1.0) and set(curve.runs.world_size) == {1, 2, 4, 8} and curve.runs.grouped.all()
    found = comparison.compare(curve, work())
    assert list(found.table.index) == ["Gustafson", "this model"] and "make extrap" in found.missing
    assert abs(found.table.error["this model"]) < 0.03 and (found.table.ranks == 8).all()
    assert found.measured.held_out.tolist() == [False, False, False, True]
    assert found.curves["Gustafson"].world_size.tolist() == list(range(1, 9))
    small = curve._replace(runs=curve.runs[curve.runs.world_size < 4])
    with pytest.raises(ValueError, match="a third to predict"):
        comparison.compare(small, work())


def test_strong_and_weak_batches_links_and_layouts_are_curves_of_their_own():
    rows = [
        {"nodes": nodes, "ranks_per_node": world // nodes, "world_size": world, "grouped": True, "batch_per_device": batch,
         "gbit": math.inf if world == 1 else gbit, "seconds": 1.0}
        for gbit in (1.0, 10.0)
        for world, nodes, batch in [(1, 1, 8), (2, 2, 8), (4, 4, 8), (1, 1, 16), (2, 2, 16), (4, 4, 16), (4, 2, 8), (2, 2, 4), (4, 4, 2)]
    ]  # fmt: skip
    found = {(one.kind, one.size, one.gbit): one.runs for one in comparison.curves(pd.DataFrame(rows))}
    weak = {("weak", size, gbit) for size in (8, 16) for gbit in (1.0, 10.0)}
    assert set(found) == weak | {("strong", 8, 1.0), ("strong", 8, 10.0)}
    assert set(found["strong", 8, 1.0].batch_per_device) == {8, 4, 2}
    assert found["weak", 8, 1.0].nodes.max() == 2  # of 4x1 and 2x2
