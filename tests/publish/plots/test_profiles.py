"""Figures of profiles: what is drawn is what was measured, and no more."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from hpc_utils.analyze.profiles import breakdown
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY
from hpc_utils.publish.plots import profiles
from hpc_utils.publish.plots.timelines import drawn, timelines
from tests.analyze.profiles.timelines import timeline

pytestmark = pytest.mark.usefixtures("styled")
MS = 1_000_000
WORK = [
    (0, 40 * MS, COMPUTE),
    (30 * MS, 60 * MS, COMMUNICATION),
    (60 * MS, 70 * MS, MEMORY),
    (90 * MS, 100 * MS, COMPUTE),
]
RANGES = [(0, 50 * MS, "step"), (50 * MS, 100 * MS, "step"), (70 * MS, 85 * MS, "data"), (0, 30 * MS, "forward")]


def test_a_bar_s_parts_are_the_span() -> None:
    figure = profiles.breakdown({"run": breakdown.table([timeline(WORK, RANGES)])})
    widths = {to_hex(bar.get_facecolor()): bar.get_width() for bar in figure.axes[0].patches}
    assert widths == pytest.approx({"#0072b2": 50, "#d55e00": 20, "#009e73": 10, "#cc79a7": 15, to_hex("0.9"): 5})


def test_communication_that_is_not_known_is_reported_and_not_drawn_as_none() -> None:
    several = [timeline([WORK[0]], [], rank=rank, world_size=2) for rank in (0, 1)]
    figure = profiles.breakdown({"run": breakdown.table(several)})
    assert sum("not known" in text.get_text() for text in figure.axes[0].texts) == 2


def test_lanes_are_what_there_is_and_steps_that_touch_are_distinguished() -> None:
    figure = timelines([timeline(WORK, RANGES), timeline([WORK[0]], [])])
    first, second = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["host", "compute", "communication", "memory"]
    assert [text.get_text() for text in second.get_yticklabels()] == ["compute"]
    assert sorted(line.get_xdata()[0] for line in first.lines) == pytest.approx([0, 50])
    legend = {text.get_text() for text in figure.legends[0].get_texts()}
    assert legend == {"data", "forward", "a step begins"}
    heights = first.collections[2].get_paths()[0].vertices  # compute: 40 ms of the first lane below the host's
    assert heights[:, 1].max() == pytest.approx(-0.2, abs=0.01)


def test_the_data_of_a_timeline_hold_from_row_to_row() -> None:
    frame = drawn([timeline(WORK, RANGES)])
    assert list(frame)[:3] == ["ms", "rank 0, GPU 0: data", "rank 0, GPU 0: forward"]
    assert len(frame) < 20, "where nothing changes there is no row"
    lengths = np.diff([*frame.ms, 100.0])
    assert (lengths * frame["rank 0, GPU 0: compute"]).sum() == pytest.approx(50, abs=0.1)
    assert (lengths * frame["rank 0, GPU 0: data"]).sum() == pytest.approx(15, abs=0.1)
    late = drawn([timeline(WORK, RANGES)], begin=60, milliseconds=10)
    assert late.ms.iloc[0] == pytest.approx(60) and late["rank 0, GPU 0: memory"].iloc[0] == 1


def test_a_step_s_bar_is_whole_and_states_the_medians() -> None:
    shares = {"data": [0.5, 0.0], "forward": [0.2, 0.4], "backward": [0.2, 0.6], "communication": [0.3, np.nan]}
    frame = pd.DataFrame(
        shares | {"optimizer": [0.05, 0.0], "configuration": ["a", "b"], "verdict": ["input-bound", "x"]}
    )
    axes = profiles.steps(frame).axes[0]
    ends = [
        max(bar.get_x() + bar.get_width() for bar in axes.patches if round(bar.get_y() + 0.375) == row)
        for row in (0, 1)
    ]
    assert ends == pytest.approx([100, 100])
    texts = [text.get_text() for text in axes.texts]
    assert {"50", "30", "5", "60", "input-bound"} <= set(texts), (
        "numbers are those of the values, not the scaled ones"
    )


def test_promises_are_next_to_what_came_of_them() -> None:
    frame = pd.DataFrame(
        {
            "change": ["a", "b"],
            "gain": [1.8, 0.7],
            "low": [1.5, np.nan],
            "high": [2.1, np.nan],
            "at_most": [2.0, np.nan],
        }
    )
    axes = profiles.promises(frame).axes[0]
    promised = next(one for one in axes.collections if one.get_label() == "promised at most").get_offsets()
    assert np.ma.filled(promised[0], np.nan).tolist() == pytest.approx([2.0, 0])
    measured = axes.containers[0]
    assert measured.lines[0].get_xdata().tolist() == [1.8, 0.7]
    reach = [bar[:, 0].tolist() for bar in measured.lines[2][0].get_segments()]
    assert reach[0] == pytest.approx([1.5, 2.1]) and reach[1] == pytest.approx([0.7, 0.7])


def test_an_empty_timeline_is_drawn_empty() -> None:
    assert timelines([timeline([], [])]).axes


def test_kernels_are_ordered_by_time_and_say_theirs() -> None:
    table = pd.DataFrame(
        {"name": ["gemm", "nccl"], "kind": ["GEMM", "communication"], "count": [3, 1], "total_ns": [2e6, 6e6], "share": [0.25, 0.75]}
    )  # fmt: skip
    axes = profiles.kernels(table).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["gemm", "nccl"]
    assert [text.get_text() for text in axes.texts] == ["2.0 ms in 3", "6.0 ms in 1"]


def test_power_has_a_panel_only_where_it_was_measured() -> None:
    frame = pd.DataFrame(
        {
            "seconds": [0, 1],
            "utilisation": [90, 95],
            "memory_bytes": [2**30, 2**30],
            "power_watts": np.nan,
            "temperature": np.nan,
        }
    )
    lower = profiles.utilisation({"node1, cpu": frame}).axes
    assert len(lower) == 2 and lower[1].get_ylim()[1] > 1.05, "what stays the same is not on the edge"
    assert len(profiles.utilisation({"node1, cuda:0": frame.assign(power_watts=400.0)}).axes) == 3
    assert len(profiles.utilisation({"node1, cuda:0": frame.assign(power_watts=400.0, temperature=60.0)}).axes) == 4


def test_the_roof_bends_where_arithmetic_becomes_the_limit() -> None:
    points = pd.DataFrame(
        {"name": ["k"], "device": ["G"], "precision": ["fp32"], "intensity": [4.0], "achieved": [1e12]}
    )
    axes = profiles.roofline(points, {"G": 1e12}, {"G": 5e12}).axes[0]
    x, y = axes.lines[0].get_data()
    assert y.max() == 5e12 and y[0] == pytest.approx(1e12 * x[0])
