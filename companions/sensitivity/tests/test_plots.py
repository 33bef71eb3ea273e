"""A factorial's figures: a panel for each option and each pair."""

from __future__ import annotations

from companions.sensitivity import factorial, plots
from tests.publish.plots.figures import uncovered

from . import designs

LEVELS = {"bucket_mb": [25.0, 0.25], "batch_per_device": [64, 128, 256], "precision": ["fp32", "bf16"]}


def test_a_factorial_s_figures_have_a_panel_per_option_and_pair() -> None:
    study, runs = designs.factorial(LEVELS, lambda point, repeat: 1000 + point["batch_per_device"] + repeat)
    design = factorial.designs(runs, study)["s"]
    main = plots.main_effects(factorial.main_effects(design)).figure
    assert [axes.get_xlabel() for axes in main.axes] == ["bucket (MiB)", "batch a device", "number format"]
    pairs = plots.interactions(factorial.interactions(design)).figure
    assert [len(axes.containers) for axes in pairs.axes] == [3, 2, 2] and uncovered(pairs)
