"""Figures of profiles: what is drawn is what was measured, and no more."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze.profiles import breakdown
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY
from hpc_utils.publish.plots import profiles, timelines
from tests.analyze.profiles.timelines import timeline

from .figures import ends, labels, lines, texts

MS = 1_000_000
WORK = [
    (0, 40 * MS, COMPUTE),
    (30 * MS, 60 * MS, COMMUNICATION),
    (60 * MS, 70 * MS, MEMORY),
    (90 * MS, 100 * MS, COMPUTE),
]
RANGES = [(0, 50 * MS, "step"), (50 * MS, 100 * MS, "step"), (70 * MS, 85 * MS, "data"), (0, 30 * MS, "forward")]


def test_a_bar_s_parts_are_the_span() -> None:
    figure = profiles.breakdown(profiles.parts({"run": breakdown.breakdown_table([timeline(WORK, RANGES)])})).figure
    assert ends(figure.axes[0]) == [(0, 50), (50, 70), (70, 80), (80, 95), (95, 100)]


def test_communication_that_is_not_known_is_reported_and_not_drawn_as_none() -> None:
    several = [timeline([WORK[0]], [], rank=rank, world_size=2) for rank in (0, 1)]
    figure = profiles.breakdown(profiles.parts({"run": breakdown.breakdown_table(several)})).figure
    assert sum("not known" in text.get_text() for text in figure.axes[0].texts) == 2


def test_lanes_are_what_there_is_and_steps_that_touch_are_distinguished() -> None:
    figure = timelines.chart([timeline(WORK, RANGES), timeline([WORK[0]], [], rank=1)], "t", "a test").figure
    first, second = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["host", "compute", "communication", "memory"]
    assert [text.get_text() for text in second.get_yticklabels()] == ["compute"]
    assert sorted(line.get_xdata()[0] for line in first.lines) == pytest.approx([0, 50])
    assert labels(figure) == {"data", "forward", "a step begins"}
    assert timelines.chart([], "t", "none").figure is None


def test_the_data_of_a_timeline_hold_from_row_to_row() -> None:
    frame = timelines.shares([timeline(WORK, RANGES)])
    assert list(frame)[:3] == ["ms", "rank 0, GPU 0: data", "rank 0, GPU 0: forward"]
    assert len(frame) < 20, "where nothing changes there is no row"
    lengths = np.diff([*frame.ms, 100.0])
    assert (lengths * frame["rank 0, GPU 0: compute"]).sum() == pytest.approx(50, abs=0.1)
    assert (lengths * frame["rank 0, GPU 0: data"]).sum() == pytest.approx(15, abs=0.1)


def test_a_step_s_bar_is_whole_and_states_the_medians() -> None:
    shares = {"data": [0.5, 0.0], "forward": [0.2, 0.4], "backward": [0.2, 0.6], "communication": [0.3, np.nan]}
    about = {"optimizer": [0.05, 0.0], "configuration": ["a", "b"], "verdict": ["input-bound", "x"]}
    figure = profiles.steps(pd.DataFrame(shares | about)).figure
    assert [end for _, end in ends(figure.axes[0])].count(100) == 2
    written = {text.get_text() for text in figure.axes[0].texts}
    assert {"50", "30", "5", "60", "input-bound"} <= written, "numbers are those of the values, not the scaled ones"
    kinds = profiles.kinds(pd.DataFrame({"configuration": ["a"], "GEMM": [0.7], "other": [0.3]})).figure
    assert max(end for _, end in ends(kinds.axes[0])) == pytest.approx(100)


def test_promises_are_next_to_what_came_of_them() -> None:
    nan = np.nan
    frame = pd.DataFrame(
        {
            "change": ["a", "b"],
            "gain": [1.8, 0.7],
            "gain_low": [1.5, nan],
            "gain_high": [2.1, nan],
            "at_most": [2.0, nan],
        }
    )
    axes = profiles.promises(frame).figure.axes[0]
    promised = next(one for one in axes.collections if one.get_label() == "bound").get_offsets()
    assert np.ma.filled(promised[0], nan).tolist() == pytest.approx([2.0, 0])
    assert lines(axes)["measured"].get_xdata().tolist() == [1.8, 0.7]


def test_kernels_state_their_time_and_the_monitor_has_a_panel_for_what_it_measured() -> None:
    table = pd.DataFrame(
        {"name": ["nccl", "gemm"], "kind": ["communication", "GEMM"], "count": [1, 3], "total_ns": [6e6, 2e6], "share": [0.75, 0.25]}
    )  # fmt: skip
    shown = texts(profiles.kernels(table).figure)
    assert all(part in shown for part in ("gemm", "2.0 ms in 3", "6.0 ms in 1"))
    names = ("utilisation", "memory_bytes", "power_watts", "temperature")
    frame = pd.DataFrame({"seconds": [0, 1], "device": "cpu"} | {name: [2.0**30] * 2 for name in names})
    for left in (2, 4):
        figure = profiles.utilisation(frame.assign(**dict.fromkeys(names[left:], np.nan))).figure
        assert len(figure.axes) == left


def test_the_roof_bends_where_arithmetic_becomes_the_limit() -> None:
    points = pd.DataFrame(
        {"name": ["k"], "device": ["G"], "precision": ["fp32"], "intensity": [4.0], "achieved": [1e12]}
    )
    axes = profiles.roofline(points, {"G": 1e12}, {"G": 5e12}).figure.axes[0]
    x, y = axes.lines[0].get_data()
    assert y.max() == 5e12 and y[0] == pytest.approx(1e12 * x[0])
