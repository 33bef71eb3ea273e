"""Figures from hand-made frames: what they must show, and that they are written whole and reproducibly."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("agg")


from hpc_utils.publish import formatting
from hpc_utils.publish.plots import runs as run_plots
from hpc_utils.publish.plots import style

pytestmark = pytest.mark.usefixtures("styled")


def speed() -> pd.DataFrame:
    rows = [
        {"parallel": parallel, "world_size": world, "global_batch": 512, "precision": precision, "throughput": value,
         "low": 0.9 * value, "high": 1.1 * value, "repeats": 3}
        for parallel, world in (("none", 1), ("ddp", 1), ("ddp", 2))
        for precision, value in (("fp32", 1000.0 * world), ("bf16", 1500.0 * world))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def texts(figure) -> str:
    figure.canvas.draw()  # tick labels exist from then on
    return "\n".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def test_throughput_names_every_configuration_and_its_value() -> None:
    chart = run_plots.throughput(speed())
    assert chart.name == "throughput" and chart.caption and chart.data.equals(speed())
    shown = texts(chart.figure)
    for part in (
        "1 rank no group, batch 512",
        "1 rank DDP",
        "2 ranks DDP",
        "3,000",
        "fp32",
        "samples/s",
        "3 repeats",
    ):
        assert part in shown


def test_run_figures_from_a_run_s_own_tables() -> None:
    epochs = pd.DataFrame(
        {"epoch": [1, 2], "train_loss": [2.0, 1.0], "test_loss": [1.9, np.nan], "test_accuracy": [0.5, np.nan]}
        | {f"{phase}_seconds": [0.001, 0.002] for phase in ("data", "forward", "backward", "optimizer")}
    )
    shown = texts(run_plots.training(epochs))
    for part in ("training loss", "test accuracy", "backward", "ms a step"):
        assert part in shown
    never = epochs.assign(test_loss=None, test_accuracy=None)
    assert "test" not in texts(run_plots.training(never)), "what was not evaluated has no curve"
    steps = pd.DataFrame({"rank": [0, 0, 1, 1], "seconds": [0.01, 0.02, 0.01, 0.03]})
    shown = texts(run_plots.step_times(steps))
    for part in ("rank 0", "rank 1", "p99", "step time (ms)"):
        assert part in shown


def test_saving_writes_both_kinds_and_the_same_bytes_again(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in style.save(run_plots.throughput(speed()).figure, "f", tmp_path / "a")]
    second = [path.read_bytes() for path in style.save(run_plots.throughput(speed()).figure, "f", tmp_path / "b")]
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"f.pdf", "f.png"}
    assert first == second


def test_numbers_in_tables_are_read_at_a_glance() -> None:
    shown = [formatting.number(value) for value in (131072.4, 1000.0, 999.96, 0.00123456, 0.0, -12345.6)]
    assert shown == ["131,072", "1,000", "1000", "0.001235", "0", "-12,346"]


def test_precisions_are_distinguished_without_colour() -> None:
    for look in (style.MARKERS, style.LINES):
        assert len(set(look.values())) == len(look)
    assert set(style.COLOURS) == set(style.MARKERS) == set(style.LINES)


def test_points_of_different_torch_or_layout_are_bars_of_their_own() -> None:
    bars = texts(run_plots.throughput(pd.concat([speed().assign(torch=one) for one in ("2.6.0", "2.13.0")])).figure)
    assert "torch 2.13.0" in bars
    bars = texts(run_plots.throughput(pd.concat([speed(), speed().assign(nodes=2, layout="2x1")])).figure)
    assert "2 ranks (2x1) DDP" in bars and "2 ranks DDP" in bars
