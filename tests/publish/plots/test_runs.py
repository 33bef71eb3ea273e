"""Figures from hand-made frames: what they must show, and that they are written whole and reproducibly."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd

from hpc_utils.publish.plots import runs as plots
from hpc_utils.publish.plots import style

from .figures import texts, uncovered


def speed() -> pd.DataFrame:
    rows = [
        {"parallel": parallel, "world_size": world, "global_batch": 512, "precision": precision, "throughput": value,
         "low": 0.9 * value, "high": 1.1 * value, "repeats": 3}
        for parallel, world in (("none", 1), ("ddp", 1), ("ddp", 2))
        for precision, value in (("fp32", 1000.0 * world), ("bf16", 1500.0 * world))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_throughput_names_every_configuration_and_its_value() -> None:
    chart = plots.throughput(speed())
    assert chart.name == "throughput" and chart.caption and chart.data.equals(speed())
    shown = texts(chart.figure)
    assert all(part in shown for part in ("1 rank no group, batch 512", "2 ranks DDP", "3,000", "fp32", "3 repeats"))
    assert uncovered(chart.figure)
    bars = texts(plots.throughput(pd.concat([speed(), speed().assign(nodes=2, layout="2x1")])).figure)
    assert "2 ranks (2x1) DDP" in bars and "2 ranks DDP" in bars


def test_configurations_of_an_ablation_are_named_by_the_settings_that_differ() -> None:
    many = 'channels_last=false, compile="reduce-overhead", epochs=2, fused_optimizer=true, loader="device"'
    given = ['epochs=2, loader="workers"', 'compile="default", epochs=2, loader="device"', many]
    ladder = pd.concat([speed().head(1).assign(settings=one) for one in given])
    shown = texts(plots.throughput(ladder).figure)
    assert "\nloader=workers" in shown and "\ncompile=default, loader=device" in shown and "epochs" not in shown
    assert max(len(line) for line in shown.splitlines()) < 50, "many settings are several lines"


def test_many_layouts_are_wrapped_and_their_titles_do_not_touch() -> None:
    layouts = [
        {"run_id": f"r{n}", "precision": "fp32", "workload": "cnn", "dataset": "digits", "parallel": "ddp"}
        for n in range(7)
    ]
    runs = pd.DataFrame(layouts).assign(
        world_size=[2**n for n in range(7)], global_batch=[512 * 2**n for n in range(7)]
    )
    epochs = runs[["run_id"]].merge(pd.DataFrame({"epoch": [1, 2], "test_accuracy": [0.5, 0.9]}), how="cross")
    figure = plots.learned(epochs, runs, "test_accuracy").figure
    figure.draw_without_rendering()
    boxes = [axes.title.get_window_extent() for axes in figure.axes if axes.axison]
    assert len(boxes) == 7 and not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_a_run_without_evaluation_has_no_accuracy_panel() -> None:
    phases = {f"{phase}_seconds": [0.001] for phase in ("data", "forward", "backward", "optimizer")}
    epochs = pd.DataFrame(
        {"epoch": [1], "train_loss": [2.0], "test_loss": [np.nan], "test_accuracy": [np.nan]} | phases
    )
    figure = plots.training(epochs)
    assert len(figure.axes) == 2 and "accuracy" not in texts(figure) and "test loss" not in texts(figure)


def test_run_figures_from_a_run_s_own_tables() -> None:
    epochs = pd.DataFrame(
        {"epoch": [1, 2], "train_loss": [2.0, 1.0], "test_loss": [1.9, np.nan], "test_accuracy": [0.5, np.nan]}
        | {f"{phase}_seconds": [0.001, 0.002] for phase in ("data", "forward", "backward", "optimizer")}
    )
    shown = texts(plots.training(epochs))
    assert all(part in shown for part in ("training loss", "test accuracy", "backward", "ms a step"))
    steps = pd.DataFrame({"rank": [0, 0, 1, 1], "seconds": [0.01, 0.02, 0.01, 0.03]})
    shown = texts(plots.step_times(steps))
    assert all(part in shown for part in ("rank", "p99", "step time (ms)"))


def test_a_metric_over_epochs_is_named_as_its_column_is() -> None:
    runs = speed().head(2).assign(run_id=["a", "b"], workload="mlp", dataset="")
    epochs = pd.DataFrame({"run_id": list("aabb"), "epoch": [1, 2] * 2, "test_r2": [0.1, 0.4, 0.2, 0.3]})
    shown = texts(plots.learned(epochs, runs, "test_r2").figure)
    assert "test r2" in shown and "1 rank no group" in shown
    tasks = plots.learned(epochs, runs.assign(workload=["cnn", "mlp"]), "test_r2").figure
    assert len(tasks.axes) == 2 and "workload mlp" in texts(tasks), "no median over two tasks"
    widths = [f'workload_args={{"width": {width}}}' for width in (8, 12)]
    variants = plots.learned(epochs, runs.assign(precision="fp32", settings=widths), "test_r2").figure
    assert len(variants.axes) == 2 and "width=12" in texts(variants), "nor over two variants"


def test_saving_writes_both_kinds_and_the_same_bytes_again(tmp_path: Path) -> None:
    folders = [style.save(plots.throughput(speed()).figure, "f", tmp_path / name).parent for name in "ab"]
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert first.keys() == {"f.pdf", "f.png"} and first == second


def test_lines_are_distinguished_without_colour() -> None:
    looks = [style.series(number) for number in range(25)]
    assert len({tuple(look.values()) for look in looks}) == 25
    assert len({(look["linestyle"], look["marker"]) for look in looks[:5]}) == 5
