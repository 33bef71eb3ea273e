"""The model's figures show what they are given: every configuration, held-out points told apart, what is extrapolated."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze.model import validation
from hpc_utils.publish.plots import drawing
from hpc_utils.publish.plots import model as plots
from tests.analyze.model.test_fit import held_out as held_out_runs
from tests.analyze.model.test_fit import measured

from .figures import labels, texts

WORLDS = [2, 8, 64]
RUNS = measured([math.inf, 10.0, 1.0, 0.3])


@pytest.fixture(scope="module")
def held_out():
    return held_out_runs(RUNS, [0.3])


def test_measured_points_carry_their_intervals_and_held_out_ones_are_open(held_out):
    drawn = validation.curves(held_out[1])
    chart = plots.validation(drawn)
    panels = chart.figure.axes
    assert len(panels) == drawn.groupby(["kind", "size"]).ngroups
    curves = [line for axes in panels for line in axes.lines if line.get_marker() == "None"]
    assert sum(len(line.get_xdata()) for line in curves if line.get_linestyle() != "None") == len(drawn)
    assert {"links as they are", "0.3 Gbit/s", "held out"} <= labels(chart.figure)
    once = drawn[(drawn.world_size > 1) | ~drawn.duplicated(["kind", "size", "world_size"])]
    off = plots.errors(drawn).figure
    lines = [line for axes in off.axes for line in axes.lines]
    marked = [line for line in lines if line.get_marker() not in ("None", "_") and len(line.get_xdata())]
    intervals = [bar for axes in off.axes for bars in axes.collections for bar in bars.get_segments()]
    assert len(intervals) == once.measured_low.notna().sum() > 0
    hollow = [line for line in marked if line.get_markerfacecolor() == "white"]
    assert sum(len(line.get_xdata()) for line in hollow) == (once.points == "held out").sum() > 0
    assert sorted(y for line in marked for y in line.get_ydata()) == pytest.approx(sorted(100 * once.error))
    assert "3 repeats" in texts(chart.figure)


def test_bars_add_up_to_the_step_and_say_where_extrapolation_begins(held_out):
    frame = held_out[0].scaling("weak", 32, WORLDS, gbit=1.0)
    figure = plots.parts(frame).figure
    bars = figure.axes[0].patches
    tops = [max(bar.get_y() + bar.get_height() for bar in bars if round(bar.get_x()) == place) for place in range(4)]
    assert tops == pytest.approx(frame.seconds.tolist())
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "extrapolation"]
    assert list(line.get_xdata()) == [1.5, 1.5], "behind one and two ranks"
    measured_ranks = frame[frame.extrapolation == ""]
    assert not any(label.startswith("extrapolation") for label in labels(plots.parts(measured_ranks).figure))


def test_reach_draws_strong_and_weak_apart(held_out):
    frames = [
        held_out[0].scaling(kind, 32, WORLDS, gbit=gbit) for kind in ("strong", "weak") for gbit in (1.0, 100.0)
    ]
    figure = plots.reach(pd.concat(frames), RUNS).figure
    assert [axes.get_title() for axes in figure.axes] == [
        drawing.fixed_batch(kind, 32) for kind in ("strong", "weak")
    ]
    assert labels(figure) == {"1 Gbit/s", "100 Gbit/s, not run", "extrapolation"}
    highest = max(frame.efficiency_high.max() for frame in frames)
    assert figure.axes[0].get_ylim()[1] > 100 * highest, "no band is cut"


def test_laws_are_distinguished_by_colour_and_ranks_by_marker():
    _, errors = held_out_runs(measured([10.0, 1.0], worlds=(2, 4, 8)), most_ranks=4)
    compared = validation.against_laws(errors, 4)
    figure = plots.laws(compared).figure
    assert [axes.get_title() for axes in figure.axes] == [f"{kind} scaling" for kind in sorted(set(compared.kind))]
    assert labels(figure) == {f"{law}, 8 ranks" for law in compared.law}
