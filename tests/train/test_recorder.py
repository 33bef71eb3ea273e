"""The recorder around a user's own loop."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpc_utils import records
from hpc_utils.records import AlreadyComplete, RunFolder, checks
from hpc_utils.records.folder import read_json, state
from hpc_utils.train import Recorder, memory
from hpc_utils.train import progress as progress_module
from hpc_utils.train.progress import Progress
from hpc_utils.train.ranks import Ranks


@pytest.fixture(autouse=True)
def alone(results: Path) -> Path:
    return results


def loader() -> DataLoader:
    points = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=8)


def measure(steps: int, name: str = "x", **more: object) -> Recorder:
    """An epoch of so many steps."""
    with Recorder(name, global_batch=1, **more) as run:
        for _ in run.epoch(range(steps)):
            run.step(samples=1)
    return run


def test_a_linear_model_in_a_loop_of_ones_own() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with Recorder("my/linear model", global_batch=8, parameters={"precision": "bf16", "depth": 3}) as run:
        for epoch in range(3):
            for x, y in run.epoch(loader()):
                outputs = model(x)
                loss = nn.functional.cross_entropy(outputs, y)
                run.lap("forward")
                optimizer.zero_grad()
                loss.backward()
                run.lap("backward")
                optimizer.step()
                losses.append((loss.item(), len(x)))
                run.step(samples=len(x), loss=loss, lr=0.1, right=(outputs.argmax(1) == y).sum())
            run.note(test_loss=1.0 / (epoch + 1), perplexity=2.0)
    tables = records.load_run(run.path)
    assert run.path.name.startswith("my.linear.model-none1-bf16-b8-r1-")
    assert read_json(run.path / "run.json")["config"]["depth"] == 3
    epochs = tables["epochs"]
    assert epochs.samples.tolist() == [20] * 3 and epochs.steps.tolist() == [3] * 3
    assert epochs.test_loss.tolist() == pytest.approx([1, 1 / 2, 1 / 3]) and epochs.perplexity.tolist() == [2.0] * 3
    expected = [sum(loss * n for loss, n in losses[i : i + 3]) / 20 for i in (0, 3, 6)]
    assert epochs.train_loss.tolist() == pytest.approx(expected, rel=1e-5)
    assert ((epochs.train_right * 20).round(9) % 1 == 0).all() and epochs.lr.tolist() == [0.1] * 3
    assert tables["ranks"].samples.tolist() == [60]
    assert not [fault for row in epochs.to_dict("records") for fault in checks.epoch_faults(row)]
    assert records.load().refused == {}
    sampled = tables["steps"][tables["steps"].step == 1]
    assert (sampled[["data", "forward", "backward", "optimizer"]].sum(axis=1) - sampled.seconds).abs().max() < 1e-9


def test_work_outside_the_epochs_is_not_part_of_the_time() -> None:
    with Recorder("x", global_batch=1) as run:
        for _ in range(2):
            for _ in run.epoch(range(2)):
                time.sleep(0.02)
                run.step(samples=1)
            time.sleep(1.0)
    tables = records.load_run(run.path)
    assert tables["epochs"].seconds.min() >= 0.04 and tables["epochs"].seconds.max() < 1.0
    assert tables["ranks"].seconds[0] == pytest.approx(tables["epochs"].seconds.sum())


def test_waiting_for_data_is_part_of_the_time_and_timed_apart() -> None:
    def slow():
        for n in range(3):
            time.sleep(0.05)
            yield n

    with Recorder("x", global_batch=1, parameters={"phase_every": 1}) as run:
        for _ in run.epoch(slow()):
            run.step(samples=1)
    tables = records.load_run(run.path)
    assert tables["epochs"].seconds[0] >= 0.15
    assert (tables["steps"].data >= 0.05).all() and tables["epochs"].data_seconds[0] >= 0.05


def test_memory_is_looked_at_in_sampled_steps_and_counted_on_after_a_restart(monkeypatch) -> None:
    held = iter(range(100, 200))
    monkeypatch.setattr(memory, "_rss", lambda: next(held) * 2**20)
    states = []
    for steps in (5, 2):
        with Recorder("x", global_batch=1, parameters={"phase_every": 2, "of": steps}) as run:
            if states:
                run.restore(*states[0], epoch=2, step=0)
            for _ in run.epoch(range(steps)):
                run.step(samples=1)
            states.append((run.state(), run.own_state()))
        (rank,) = records.load_run(run.path)["ranks"].to_dict("records")
        if steps == 5:
            assert (rank["mean_rss_bytes"], rank["mode_rss_bytes"]) == (101 * 2**20, 102 * 2**20), "steps 1, 3 and 5"
    assert rank["mean_rss_bytes"] == (100 + 101 + 102 + 103) / 4 * 2**20


@pytest.mark.parametrize("then", ["another epoch", "the end"])
def test_leaving_an_epoch_by_break_is_refused_and_recorded_as_failed(then: str) -> None:
    with pytest.raises(RuntimeError, match="islice") as caught, Recorder("x", global_batch=1) as run:
        for _ in run.epoch(range(5)):
            run.step(samples=1)
            break
        if then == "another epoch":
            for _ in run.epoch(range(5)):
                pytest.fail("this epoch must not begin")
    assert state(run.path) == "failed"
    assert read_json(run.path / "status.json")["reason"] == f"RuntimeError: {caught.value}"
    assert records.load_run(measure(1).path)["run"]["samples"] == 1, "a failed one is measured again"


def test_an_error_in_the_loop_is_the_reason_of_the_failure() -> None:
    with pytest.raises(KeyError), Recorder("x", global_batch=1) as run:
        for _ in run.epoch(range(5)):
            raise KeyError("mine")
    assert read_json(run.path / "status.json")["reason"] == "KeyError: 'mine'"
    assert records.load().unfinished == {run.path.name: "failed"}


@pytest.mark.parametrize("value", [torch.ones(1), float("nan"), {1, 2}])
def test_what_cannot_be_recorded_is_refused_before_anything_is_claimed(results: Path, value: object) -> None:
    with pytest.raises(ValueError, match="parameter temperature"):
        Recorder("own", global_batch=2, parameters={"temperature": value})
    with pytest.raises(ValueError, match="global_batch=9 does not divide over 2 ranks"):
        Recorder("x", global_batch=9, ranks=Ranks(world_size=2, ranks_per_node=2))
    assert not list(results.glob("runs/*"))


def test_a_complete_run_is_not_entered_again() -> None:
    first = measure(2)
    with pytest.raises(AlreadyComplete) as caught:
        measure(2)
    assert caught.value.path == first.path
    assert measure(2, parameters={"repeat": 2}).path != first.path
    assert measure(2, redo=True).path == first.path


def test_a_launchers_folder_is_written_and_left_open(results: Path, monkeypatch) -> None:
    folder = RunFolder.claimed(results / "runs" / "launched")
    monkeypatch.setenv("HPC_LAUNCH", json.dumps({"run": str(folder.path)}))
    assert measure(2).path == folder.path and state(folder.path) == "running"
    second = measure(2, "another")
    assert second.path != folder.path, "the launcher's folder is for one run"
    folder.close("complete")
    assert records.load().runs.run_id.tolist() == [second.path.name, "launched"]


def test_a_half_finished_run_has_its_epochs_on_disk() -> None:
    """What is measured is written epoch by epoch: a killed run leaves it."""
    with Recorder("x", global_batch=1) as run:
        for epoch in range(1, 3):
            for _ in run.epoch(range(2)):
                run.step(samples=1)
            assert len((run.path / "epochs.csv").read_text().splitlines()) == 1 + epoch
            assert state(run.path) == "running"


def test_the_heartbeat_states_how_far_a_run_is(tmp_path: Path, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    progress = Progress(show=True)
    progress.on_start(tmp_path)
    progress.expect(2, 5)
    reports = []
    for _ in range(4):
        now[0] += 0.6
        progress.on_step(False)
        reports.append(json.loads((tmp_path / "progress.json").read_text())["step"])
    progress.on_end([])
    assert reports == [1, 1, 3, 3], "once a second"
    assert json.loads((tmp_path / "progress.json").read_text())["steps"] == 10
    assert os.listdir(tmp_path) == ["progress.json"]


def test_a_log_gets_one_line_an_epoch(capsys) -> None:
    row = {"epoch": 2, "throughput": 1234.5, "train_loss": 0.25, "test_accuracy": None}
    for show in (True, False):
        progress = Progress(show=show)
        progress.expect(3, 5)
        progress.on_end([row])
    assert capsys.readouterr().out == "epoch 2/3  1,234 samples/s  train loss 0.2500\n"


def test_plain_numbers_serve_as_losses() -> None:
    with Recorder("numbers", global_batch=4) as run:
        for _ in run.epoch(range(3)):
            run.step(samples=4, loss=0.5, correct=3)
    row = records.load_run(run.path)["epochs"].iloc[0]
    assert (row.train_loss, row.train_correct) == (0.5, 0.75)


def test_a_recorder_without_an_epoch_is_a_failed_run() -> None:
    never, too_early = (pytest.raises(RuntimeError, match=f"no epoch {what}") for what in ("was recorded", "yet"))
    with never, Recorder("empty", global_batch=4) as run, too_early:
        run.note(test_loss=1.0)
    assert state(run.path) == "failed"
