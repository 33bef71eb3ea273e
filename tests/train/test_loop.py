"""Training in one process."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpc_utils import datasets, records
from hpc_utils.config import RunConfig
from hpc_utils.records import schema
from hpc_utils.records.folder import read_json
from hpc_utils.train import NonFiniteLoss, Result, evaluation, loop, train
from hpc_utils.train.__main__ import main
from hpc_utils.train.pytree import on_host, to_device
from hpc_utils.train.vision import small_cnn

from .conftest import OUTSIDE
from .support import BRIEF, PHASES, distance, fit, same

# Batch norm and dropout: what a warm-up might leave a trace in.
STATEFUL = OUTSIDE.replace(
    "nn.Sequential(nn.Linear(4, width),", "nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width),"
)


def test_the_same_seed_trains_the_same_weights_bit_by_bit(results: Path) -> None:
    first, second, other = (fit(**BRIEF, seed=seed)[1] for seed in (0, 0, 1))
    assert same(first, second) and distance(first, other) > 0.01


@pytest.mark.parametrize(
    ("precision", "workers", "optimizer"), [("fp32", 0, "sgd"), ("fp32", 1, "adamw"), ("fp16", 0, "adamw")]
)
def test_warm_up_leaves_no_trace(module: Callable, precision: str, workers: int, optimizer: str) -> None:
    """Batch norm's statistics, dropout's random numbers, the optimizer's moments: all as without it."""
    module("stateful", STATEFUL)
    parameters = {"workload": "stateful:make", "epochs": 2, "global_batch": 32, "threads_per_rank": 1}
    parameters |= {"precision": precision, "loader_workers": workers, "optimizer": optimizer}
    cold, warm = (fit(**parameters, warmup_steps=steps)[1] for steps in (0, 5))
    assert same(cold, warm)
    assert any("running_mean" in name for name in cold), "this model has statistics"


def test_warm_up_longer_than_the_data_and_not_recorded(results: Path) -> None:
    tables = fit(**BRIEF | {"steps_per_epoch": 2, "warmup_steps": 5})[0].tables()
    assert tables["run"]["samples"] == 2 * 64 and len(tables["steps"]) == 2
    assert tables["run"]["warmup_seconds"] > tables["run"]["seconds"]


@pytest.mark.filterwarnings("ignore:Grad strides do not match")  # a hint about speed
def test_the_memory_layout_changes_weights_by_rounding_only(results: Path) -> None:
    last, first = (fit(**BRIEF, channels_last=on)[1] for on in (True, False))
    assert last["0.weight"].is_contiguous(memory_format=torch.channels_last)
    assert first["2.weight"].is_contiguous() and not last["2.weight"].is_contiguous()
    assert distance(last, first) < 1e-4


@pytest.fixture(scope="module")
def recorded(own_results: Path) -> tuple[Result, dict, dict]:
    """A run of three epochs, evaluated after the second and the last: result, tables, weights."""
    result, weights = fit(
        workload="cnn", epochs=3, global_batch=100, lr=0.3, eval_batch=7, evaluate_every=2, phase_every=5,
        label_smoothing=0.1, parallel="none",
    )  # fmt: skip
    return result, result.tables(), weights


def test_throughput_times_seconds_is_samples_in_every_row(recorded) -> None:
    _, tables, weights = recorded
    epochs, run = tables["epochs"], tables["run"]
    assert run["parameters"] == sum(value.numel() for value in weights.values())
    assert epochs.epoch.tolist() == [1, 2, 3] and epochs.dropped_samples.tolist() == [37] * 3
    assert epochs.samples.tolist() == (epochs.steps * 100).tolist() == [1400] * 3
    assert (epochs.throughput * epochs.seconds).tolist() == pytest.approx([1400] * 3)
    assert run["throughput"] * run["seconds"] == pytest.approx(run["samples"])
    assert run["samples"] == tables["ranks"].samples.sum() == 4200
    peak = 0.3 * 100 / 256
    cosine = [(1 + math.cos(math.pi * done / 28)) / 2 * peak for done in (13, 27)]
    assert epochs.lr.tolist() == pytest.approx([peak, *cosine]), "of the last step"


def test_steps_add_up_to_the_epoch_and_phases_to_the_step(recorded) -> None:
    _, tables, _ = recorded
    steps, epochs = tables["steps"], tables["epochs"]
    assert steps.groupby("epoch").seconds.sum().tolist() == pytest.approx(epochs.seconds.tolist(), rel=0.05, abs=0.05)
    sampled = steps[steps.forward.notna()]
    assert sampled.step.tolist() == [1, 6, 11] * 3 and (sampled[PHASES] > 0).all(axis=None)
    assert sampled[PHASES].sum(axis=1).tolist() == pytest.approx(sampled.seconds.tolist())
    assert epochs.step_p50.tolist() == pytest.approx(steps.groupby("epoch").seconds.median().tolist())
    assert (epochs.step_p95 <= epochs.step_p99).all()
    assert epochs.forward_seconds.tolist() == pytest.approx(sampled.groupby("epoch").forward.mean().tolist())


def test_evaluation_is_over_every_test_sample_in_batches_of_any_size(recorded) -> None:
    _, tables, weights = recorded
    model = small_cnn(1, 10)
    model.load_state_dict(weights)
    data = datasets.load("digits", "test")
    pixels = torch.from_numpy(data.images.copy()).permute(0, 3, 1, 2) / 255
    labels = torch.from_numpy(data.labels.copy())
    with torch.no_grad():
        outputs = model((pixels - data.mean[0]) / data.std[0])
    epochs, last = tables["epochs"], tables["epochs"].iloc[-1]
    assert last.test_accuracy == pytest.approx((outputs.argmax(1) == labels).sum().item() / 360)
    assert last.test_loss == pytest.approx(
        nn.functional.cross_entropy(outputs, labels, label_smoothing=0.1).item(), rel=1e-4
    )
    assert last.test_accuracy > 0.5 and tables["run"]["test_accuracy"] == last.test_accuracy
    assert epochs.test_accuracy.notna().tolist() == epochs.eval_seconds.notna().tolist() == [False, True, True]


def test_real_runs_write_the_schemas_columns_and_no_other(recorded) -> None:
    result, tables, _ = recorded
    for name, columns in (("epochs", schema.EPOCHS), ("steps", schema.STEPS), ("ranks", schema.RANKS)):
        assert tables[name].columns.tolist() == schema.names(columns)
    assert list(tables["run"]) == [*schema.names(schema.RUNS), "blocks"]
    empty = {name for name, value in tables["run"].items() if value is None}
    allocated = {f"{what}_allocated_bytes" for what in ("peak", "mean", "mode")}
    machine = {"commit", "dirty", "job_id", "pinned", "energy_joules", "energy_source"} | allocated
    unused = {"share_period", "throttled_seconds", "link_gbit", "unit", "units"}
    assert empty - machine == {"backend", "steps_per_epoch", "profile"} | unused, "parallel=none has no process group"
    assert {path.name for path in result.path.iterdir()} == {
        "claims", "epochs.csv", "provenance.json", "ranks.csv", "run.json", "status.json", "steps.csv.gz"
    }  # fmt: skip


def test_dropout_and_norms_know_training_from_evaluation(module: Callable) -> None:
    mode = "return self.layers(x)"
    module("modes", OUTSIDE.replace(mode, f"modes.append(self.training); {mode}") + "\n    modes = []\n")
    fit(**BRIEF | {"workload": "modes:make", "epochs": 2, "global_batch": 32, "evaluate_every": 1, "eval_batch": 4})
    import modes as workload

    tried = [False] * (1 + evaluation.PAIRS)  # whether the metrics are sums, once
    assert workload.modes == [True] * 3 + tried + [False] * 2 + [True] * 3 + [False] * 2


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"precision": "fp16"}])
def test_a_clipped_gradient_has_the_norm(results: Path, options: dict) -> None:
    """Of plain SGD's first step, in fp16 after the loss was unscaled; a norm that is not reached changes nothing."""
    plain = {"momentum": 0.0, "weight_decay": 0.0, "lr": 0.5, "lr_scaling": "none", "lr_warmup_epochs": 0.0}
    step = BRIEF | plain | {"steps_per_epoch": 1} | options

    def moved(**more: Any) -> float:
        changes = [value - before[name] for name, value in fit(**step | more)[1].items()]
        return float(torch.stack([change.norm() for change in changes]).norm())

    before = fit(**step | {"lr": 1e-30})[1]
    assert moved(clip_norm=0.01) == pytest.approx(0.5 * 0.01, rel=1e-3)
    assert moved(clip_norm=1e6) == moved() > 0.05


# -- runs that end early -----------------------------------------------------------------------------------


NAN = """
    import torch
    from torch import nn
    from hpc_utils.train import Workload

    def make():
        calls = []

        def loss(outputs, targets):
            calls.append(1)
            return outputs.abs().sum() * (float("-inf") if len(calls) == 3 else 1e-3)

        data = [(torch.ones(2), 0)] * 40
        return Workload(model=lambda: nn.Linear(2, 1), train=data, test=data, loss=loss)
"""


def test_a_loss_that_is_no_number_stops_the_run_at_once(module: Callable, results: Path) -> None:
    module("unstable", NAN)
    own = {"workload": "unstable:make", "global_batch": 4, "steps_per_epoch": 9}
    with pytest.raises(NonFiniteLoss, match="-inf by step 3 of epoch 1 on rank 0"):
        fit(**BRIEF | own)
    (folder,) = (results / "runs").iterdir()
    assert records.load().unfinished == {folder.name: "failed"}
    assert read_json(folder / "status.json")["reason"].startswith("NonFiniteLoss: ")


def test_a_complete_run_is_not_trained_again(results: Path, monkeypatch, capsys) -> None:
    first = train(RunConfig(**BRIEF))
    before = {path: path.read_bytes() for path in first.path.rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr(loop, "Trainer", None)
        again = train(RunConfig(**BRIEF))
    assert again == first and f"{first.run_id} is complete already" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in first.path.rglob("*") if path.is_file()} == before
    assert train(RunConfig(**BRIEF, repeat=2)).path != first.path
    train(RunConfig(**BRIEF), redo=True)
    assert (first.path / "earlier" / "0001" / "epochs.csv").read_bytes() == before[first.path / "epochs.csv"]


# -- from the command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["epoch=3"], "did you mean epochs"),
        (["workload=nowhere:make"], "'nowhere'"),
        (["workload=cnn", "dataset=digit"], "digits"),
        (["workload=cnn", "global_batch=2000"], "1437 samples, fewer than one global batch"),
    ],
)
def test_the_command_line_refuses_in_one_line(results: Path, capsys, arguments: list[str], why: str) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert why in error and error.startswith("error: ") and len(error.splitlines()) == 1
    assert len(records.load().runs) == 0


def test_batches_are_moved_and_states_share_nothing_with_what_training_changes() -> None:
    weight = torch.zeros(3)
    value = {"x": [weight, (weight, "text")]}
    moved, copy = to_device(value, torch.device("meta")), on_host(value)
    weight += 1
    assert moved["x"][1][0].device.type == "meta"
    assert copy["x"][0].sum() == copy["x"][1][0].sum() == 0 and copy["x"][1][1] == "text"
