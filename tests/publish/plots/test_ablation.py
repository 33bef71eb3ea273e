"""A ladder's figures: they show every step, and nothing covers anything."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from hpc_utils.analyze import ablation, factorial
from hpc_utils.publish import ablation_tables
from hpc_utils.publish.plots import ablation as ablation_plots
from hpc_utils.publish.plots import style
from tests.analyze import ladders

pytestmark = pytest.mark.usefixtures("styled")
STEPS = {"whole-batches": 2.3, "channels-last": 0.93, "bf16": 1.3, "cuda-graphs": 1.1}
LEVELS = {"bucket_mb": [25.0, 0.25], "batch_per_device": [64, 128, 256], "precision": ["fp32", "bf16"]}


@pytest.fixture(params=[3, 1], ids=["repeats", "single"])
def climbed(request: pytest.FixtureRequest):
    """(study, runs, epochs) of a ladder of which a step is slower and one cannot be run."""
    noise = lambda series, repeat: 1 + 0.01 * ((len(series) * repeat) % 5)  # noqa: E731
    return ladders.ladder(STEPS, repeats=range(1, request.param + 1), barred={"cuda-graphs": "no GPU"}, noise=noise)


def texts(figure: plt.Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts] + [
        tick.get_text() for axes in figure.axes for tick in axes.get_yticklabels()
    ]


def uncovered(figure: plt.Figure) -> bool:
    """No two texts beside bars overlap, all lie within the figure, and legends lie outside the axes."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    for axes in figure.axes:
        boxes = [text.get_window_extent(renderer) for text in axes.texts]
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
        assert all(box.x1 <= figure.bbox.x1 + 1 for box in boxes)
        if axes.get_legend():
            assert axes.get_legend().get_window_extent(renderer).y0 >= axes.get_window_extent(renderer).y1 - 1
    for legend in figure.legends:
        assert not any(
            legend.get_window_extent(renderer).overlaps(axes.get_window_extent(renderer)) for axes in figure.axes
        )
    return True


def test_the_waterfall_shows_what_each_step_adds(climbed) -> None:
    study, runs, _ = climbed
    gains = ablation.gains(runs, study)
    best = ablation.best(runs, study)
    figure = ablation_plots.waterfall(gains, best).figure
    said = texts(figure)
    assert [f"×{value:.2f}" in said for value in gains.together.dropna()] == [True] * 3
    assert "not applicable here" in said and {f"×{best.gain.value:.2f}, fastest", "up to bf16"} <= set(said)
    assert figure.axes[0].get_xscale() == "log" and uncovered(figure)
    assert ("single runs" in figure.axes[0].get_xlabel()) == (runs.repeat.max() == 1)
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches]
    assert ends == pytest.approx([*gains.together.dropna(), best.gain.value])
    colours = {tuple(bar.get_facecolor()) for bar in figure.axes[0].patches[:3]}
    assert len(colours) == (1 if runs.repeat.max() == 1 else 2), "one is slower; of single runs nothing is told"


def test_a_configuration_that_is_missing_and_a_fastest_that_is_none_of_the_path_are_shown() -> None:
    study, runs, epochs = ladders.ladder({"slow": 0.5, "gone": 0.9, "fast": 2.0})
    runs = runs[~runs.run_id.str.contains("-gone-")]
    gains, best = ablation.gains(runs, study), ablation.best(runs, study)
    figure = ablation_plots.waterfall(gains, best).figure
    assert {"not measured", "fast alone", "×2.00, fastest", "×0.90"} <= set(texts(figure)) and uncovered(figure)
    judged = ablation.equivalence(runs, epochs, study, best)
    assert "2.00 [2.00, 2.00]" in ablation_tables.headline(best, judged)
    told = ablation_tables.story(gains.iloc[2].to_dict(), ablation.profile(runs, epochs, study), judged)
    assert "1.80" in told and "nan" not in told


def test_every_figure_of_an_ablation_is_drawn_uncovered(climbed) -> None:
    study, runs, epochs = climbed
    gains, parts = ablation.gains(runs, study), ablation.profile(runs, epochs, study)
    best = ablation.best(runs, study)
    speeds = ablation.speeds(runs, study, {"plain": "plain loop", best.series: "fastest"})
    curves = ablation.learning(runs, epochs, study, {"plain": "plain loop", best.series: "fastest"})
    for chart in (
        ablation_plots.before_after(speeds, best.gain), ablation_plots.alone_and_after(gains), ablation_plots.profile(parts),
        ablation_plots.costs(gains), ablation_plots.learning(curves),
    ):  # fmt: skip
        assert uncovered(chart.figure) and chart.figure.get_figwidth() in (style.COLUMN, 2 * style.COLUMN, style.PAGE)
    loss = ablation_plots.learning(curves.assign(accuracy=float("nan")))
    assert len(loss.figure.axes) == 1, "without accuracy the loss alone"


def test_a_factorial_s_figures_have_a_panel_per_option_and_pair() -> None:
    study, runs = ladders.factorial(LEVELS, lambda point, repeat: 1000 + point["batch_per_device"] + repeat)
    design = factorial.designs(runs, study)["s"]
    main = ablation_plots.main_effects(factorial.main_effects(design)).figure
    assert [axes.get_xlabel() for axes in main.axes] == ["bucket (MiB)", "batch a device", "number format"]
    pairs = ablation_plots.interactions(factorial.interactions(design)).figure
    assert [len(axes.lines) for axes in pairs.axes] == [3, 2, 2] and uncovered(pairs)


def test_a_step_is_described_with_profile_gain_cost_and_verdict() -> None:
    study, runs, epochs = ladders.ladder(STEPS, barred={"cuda-graphs": "no GPU"})
    gains, judged = ablation.gains(runs, study), ablation.equivalence(runs, epochs, study)
    parts = ablation.profile(runs, epochs, study)
    told = ablation_tables.story(gains.iloc[0].to_dict(), parts, judged)
    for part in ("`whole-batches=true`", "1 → 0.435", "2.30 [2.30, 2.30]", "+10.0%", "+1.00 s", "within 0.5 points"):
        assert part in told
    assert "no GPU" in ablation_tables.story(gains.iloc[3].to_dict(), parts, judged)
    table = ablation_tables.steps(gains, judged)
    assert table.loc["cuda-graphs", "not applicable"] == "no GPU" and table.loc["bf16", "alone"].startswith("1.30 [")


def test_a_bench_s_table_names_its_machine_once_and_shows_no_empty_columns() -> None:
    rows = {
        "case": ["a", "b"],
        "median": [1.0, 2.0],
        "note": [None, None],
        "hardware_id": ["h"] * 2,
        "date": ["today"] * 2,
    }
    told, table = ablation_tables.bench(pd.DataFrame(rows))
    assert told == "hardware id h, date today" and list(table) == ["case", "median"]
