"""The ceiling by batch, of a device on which a step takes a fixed time and one for each sample."""

from __future__ import annotations

import pytest

from companions.proposal import batches, plots
from tests.analyze.test_ceiling import FIXED, profile


def test_each_measured_batch_has_its_ceiling_on_devices_that_divide_it(styled: None) -> None:
    table = batches.ceilings([profile((64, 128, 512)), profile((64, 128)) | {"step_graph": True}])
    shapes = table[["step", "global_batch", "world_size"]].itertuples(index=False, name=None)
    assert {*shapes} == {("eager", 128, 2), ("eager", 512, 4), ("eager", 512, 8), ("captured", 128, 2)}
    row = table[(table.world_size == 8)].iloc[0]
    assert row.ceiling == pytest.approx((FIXED + 512) / (8 * (FIXED + 64)), rel=0.1)
    chart = plots.batch(table, 0.7)
    assert [axes.get_title() for axes in chart.figure.axes] == [
        f"cnn, fp32\n{step} steps" for step in ("eager", "captured")
    ]
    assert batches.ceilings([]).empty and plots.batch(batches.ceilings([]), 0.7).figure is None
