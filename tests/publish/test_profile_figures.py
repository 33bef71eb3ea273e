"""Figures of profiles: what is drawn is what was measured, and no more."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from hpc_utils.analyze.timeline import COMMUNICATION, COMPUTE, MEMORY, breakdown
from hpc_utils.publish import profile_figures, roofline
from hpc_utils.publish.monitor import utilisation
from hpc_utils.publish.timeline import timelines

from ..analyze.timelines import timeline

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
    figure = profile_figures.breakdown({"run": breakdown.table([timeline(WORK, RANGES)])})
    widths = {to_hex(bar.get_facecolor()): bar.get_width() for bar in figure.axes[0].patches}
    assert widths == pytest.approx({"#0072b2": 50, "#d55e00": 20, "#009e73": 10, "#cc79a7": 15, to_hex("0.9"): 5})


def test_communication_that_is_not_known_is_said_and_not_drawn_as_none() -> None:
    several = [timeline([WORK[0]], [], rank=rank, world_size=2) for rank in (0, 1)]
    figure = profile_figures.breakdown({"run": breakdown.table(several)})
    assert sum("not known" in text.get_text() for text in figure.axes[0].texts) == 2


def test_lanes_are_what_there_is_and_steps_that_touch_are_told_apart() -> None:
    figure = timelines([timeline(WORK, RANGES), timeline([WORK[0]], [])])
    first, second = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["host", "compute", "communication", "memory"]
    assert [text.get_text() for text in second.get_yticklabels()] == ["compute"]
    assert sorted(line.get_xdata()[0] for line in first.lines) == pytest.approx([0, 50])
    legend = {text.get_text() for text in figure.legends[0].get_texts()}
    assert legend == {"data", "forward", "a step begins"}
    heights = first.collections[2].get_paths()[0].vertices  # compute: 40 ms of the first lane below the host's
    assert heights[:, 1].max() == pytest.approx(-0.2, abs=0.01)


def test_an_empty_timeline_is_drawn_empty() -> None:
    assert timelines([timeline([], [])]).axes


def test_kernels_are_ordered_by_time_and_say_theirs() -> None:
    table = pd.DataFrame(
        {"name": ["gemm", "nccl"], "kind": ["GEMM", "communication"], "count": [3, 1], "total_ns": [2e6, 6e6], "share": [0.25, 0.75]}
    )  # fmt: skip
    axes = profile_figures.kernels(table).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["gemm", "nccl"]
    assert [text.get_text() for text in axes.texts] == ["2.0 ms in 3", "6.0 ms in 1"]


def test_power_has_a_panel_only_where_somebody_measured_it() -> None:
    frame = pd.DataFrame(
        {"seconds": [0, 1], "utilisation": [90, 95], "memory_bytes": [2**30, 2**30], "power_watts": np.nan}
    )
    lower = utilisation({"node1, cpu": frame}).axes
    assert len(lower) == 2 and lower[1].get_ylim()[1] > 1.05, "what stays the same is not on the edge"
    assert len(utilisation({"node1, cuda:0": frame.assign(power_watts=400.0)}).axes) == 3


def test_many_devices_are_told_apart() -> None:
    """A node of eight GPUs beside its processors, twice: no two look alike; nor do GPUs under a roof, and none is left out."""
    frame = pd.DataFrame({"seconds": [0, 1], "utilisation": [1, 2], "memory_bytes": [1, 2], "power_watts": np.nan})
    figure = utilisation({f"node{node}, {device}": frame for node in (1, 2) for device in ("cpu", *range(8))})
    looks = {
        (line.get_color(), line.get_linestyle(), line.get_marker(), str(line._dash_pattern))
        for line in figure.axes[0].lines
    }
    assert len(looks) == 18
    points = pd.DataFrame(
        {"name": "k", "device": [f"G{n}" for n in range(7)], "precision": "fp32", "intensity": 4.0, "achieved": 1e12}
    )
    figure = roofline.roofline(points, {})
    assert len(figure.axes[0].get_legend().get_texts()) == 7


def test_the_roof_bends_where_arithmetic_becomes_the_limit() -> None:
    points = pd.DataFrame(
        {"name": ["k"], "device": ["G"], "precision": ["fp32"], "intensity": [4.0], "achieved": [1e12]}
    )
    axes = roofline.roofline(points, {"G": 1e12}, {"G": 5e12}).axes[0]
    x, y = axes.lines[0].get_data()
    assert y.max() == 5e12 and y[0] == pytest.approx(1e12 * x[0])
