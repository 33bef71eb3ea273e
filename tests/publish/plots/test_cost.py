"""The Pareto figure, from hand-made tables: what it must show."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils.publish.plots import cost

from .figures import labels, texts, uncovered


def test_the_frontier_joins_those_on_it_and_only_they_are_filled_and_numbered() -> None:
    rows = [
        {"precision": precision, "world_size": world, "wall_seconds": 9000.0 / world / speed, "cost": 1.0 + world / speed,
         "pareto": precision == "bf16", "repeats": 3}
        for precision, speed in (("fp32", 1), ("bf16", 2)) for world in (1, 4, 12)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    for name in ("wall_seconds", "cost"):
        table[f"{name}_low"], table[f"{name}_high"] = 0.9 * table[name], 1.1 * table[name]
    figure = cost.pareto(table, "GPU-hours", title="15 epochs").figure
    (axes,) = figure.axes
    line = next(one for one in axes.lines if one.get_label() == "Pareto frontier")
    assert line.get_xdata() == pytest.approx([9000 / 60 / 24, 9000 / 60 / 8, 75])
    assert [text.get_text() for text in axes.texts] == ["12", "4", "1"] and uncovered(figure)
    assert labels(figure) == {"Pareto frontier", "bf16", "fp32, beaten"}
    shown = texts(figure)
    assert all(part in shown for part in ("cost (GPU-hours)", "time (min)", "3 repeats", "15 epochs"))
