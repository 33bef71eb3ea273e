"""The model's figures show what they are given: every configuration, held-out points told apart, what is extrapolated."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze.model import fit, simulation, validation
from hpc_utils.publish.plots import model as model_plots
from tests.analyze.model.test_fit import measured, work
from tests.analyze.model.test_simulation import STEADY

WORLDS = [2, 8, 64]
RUNS = measured([math.inf, 10.0, 1.0, 0.3])
pytestmark = pytest.mark.usefixtures("styled")


@pytest.fixture(scope="module")
def held_out():
    return fit.held_out(RUNS, work(), [0.3])


def test_each_curve_has_its_panel_and_held_out_points_are_hollow(held_out):
    fitted, errors = held_out
    drawn = validation.curves(errors)
    figure = model_plots.validation(drawn, validation.between(fitted, drawn)).figure
    *panels, off = figure.axes
    assert len(panels) == drawn.groupby(["kind", "size"]).ngroups and all(axes.get_title() for axes in figure.axes)
    assert panels[0].get_ylabel() == "time of a step (s)"
    hollow = [line for line in off.lines if line.get_markerfacecolor() == "white"]
    assert sum(len(line.get_xdata()) for line in hollow) == drawn.held_out.sum() > 0
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[0] == "links as they are" and "0.3 Gbit/s" in labels


def test_measured_points_carry_their_intervals(held_out):
    fitted, errors = held_out
    drawn = validation.curves(errors)
    figure = model_plots.validation(drawn, validation.between(fitted, drawn)).figure
    bars = [
        bar for axes in figure.axes[:-1] for one in axes.containers for path in one[2] for bar in path.get_segments()
    ]
    ends = sorted(end for bar in bars for end in (bar[:, 1].min(), bar[:, 1].max()))
    once = drawn[(drawn.world_size > 1) | ~drawn.duplicated(["kind", "size", "world_size"])]
    assert ends == pytest.approx(sorted([*once.measured_low, *once.measured_high]))
    assert (drawn.repeats == 3).all() and "3 repeats" in figure.get_supxlabel()
    assert errors.measured.tolist() == pytest.approx(RUNS.groupby(fit.POINT).seconds.median().tolist())


def test_the_error_on_one_rank_is_drawn_once_a_curve(held_out):
    fitted, errors = held_out
    drawn = validation.curves(errors)
    *_, off = model_plots.validation(drawn, validation.between(fitted, drawn)).figure.axes
    marked = [line for line in off.get_lines() if line.get_marker() != "None"]
    points = [(x, y) for line in marked for x, y in zip(*line.get_data(), strict=True)]
    alone = drawn[drawn.world_size == 1].drop_duplicates(["kind", "size"])
    assert sorted(y for x, y in points if x == 1) == pytest.approx(sorted(100 * alone.error))


def test_bars_add_up_to_the_step_and_say_where_extrapolation_begins(held_out):
    frame = held_out[0].scaling("weak", 32, WORLDS, gbit=1.0)
    (axes,) = model_plots.parts(frame, measured_to=2).figure.axes
    tops = [
        max(bar.get_y() + bar.get_height() for bars in axes.containers for bar in [bars[place]]) for place in range(4)
    ]
    assert tops == pytest.approx(frame.seconds.tolist())
    assert [text.get_text() for text in axes.texts] == ["extrapolation"]
    (whole,) = model_plots.parts(frame, measured_to=64).figure.axes
    assert not whole.texts


def test_reach_draws_strong_and_weak_apart(held_out):
    frames = [
        held_out[0].scaling(kind, 32, WORLDS, gbit=gbit) for kind in ("strong", "weak") for gbit in (1.0, 100.0)
    ]
    figure = model_plots.reach(pd.concat(frames), RUNS).figure
    assert [axes.get_title() for axes in figure.axes] == ["strong scaling", "weak scaling"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "1 Gbit/s",
        "100 Gbit/s, not measured",
    ], "one for both"
    assert not any(axes.get_legend() for axes in figure.axes), "none covers a curve"
    highest = max(frame.efficiency_high.max() for frame in frames)
    assert figure.axes[0].get_ylim()[1] > highest, "no band is cut"


def test_laws_are_distinguished_by_colour_and_ranks_by_marker():
    _, errors = fit.held_out(measured([10.0, 1.0], worlds=(2, 4, 8)), work(), most_ranks=4)
    compared = validation.compare(errors, 4)
    figure = model_plots.laws(compared).figure
    assert [axes.get_title() for axes in figure.axes] == [f"{kind} scaling" for kind in sorted(set(compared.kind))]
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == {f"{law}, 8 ranks" for law in compared.law}


def test_stragglers_show_each_slow_rank(held_out):
    grid = held_out[0].scaling("weak", 32, WORLDS, gbit=1.0)[fit.POINT]
    slow = simulation.one_slow_rank(held_out[0], grid, STEADY, [1.1, 1.2])
    _, longer = model_plots.stragglers(simulation.replay(held_out[0], grid, STEADY), slow).figure.axes
    assert [text.get_text() for text in longer.get_legend().get_texts()] == [
        "one rank 10 % slower",
        "one rank 20 % slower",
    ]
