"""A ladder's figures: they show every step, and nothing covers anything."""

from __future__ import annotations

import itertools

import pytest
from matplotlib import pyplot as plt

from hpc_utils.analyze import equivalence, factorial, ladder
from hpc_utils.publish import speed_figures, speed_tables, style
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
    gains = ladder.gains(runs, study)
    figure = speed_figures.waterfall(gains)
    said = texts(figure)
    assert [f"×{value:.2f}" in said for value in gains.marginal.dropna()] == [True] * 3
    assert "not applicable here" in said and f"×{gains.together.dropna().iloc[-1]:.2f}" in said
    assert figure.axes[0].get_xscale() == "log" and uncovered(figure)
    assert ("single runs" in figure.axes[0].get_xlabel()) == (runs.repeat.max() == 1)
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches]
    assert ends == pytest.approx([*gains.together.dropna(), gains.together.dropna().iloc[-1]])


def test_every_figure_of_a_ladder_is_drawn_uncovered(climbed) -> None:
    study, runs, epochs = climbed
    gains, parts = ladder.gains(runs, study), ladder.profile(runs, epochs, study)
    best = ladder.best(runs, study)
    speeds = ladder.speeds(runs, study, {"plain": "plain loop", best.series: "fastest"})
    curves = ladder.learning(runs, epochs, study, {"plain": "plain loop", best.series: "fastest"})
    for figure in (
        speed_figures.before_after(speeds), speed_figures.alone_and_after(gains), speed_figures.profile(parts),
        speed_figures.costs(gains), speed_figures.learning(curves),
    ):  # fmt: skip
        assert uncovered(figure) and figure.get_figwidth() in (style.COLUMN, 2 * style.COLUMN, style.PAGE)
    assert len(speed_figures.learning(curves.assign(accuracy=float("nan"))).axes) == 1, (
        "without accuracy the loss alone"
    )


def test_a_factorial_s_figures_have_a_panel_a_knob_and_a_pair() -> None:
    study, runs = ladders.factorial(LEVELS, lambda point, repeat: 1000 + point["batch_per_device"] + repeat)
    design = factorial.design(runs, study)
    main = speed_figures.main_effects(factorial.main_effects(design))
    assert [axes.get_xlabel() for axes in main.axes] == ["bucket (MiB)", "batch a device", "number format"]
    pairs = speed_figures.interactions(factorial.interactions(design))
    assert [len(axes.lines) for axes in pairs.axes] == [3, 2, 2] and uncovered(pairs)


def test_a_step_is_told_with_profile_gain_cost_and_verdict() -> None:
    study, runs, epochs = ladders.ladder(STEPS, barred={"cuda-graphs": "no GPU"})
    gains, judged = ladder.gains(runs, study), equivalence.table(runs, epochs, study)
    parts = ladder.profile(runs, epochs, study)
    told = speed_tables.story(gains.iloc[0].to_dict(), parts, judged, "plain")
    assert "about whole-batches (`whole-batches=true`)" in told
    assert "data 1 → 0.435" in told and "2.30 (2.30 to 2.30) times" in told and "memory +10.0%, start +1.00 s" in told
    assert "equal within 0.5 points" in told
    assert "**Not applicable here:** no GPU." in speed_tables.story(gains.iloc[3].to_dict(), parts, judged, "bf16")
    table = speed_tables.steps(gains, judged)
    assert table.loc["cuda-graphs", "not applicable"] == "no GPU" and table.loc["bf16", "alone"].startswith("1.30 (")
    missing = gains.iloc[0].to_dict() | {"marginal": float("nan")}
    assert "**Not measured.**" in speed_tables.story(missing, parts, judged, "plain")
