"""An ablation's figures: they show every step, and nothing covers anything."""

from __future__ import annotations

import pytest

from hpc_utils.analyze import factorial
from hpc_utils.publish.plots import ablation as plots
from tests.analyze import ladders

from .figures import ends, labels, texts, uncovered

STEPS = {"whole-batches": 2.3, "channels-last": 0.93, "bf16": 1.3, "cuda-graphs": 1.1}
LEVELS = {"bucket_mb": [25.0, 0.25], "batch_per_device": [64, 128, 256], "precision": ["fp32", "bf16"]}


@pytest.mark.parametrize("repeats", [3, 1])
def test_every_figure_of_an_ablation_shows_its_steps(repeats: int) -> None:
    """A ladder of which a step is slower and one cannot be run."""
    noise = lambda series, repeat: 1 + 0.01 * ((len(series) * repeat) % 5)  # noqa: E731
    barred, numbers = {"cuda-graphs": "no GPU"}, range(1, repeats + 1)
    study, runs, epochs = ladders.ladder(STEPS, repeats=numbers, barred=barred, noise=noise)
    ladder = ladders.of(runs, study, epochs)
    gains = ladder.gains
    figure = plots.waterfall(gains, ladder.best).figure
    shown = texts(figure)
    for part in (*gains.together.dropna().map("×{:.2f}".format), "not applicable here", "up to bf16"):
        assert part in shown
    assert ("single runs" in shown) == (repeats == 1) and uncovered(figure)
    assert {end for _, end in ends(figure.axes[0])} >= {*gains.together.dropna().round(6)}
    assert labels(figure) >= ({"faster", "slower"} if repeats > 1 else {"a single run"})
    curves = ladder.learning()
    for chart in (
        plots.before_after(ladder.speeds(ladder.ends), ladder.best.gain), plots.alone_and_after(gains),
        plots.profile(ladder.phases), plots.costs(gains), plots.learning(curves),
    ):  # fmt: skip
        assert uncovered(chart.figure)
    assert len(plots.learning(curves.assign(accuracy=float("nan"))).figure.axes) == 1


def test_a_configuration_that_is_missing_and_a_fastest_that_is_none_of_the_path_are_shown() -> None:
    study, runs, _ = ladders.ladder({"slow": 0.5, "gone": 0.9, "fast": 2.0})
    ladder = ladders.of(runs[~runs.run_id.str.contains("-gone-")], study)
    figure = plots.waterfall(ladder.gains, ladder.best).figure
    shown = texts(figure)
    assert all(part in shown for part in ("not measured", "fast alone", "×2.00", "×0.90")) and uncovered(figure)


def test_a_factorial_s_figures_have_a_panel_per_option_and_pair() -> None:
    study, runs = ladders.factorial(LEVELS, lambda point, repeat: 1000 + point["batch_per_device"] + repeat)
    design = factorial.designs(runs, study)["s"]
    main = plots.main_effects(factorial.main_effects(design)).figure
    assert [axes.get_xlabel() for axes in main.axes] == ["bucket (MiB)", "batch a device", "number format"]
    pairs = plots.interactions(factorial.interactions(design)).figure
    assert [len(axes.containers) for axes in pairs.axes] == [3, 2, 2] and uncovered(pairs)
