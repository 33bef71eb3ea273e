"""The figure on shares of a core: its four panels show the analysis' numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils.analyze import scaling, shares
from hpc_utils.publish.plots import device_shares as plots
from tests.analyze.runs import repeated

from .figures import lines


def test_four_panels_of_what_was_compared() -> None:
    rows = []
    for cores, period in ((1, None), (0.5, 0.01), (0.2, 0.01), (0.2, 0.02)):
        more = {"threads_per_rank": cores, "share_period": period}
        for batch in (64, 512):
            for world, parallel in ((1, "none"), (1, "ddp"), (2, "ddp")):
                seconds = batch / 512 / cores * (1.05 if world > 1 else 1.0)
                own = repeated(world, seconds, batch=batch * world, parallel=parallel, **more)
                rows += [row | {"run_id": f"{row['run_id']}-{cores}-{period}"} for row in own]
    runs = pd.DataFrame(rows)
    epochs = pd.DataFrame(
        {"run_id": runs.run_id, "epoch": 1, "steps": 10, "seconds": runs.seconds, "step_p50": 1.0}
        | {"step_p95": 1 + 10 * runs.share_period.fillna(0).astype(float)}
    )
    table = shares.against_whole_cores(runs, epochs)
    one, two, spread, cost = plots.fairness(table, scaling.efficiency(runs)).figure.axes
    assert [label.get_text() for label in one.get_xticklabels()] == ["0.2", "0.5"]
    assert [label.get_text() for label in two.get_xticklabels()] == ["0.2", "0.5", "1"]
    assert two.lines[0].get_ydata().tolist() == pytest.approx([100 / 1.05] * 3)
    assert {label: line.get_ydata().tolist() for label, line in lines(spread).items()} == {
        "ranks: 1": pytest.approx([1.1, 1.2]), "ranks: 2": pytest.approx([1.1, 1.2]),
    }  # fmt: skip
    assert set(lines(cost)) == {"cores: 1", "cores: 0.5", "cores: 0.2"}
