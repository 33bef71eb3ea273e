"""Reported against recomputed efficiency: what the figure must show of a frame that is known."""

from __future__ import annotations

import pandas as pd

from hpc_utils.analyze.foreign import COLUMNS
from hpc_utils.publish.plots import foreign

from .figures import labels, lines, texts


def table(reported: dict[int, float], **other: object) -> pd.DataFrame:
    rows = [
        dict.fromkeys(COLUMNS) | {
            "foreign": "thesis", "workload": "resnet18", "kind": "strong", "batch": 256.0, "world_size": world,
            "parallel": "ddp" if world > 1 else "none", "baseline": "none", "reported": value, "efficiency": 0.9,
            "efficiency_low": 0.85, "efficiency_high": 0.95, "repeats": 3, "verdict": "consistent",
        } | other
        for world, value in reported.items()
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.astype({"reported": float, "efficiency": float, "efficiency_low": float, "efficiency_high": float})


def test_open_is_what_was_reported_and_filled_what_is_right() -> None:
    figure = foreign.efficiency(table({1: 1.0, 2: 1.8, 8: 5.7})).figure
    (axes,) = figure.axes
    by_label = {line.get_label(): line for line in axes.lines}
    assert by_label["ddp: as reported"].get_ydata().tolist() == [100, 180, 570]
    assert lines(axes)["ddp: samples / seconds"].get_ydata().tolist() == [90, 90, 90]
    assert axes.get_yscale() == "log" and "strong scaling\n256 samples a step" in texts(figure)


def test_sets_have_panels_and_parallelisms_lines_of_their_own() -> None:
    parts = [table({1: 1.0, 2: 0.9}), table({4: 0.8}, parallel="horovod"), table({1: 1.0, 2: 0.9}, foreign="report")]
    figure = foreign.efficiency(pd.concat(parts, ignore_index=True)).figure
    shown = texts(figure)
    assert "thesis, resnet18" in shown and "report, resnet18" in shown
    assert {"ddp: as reported", "horovod: as reported"} <= labels(figure)
