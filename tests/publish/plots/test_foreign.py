"""Reported against corrected efficiency: what the figure must show of a frame that is known."""

from __future__ import annotations

import matplotlib
import pandas as pd
import pytest

matplotlib.use("agg")


from hpc_utils.analyze.foreign import COLUMNS
from hpc_utils.publish.plots import foreign

pytestmark = pytest.mark.usefixtures("styled")


def table(reported: dict[int, float], **other) -> pd.DataFrame:
    rows = [
        dict.fromkeys(COLUMNS) | {
            "foreign": "thesis", "workload": "resnet18", "kind": "strong", "batch": 256.0, "world_size": world,
            "parallel": "ddp" if world > 1 else "none", "baseline": "none", "reported": value, "efficiency": 0.9,
            "low": 0.85, "high": 0.95, "repeats": 3, "verdict": "consistent",
        } | other
        for world, value in reported.items()
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.astype({"reported": float, "efficiency": float, "low": float, "high": float})


def markers(axes, hollow: bool) -> list[tuple[float, float]]:
    """The points drawn with hollow, or with filled markers."""
    return [
        point
        for line in axes.lines
        if line.get_marker() not in ("None", "x", "_", "|", "") and (line.get_markerfacecolor() == "none") == hollow
        for point in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def texts(figure) -> str:
    figure.canvas.draw()
    return "\n".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def test_hollow_is_what_was_reported_and_filled_what_is_right() -> None:
    figure = foreign.efficiency(table({1: 1.0, 2: 1.8, 8: 5.7})).figure
    axes = figure.axes[0]
    assert markers(axes, hollow=True) == [(1, 1.0), (2, 1.8), (8, 5.7)]
    assert markers(axes, hollow=False) == [(1, 0.9), (2, 0.9), (8, 0.9)]
    assert axes.get_yscale() == "log", "600 % and 70 % in one picture"
    for part in (
        "as reported",
        "samples / seconds",
        "ideal",
        "thesis: resnet18",
        "strong scaling, 256 samples",
        "400%",
    ):
        assert part in texts(figure)


def test_what_cannot_be_checked_is_a_cross() -> None:
    frame = table({1: 1.0, 2: 0.9})
    frame.loc[1, "verdict"] = "throughput only, unchecked"
    figure = foreign.efficiency(frame).figure
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in crosses] == [[2]]
    assert "cannot be checked" in texts(figure)


def test_sets_have_panels_and_parallelisms_lines_of_their_own() -> None:
    two = table({1: 1.0, 2: 0.9})
    other = table({4: 0.8}, parallel="horovod")
    figure = foreign.efficiency(
        pd.concat([two, other, table({1: 1.0, 2: 0.9}, foreign="report")], ignore_index=True)
    ).figure
    assert len(figure.axes) == 2
    for part in ("thesis: resnet18", "report: resnet18", "ddp", "horovod"):
        assert part in texts(figure)


def test_without_a_curve_there_is_no_figure() -> None:
    with pytest.raises(ValueError, match="no foreign curve"):
        foreign.efficiency(table({2: 0.9}, kind=""))
