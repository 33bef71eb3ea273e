"""Scaling figures from the analysis of hand-made runs: what they must show."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("agg")


from hpc_utils.analyze import scaling
from hpc_utils.publish.plots import scaling as scaling_plots
from hpc_utils.publish.plots import style
from hpc_utils.records.study import Targets
from tests.analyze.runs import study

CURVE = {"1x2": 0.95, "1x4": 0.9, "1x8": 0.8, "2x4": 0.75, "3x4": 0.7}


pytestmark = pytest.mark.usefixtures("styled")


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """Both kinds in two precisions, and strong scaling in a third."""
    parts = [study(strong=CURVE, weak=CURVE, precision=precision) for precision in ("fp32", "bf16")]
    return pd.concat([*parts, study(strong=CURVE, precision="tf32")], ignore_index=True)


@pytest.fixture(scope="module")
def table(runs: pd.DataFrame) -> pd.DataFrame:
    return scaling.efficiency(runs)


def texts(figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def lines(axes) -> dict[str, matplotlib.lines.Line2D]:
    """{label: line} of what has bars."""
    return {container.get_label(): container.lines[0] for container in axes.containers}


@pytest.mark.parametrize(
    ("draw", "label"),
    [("throughput", "throughput (samples/s)"), ("speedup", "speed-up"), ("times", "time per epoch (s)")],
)
def test_each_curve_stands_with_its_ideal_layouts_and_intervals(table, draw: str, label: str) -> None:
    figure = getattr(scaling_plots, draw)(table).figure
    shown = texts(figure)
    for part in (label, "strong scaling, 768 samples a step in all", "weak scaling, 100 samples a step and rank",
                 "ideal", "ranks", "95 % interval of 3 repeats", "2x4", "3x4", "bf16", "tf32"):  # fmt: skip
        assert part in shown
    strong = figure.axes[0]
    assert {"fp32", "bf16", "tf32"} <= set(lines(strong))
    assert len(lines(strong)["fp32"].get_xdata()) == 5, "one layout a rank count on the line: 1, 2, 4, 8, 12"


def test_ideals_are_proportional_or_flat(table) -> None:
    one = table[(table.world_size == 1) & (table.baseline == "none") & (table.precision == "bf16")].iloc[0]

    def ideal(axes) -> np.ndarray:
        return next(line for line in axes.lines if line.get_label() == "ideal").get_ydata()

    ranks = np.array([1, 2, 4, 8, 12])
    assert ideal(scaling_plots.speedup(table).figure.axes[0]) == pytest.approx(ranks)
    assert ideal(scaling_plots.throughput(table).figure.axes[0]) == pytest.approx(one.throughput * ranks)
    strong, weak, *_ = scaling_plots.times(table).figure.axes
    assert ideal(strong) == pytest.approx(1e3 * one.step_seconds / ranks)
    assert len(set(ideal(weak))) == 1


def test_markers_are_filled_with_their_precisions_colour(table) -> None:
    drawn = lines(scaling_plots.throughput(table).figure.axes[0])
    for name in ("fp32", "bf16", "tf32"):
        assert drawn[name].get_markerfacecolor() == style.COLOURS[name]


def test_efficiency_shows_both_baselines_and_the_targets(table) -> None:
    figure = scaling_plots.efficiency(table, Targets(strong_efficiency=0.65)).figure
    shown = texts(figure)
    for part in ("fp32, T(1) without a group", "bf16, T(1) DDP on one rank", "target: 65% on 8 ranks",
                 "target: step time within 10%", "ideal"):  # fmt: skip
        assert part in shown
    assert "target" not in texts(scaling_plots.efficiency(table).figure)
    drawn = lines(figure.axes[0])
    assert drawn["fp32, T(1) DDP on one rank"].get_fillstyle() == "bottom"
    assert drawn["fp32, T(1) without a group"].get_fillstyle() == "full"
    places = sorted({round(float(x), 6) for line in drawn.values() for x in line.get_xdata() if 1.5 < x < 2.5})
    assert len(places) == 6 and min(np.diff(places)) > 0.03, "markers do not cover each other"


def test_panels_of_several_workloads_say_which_and_titles_keep_to_their_panels(runs: pd.DataFrame) -> None:
    own = runs[runs.precision == "fp32"]
    both = [own, own.assign(workload="transformer", dataset="other", batch_per_device=own.batch_per_device + 1000,
                            global_batch=own.global_batch + 1000 * own.world_size)]  # fmt: skip
    table = scaling.efficiency(pd.concat(both, ignore_index=True))
    assert table.groupby(["kind", "batch"]).ngroups >= 3
    for draw in ("throughput", "times", "efficiency"):
        figure = getattr(scaling_plots, draw)(table).figure
        figure.canvas.draw()
        titles = [axes.title for axes in figure.axes if axes.get_title()]
        assert {"other" in title.get_text().replace("\n", " ") for title in titles} == {True, False}
        boxes = [title.get_window_extent() for title in titles]
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
        assert not any(box.count_overlaps(boxes[:number]) for number, box in enumerate(boxes))
    assert "other" not in texts(scaling_plots.efficiency(scaling.efficiency(own)).figure)


def test_words_stand_neither_on_the_axis_nor_on_a_curve() -> None:
    """A layout whose points are near zero is named above them; the target of weak scaling where no curve comes."""
    curve = {"1x2": 0.5, "2x1": 0.08, "4x1": 0.05}
    figure = scaling_plots.efficiency(scaling.efficiency(study(weak=curve)), Targets()).figure
    figure.canvas.draw()
    (axes,) = figure.axes
    bottom = axes.get_window_extent().y0
    named = [text for text in axes.texts if text.get_text() in curve]
    assert len(named) == 2 and all(text.get_window_extent().y0 > bottom for text in named)
    (target,) = (text.get_window_extent() for text in axes.texts if "target" in text.get_text())
    paths = [line.get_path().transformed(axes.transData) for line in axes.lines if len(line.get_xdata()) > 2]
    assert paths and not any(path.intersects_bbox(target, filled=False) for path in paths)


def test_points_of_different_torch_are_no_curve(runs: pd.DataFrame) -> None:
    """Two versions of torch at the same layouts: two lines, each named, none joining them."""
    both = pd.concat([runs.assign(torch=version) for version in ("2.6.0", "2.13.0")], ignore_index=True)
    figure = scaling_plots.speedup(scaling.efficiency(both[both.precision == "fp32"])).figure
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert names == {"fp32, torch 2.6.0", "fp32, torch 2.13.0", "ideal"}
    assert all(len(set(line.get_xdata())) == len(line.get_xdata()) for line in lines(figure.axes[0]).values())


def test_memory_shows_its_three_statistics_in_mebibytes(runs: pd.DataFrame) -> None:
    figure = scaling_plots.memory(scaling.memory(runs[runs.precision != "bf16"])).figure
    assert {"peak, fp32", "mean, fp32", "mode, fp32", "mode, tf32"} <= set(lines(figure.axes[0]))
    assert set(lines(figure.axes[0])["mean, fp32"].get_ydata()) == {300.0}
    shown = texts(figure)
    assert "resident memory of a rank (MiB)" in shown and shown.count("2x4") == 2, "a layout is named once a panel"


def test_single_runs_are_drawn_as_single_runs_and_no_curve_is_reported(runs: pd.DataFrame) -> None:
    single = scaling.efficiency(runs[runs.repeat == 1])
    assert "single runs" in texts(scaling_plots.efficiency(single).figure)
    for draw in ("throughput", "efficiency", "times"):
        assert getattr(scaling_plots, draw)(single.iloc[:0]).figure is None
