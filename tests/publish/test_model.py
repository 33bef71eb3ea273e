"""The model's figures show what they are given: every configuration, held-out points told apart, what is extrapolated."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze import perfmodel, simulate
from hpc_utils.publish import model
from tests.analyze.test_perfmodel import measured, work
from tests.analyze.test_simulate import STEADY

WORLDS = [2, 8, 64]
pytestmark = pytest.mark.usefixtures("styled")


@pytest.fixture(scope="module")
def held_out():
    return perfmodel.held_out(measured([math.inf, 10.0, 1.0, 0.3]), work(), [0.3])


def test_held_out_points_are_hollow_and_an_unlimited_link_has_its_place(held_out):
    fitted, errors = held_out
    grid = errors[errors.world_size > 1][perfmodel.POINT].replace(math.inf, 40.0)
    figure = model.validation(errors, fitted.predict(grid))
    times, off = figure.axes
    hollow = [line for line in off.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
    assert sum(len(line.get_xdata()) for line in hollow) == 2  # two batches
    assert [label.get_text() for label in times.get_xticklabels()] == ["0.3", "1", "10", "un-\nlimited"]
    assert times.get_ylabel() == "time of a step (s)" and "held out" in figure.legends[0].get_texts()[-1].get_text()


def test_measured_points_carry_their_intervals():
    runs = measured([math.inf, 1.0])
    fitted = perfmodel.fit(runs, work())
    errors = fitted.errors(runs).assign(held_out=False)
    assert (errors.repeats == 3).all() and (errors.measured_low < errors.measured).all()
    assert errors.measured.tolist() == pytest.approx(runs.groupby(perfmodel.POINT).seconds.median().tolist())
    figure = model.validation(
        errors, fitted.predict(errors[errors.world_size > 1][perfmodel.POINT].replace(math.inf, 40.0))
    )
    bars = [bar for one in figure.axes[0].containers for path in one[2] for bar in path.get_segments()]
    drawn = sorted(end for bar in bars for end in (bar[:, 1].min(), bar[:, 1].max()))
    many = errors[errors.world_size > 1]
    assert drawn == pytest.approx(sorted([*many.measured_low, *many.measured_high]))
    assert "3 repeats" in figure.get_supxlabel()


def test_bars_add_up_to_the_step_and_say_where_extrapolation_begins(held_out):
    frame = held_out[0].scaling("weak", 32, WORLDS, gbit=1.0)
    (axes,) = model.parts({"weak": frame}, measured_to=2).axes
    tops = [
        max(bar.get_y() + bar.get_height() for bars in axes.containers for bar in [bars[place]]) for place in range(4)
    ]
    assert tops == pytest.approx(frame.seconds.tolist())
    assert [text.get_text() for text in axes.texts] == ["extrapolation"]
    (whole,) = model.parts({"weak": frame}, measured_to=64).axes
    assert not whole.texts


def test_reach_draws_strong_and_weak_apart(held_out):
    frames = {
        f"at 1 Gbit/s{blank}": held_out[0].scaling(kind, 32, WORLDS, gbit=1.0)
        for kind, blank in (("strong", ""), ("weak", " "))
    }
    figure = model.reach(frames, measured_to=2)
    assert [axes.get_title() for axes in figure.axes] == ["strong scaling", "weak scaling"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["at 1 Gbit/s"], "one for both"
    assert not any(axes.get_legend() for axes in figure.axes), "none covers a curve"
    highest = max(frame.efficiency_high.max() for frame in frames.values())
    assert figure.axes[0].get_ylim()[1] > highest, "no band is cut"


def test_curves_that_coincide_are_both_seen(held_out):
    frames = {f"at {gbit} Gbit/s": held_out[0].scaling("strong", 32, WORLDS, gbit=1.0) for gbit in (100, 10)}
    under, over = model.reach(frames, measured_to=2).axes[0].get_lines()[:2]
    assert under.get_linewidth() > over.get_linewidth() and under.get_markersize() > over.get_markersize()


def test_the_error_on_one_rank_is_drawn_in_its_own_place(held_out):
    fitted, errors = held_out
    batch = errors.batch_per_device.iloc[0]
    grid = errors[(errors.world_size > 1) & (errors.batch_per_device == batch) & (errors.gbit < math.inf)]
    _, off = model.validation(errors, fitted.predict(grid[perfmodel.POINT])).axes
    assert off.get_xticklabels()[0].get_text() == "1\nrank"
    drawn = {
        float(y)
        for line in off.get_lines()
        for x, y in zip(*line.get_data(), strict=True)
        if x == off.get_xticks()[0]
    }
    alone = errors[(errors.world_size == 1)].error
    assert drawn and drawn == {100 * one for one in alone}


def test_laws_and_stragglers_show_each_curve(held_out):
    points = pd.DataFrame(
        {
            "world_size": [1, 2],
            "seconds": [1.0, 1.2],
            "low": [0.9, math.nan],
            "high": [1.1, math.nan],
            "held_out": [False, True],
        }
    )
    figure = model.laws(points, {"Amdahl": points, "Extra-P": points}, "strong")
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == ["Amdahl", "Extra-P"]
    grid = held_out[0].scaling("weak", 32, WORLDS, gbit=1.0)[perfmodel.POINT]
    slow = simulate.one_slow_rank(held_out[0], grid, STEADY, [1.1, 1.2])
    _, longer = model.stragglers(simulate.replay(held_out[0], grid, STEADY), slow).axes
    assert [text.get_text() for text in longer.get_legend().get_texts()] == [
        "one rank 10 % slower",
        "one rank 20 % slower",
    ]
