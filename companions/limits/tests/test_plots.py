"""The figures show what they are given: every configuration, held-out points told apart, what is extrapolated."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from companions.limits import laws, plots, predictions, shares
from hpc_utils.allreduce_cost import Link
from hpc_utils.analyze import scaling
from hpc_utils.analyze.model import links
from hpc_utils.publish.plots import drawing
from tests.analyze.model.test_fit import measured
from tests.analyze.model.test_links import SIZES, record
from tests.analyze.runs import repeated
from tests.publish.plots.figures import labels, lines, texts

from .test_validation import held_out as held_out_runs

pytestmark = pytest.mark.usefixtures("styled")
WORLDS = [2, 8, 64]
RUNS = measured([math.inf, 10.0, 1.0, 0.3])


@pytest.fixture(scope="module")
def held_out():
    return held_out_runs(RUNS, [0.3])


def test_measured_points_carry_their_intervals_and_held_out_ones_are_open(held_out):
    drawn = laws.curves(held_out[1])
    chart = plots.validation(drawn)
    panels = chart.figure.axes
    assert len(panels) == drawn.groupby(["kind", "size"]).ngroups
    curves = [line for axes in panels for line in axes.lines if line.get_marker() == "None"]
    assert sum(len(line.get_xdata()) for line in curves if line.get_linestyle() != "None") == len(drawn)
    assert {"links as they are", "0.3 Gbit/s", "held out"} <= labels(chart.figure)
    once = drawn[(drawn.world_size > 1) | ~drawn.duplicated(["kind", "size", "world_size"])]
    off = plots.errors(drawn).figure
    marks = [line for axes in off.axes for line in axes.lines]
    marked = [line for line in marks if line.get_marker() not in ("None", "_") and len(line.get_xdata())]
    intervals = [bar for axes in off.axes for bars in axes.collections for bar in bars.get_segments()]
    assert len(intervals) == once.measured_low.notna().sum() > 0
    hollow = [line for line in marked if line.get_markerfacecolor() == "white"]
    assert sum(len(line.get_xdata()) for line in hollow) == (once.points == "held out").sum() > 0
    assert sorted(y for line in marked for y in line.get_ydata()) == pytest.approx(sorted(100 * once.error))
    assert "3 repeats" in texts(chart.figure)


def test_bars_add_up_to_the_step_and_say_where_extrapolation_begins(held_out):
    frame = predictions.scaling(held_out[0], "weak", 32, WORLDS, gbit=1.0)
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
        predictions.scaling(held_out[0], kind, 32, WORLDS, gbit=gbit)
        for kind in ("strong", "weak")
        for gbit in (1.0, 100.0)
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
    compared = laws.against_laws(errors, 4)
    figure = plots.laws(compared).figure
    assert [axes.get_title() for axes in figure.axes] == [f"{kind} scaling" for kind in sorted(set(compared.kind))]
    assert labels(figure) == {f"{law}, 8 ranks" for law in compared.law}


def test_each_group_has_points_and_the_fitted_curve() -> None:
    made = record(Link(1e-4, 1.25e8), 4, 0.05)
    made["groups"]["inter"] = record(Link(1e-3, 1.25e8), 2, 0, sizes=SIZES[:2])["groups"]["all"]
    table = links.times(made)
    figure = plots.allreduce(table).figure
    times, rates = figure.axes
    fitted, unfitted = (line for line in times.lines if line.get_marker() == "None" and len(line.get_xdata()) > 1)
    assert list(fitted.get_ydata()) == pytest.approx(list(1e3 * table.modelled[table.group == "all"]))
    assert np.isnan(unfitted.get_ydata()).all()
    assert [len(line.get_xdata()) for line in rates.lines] == [len(SIZES), len(SIZES), 2, 2]
    measured = rates.lines[0].get_ydata() * 1e9
    assert list(measured) == pytest.approx(list(1.5 * table.bytes[:14] / table.seconds[:14])), "a ring of four ranks"
    assert labels(figure) == {"all ranks (4)", "between nodes (2)"}
    assert len({line.get_marker() for line in lines(times).values()}) == 2


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
