"""An ablation's figures: they show every step, and nothing covers anything."""

from __future__ import annotations

import pytest

from hpc_utils.publish.plots import ablation as plots
from tests.analyze import ladders

from .figures import ends, labels, texts, uncovered

STEPS = {"whole-batches": 2.3, "channels-last": 0.93, "bf16": 1.3, "cuda-graphs": 1.1}


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
    for chart in (plots.profile(ladder.phases), plots.learning(curves)):
        assert uncovered(chart.figure)
    assert len(plots.learning(curves.assign(accuracy=float("nan"))).figure.axes) == 1


def test_a_configuration_that_is_missing_and_a_fastest_that_is_none_of_the_path_are_shown() -> None:
    study, runs, _ = ladders.ladder({"slow": 0.5, "gone": 0.9, "fast": 2.0})
    ladder = ladders.of(runs[~runs.run_id.str.contains("-gone-")], study)
    figure = plots.waterfall(ladder.gains, ladder.best).figure
    shown = texts(figure)
    assert all(part in shown for part in ("not measured", "fast alone", "×2.00", "×0.90")) and uncovered(figure)
