"""Scaling figures from the analysis of hand-made runs: what they must show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze import ceiling, scaling
from hpc_utils.publish.plots import scaling as plots
from hpc_utils.publish.plots import style
from hpc_utils.records.study import Targets
from tests.analyze.runs import study
from tests.analyze.test_ceiling import profile

from .figures import labels, lines, texts, uncovered

CURVE = {"1x2": 0.95, "1x4": 0.9, "1x8": 0.8, "2x4": 0.75, "3x4": 0.7}
RANKS = np.array([1, 2, 4, 8, 12])


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """Both kinds in two precisions, and strong scaling in a third."""
    parts = [study(strong=CURVE, weak=CURVE, precision=precision) for precision in ("fp32", "bf16")]
    return pd.concat([*parts, study(strong=CURVE, precision="tf32")], ignore_index=True)


@pytest.fixture(scope="module")
def table(runs: pd.DataFrame) -> pd.DataFrame:
    return scaling.efficiency(runs)


@pytest.mark.parametrize(
    ("draw", "label"),
    [
        ("throughput", "throughput (samples/s)"),
        ("speedup", "speed-up"),
        ("times", "time per epoch (s)"),
        ("memory", "peak memory (MiB)"),
        ("efficiency", "efficiency (%)"),
    ],
)
def test_each_curve_stands_with_its_layouts_and_intervals(table, draw: str, label: str) -> None:
    chart = getattr(plots, draw)(table)
    shown = texts(chart.figure)
    for part in (label, "strong scaling\n768 samples a step", "weak scaling\n100 samples a rank", "8\n2x4", "12\n3x4",
                 "95 % interval of 3 repeats", "fp32", "bf16", "tf32"):  # fmt: skip
        assert part in shown
    assert uncovered(chart.figure)
    line = next(line for name, line in lines(chart.figure.axes[0]).items() if name.startswith("fp32"))
    assert len(line.get_xdata()) == 5, "one layout a rank count on the line"
    assert line.get_color() == style.precision("fp32")["color"]
    assert getattr(plots, draw)(table.iloc[:0]).figure is None


def test_an_interval_that_leaves_its_panel_ends_in_an_arrow(table) -> None:
    wide = table.assign(efficiency_high=table.efficiency_high.where(table.world_size != 8, 9.0))
    for drawn, arrows in ((table, False), (wide, True)):
        axes = plots.efficiency(drawn).figure.axes[0]
        tops = [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "^"]
        assert bool(tops) == arrows and set(tops) <= {axes.get_ylim()[1]}


@pytest.mark.parametrize(("draw", "is_ratio"), [("throughput", False), ("times", False), ("efficiency", True)])
def test_only_ratios_are_of_rounds(runs: pd.DataFrame, draw: str, is_ratio: bool) -> None:
    blocks = [{(str(repeat), turn): 1 + turn % 3 / 100 for turn in range(40)} for repeat in runs.repeat]
    chart = getattr(plots, draw)(scaling.efficiency(runs.assign(blocks=blocks)))
    note = " ".join(chart.figure.get_supxlabel().split())
    assert note.startswith("mean ratio" if is_ratio else "median") and note.endswith("3 repeats")


def test_ideals_are_proportional_or_flat(table) -> None:
    one = table[(table.world_size == 1) & (table.baseline == "none") & (table.precision == "fp32")].iloc[0]

    def ideal(axes) -> np.ndarray:
        line = next(line for line in axes.lines if line.get_label() == "ideal")
        return np.unique(line.get_ydata())

    assert ideal(plots.speedup(table).figure.axes[0]) == pytest.approx(RANKS)
    assert ideal(plots.throughput(table).figure.axes[0]) == pytest.approx(one.throughput * RANKS)
    strong, weak, *_ = plots.times(table).figure.axes
    assert ideal(strong) == pytest.approx(np.sort(1e3 * one.step_seconds / RANKS))
    assert len(ideal(weak)) == 1
    assert ideal(plots.efficiency(table).figure.axes[0]) == pytest.approx([100])


def test_efficiency_shows_both_baselines_and_the_targets(table) -> None:
    figure = plots.efficiency(table, Targets(strong_efficiency=0.65)).figure
    assert {"fp32 over no group", "bf16 over DDP", "target: 65 % on 8", "target: within 10 %", "ideal"} <= labels(figure)  # fmt: skip
    drawn = lines(figure.axes[0])
    assert drawn["fp32 over DDP"].get_fillstyle() == "bottom"
    assert drawn["fp32 over no group"].get_fillstyle() == "full"


def test_a_flat_panel_has_ticks_enough() -> None:
    figure = plots.efficiency(scaling.efficiency(study(strong=CURVE))).figure
    figure.canvas.draw()
    (axes,) = figure.axes
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 4


def test_a_panel_has_at_most_four_curves(runs: pd.DataFrame) -> None:
    """Of six configurations, each over two baselines."""
    parts = [runs.assign(torch=version) for version in ("2.6.0", "2.13.0")]
    figure = plots.efficiency(scaling.efficiency(pd.concat(parts, ignore_index=True))).figure
    curves = [sum(not label.startswith("_") for label in lines(axes)) for axes in figure.axes if axes.get_title()]
    assert max(curves) == 4 and sum(curves) >= 20 and uncovered(figure)


def test_a_wide_interval_does_not_flatten_the_curves(table) -> None:
    wide = table.assign(high=table.efficiency_high.mask(table.world_size == 2, 30.0))
    assert 100 < plots.efficiency(wide).figure.axes[0].get_ylim()[1] < 200


def test_panels_of_several_workloads_name_them(runs: pd.DataFrame) -> None:
    own = runs[runs.precision == "fp32"]
    both = [own, own.assign(workload="transformer", dataset="other", batch_per_device=own.batch_per_device + 1000,
                            global_batch=own.global_batch + 1000 * own.world_size)]  # fmt: skip
    figure = plots.times(scaling.efficiency(pd.concat(both, ignore_index=True))).figure
    assert {"other" in axes.get_title() for axes in figure.axes} == {True, False} and uncovered(figure)


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"workload": "my-loop", "dataset": None, "settings": "other"}, {"workload cnn", "workload my-loop"}),
        ({"torch": "2.6.0"}, {"torch 2.13.0", "torch 2.6.0"}),
    ],
)
def test_points_of_different_workloads_or_torch_are_no_curve(
    runs: pd.DataFrame, other: dict, names: set[str]
) -> None:
    """At the same layouts: two lines, each named, none joining them."""
    own = runs[runs.precision == "fp32"].assign(torch="2.13.0")
    figure = plots.speedup(scaling.efficiency(pd.concat([own, own.assign(**other)], ignore_index=True))).figure
    assert labels(figure) == {*(f"fp32, {name}" for name in names), "ideal"}
    assert all(len(set(line.get_xdata())) == len(line.get_xdata()) for line in lines(figure.axes[0]).values())


def test_the_ceiling_is_above_the_curve_and_areas_show_what_is_lost() -> None:
    runs = study(strong={"1x2": 0.7, "1x8": 0.4}, settings="defaults")
    losses = ceiling.losses(scaling.efficiency(runs), [profile([96, 384, 768], device="cpu")])
    figure = plots.ceiling(losses, Targets()).figure
    assert labels(figure) == {
        "measured", "ceiling: computing alone", "small batches", "communication and waiting", "target: 70 % on 8"
    }  # fmt: skip
    drawn = lines(figure.axes[0])
    measured, most = (drawn[name].get_ydata() for name in ("measured", "ceiling: computing alone"))
    assert measured == pytest.approx([100, 70, 40], rel=0.01)
    assert most == pytest.approx([100, *(100 * losses.ceiling)]) and (most >= measured).all()
    assert uncovered(figure) and plots.ceiling(losses.iloc[:0]).figure is None
