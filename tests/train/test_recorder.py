"""The recorder around a user's own loop."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from hpc_utils import paths, records
from hpc_utils.provenance.cpu import usable
from hpc_utils.records import AlreadyComplete, RunFolder
from hpc_utils.records.folder import read_json, state
from hpc_utils.train import Recorder, energy, run_writer
from hpc_utils.train import progress as progress_module
from hpc_utils.train.epoch_stats import UsageMeter
from hpc_utils.train.progress import Progress
from hpc_utils.train.ranks import Ranks

from .support import PHASES


@pytest.fixture(autouse=True)
def alone(results: Path) -> Path:
    return results


def measure(steps: int, name: str = "x", **more: object) -> Recorder:
    """An epoch of so many steps."""
    with Recorder(name, global_batch=1, **more) as run:
        for _ in run.epoch(range(steps)):
            run.step(samples=1)
    return run


def test_a_linear_model_in_a_loop_of_ones_own() -> None:
    torch.manual_seed(0)
    points = torch.randn(20, 4)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with Recorder("my/linear model", global_batch=8, parameters={"precision": "bf16", "depth": 3}) as run:
        for epoch in range(3):
            for x, y in run.epoch(zip(points.split(8), (points.sum(1) > 0).long().split(8), strict=True)):
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
    assert records.load().refused == {}
    sampled = tables["steps"][tables["steps"].step == 1]
    rest = sampled.seconds - sampled[PHASES].sum(axis=1)  # `losses` of the step before: between the steps
    assert (rest >= -1e-9).all() and rest.max() < 1e-3


def test_what_the_loop_does_between_its_marks_is_no_wait_for_data() -> None:
    with Recorder("x", global_batch=4, parameters={"phase_every": 1}) as run:
        for number, _ in enumerate(run.epoch(range(8)), 1):  # two batches a step, and a line of a log after it
            time.sleep(0.02)
            if number % 2 == 0:
                run.step(samples=4, loss=0.5)
                time.sleep(0.03)
    steps = records.load_run(run.path)["steps"]
    assert len(steps) == 4 and steps.seconds[1:].min() > 0.06
    assert steps.data.max() < 0.005


def test_the_time_holds_the_wait_for_data_and_no_work_outside_the_epochs() -> None:
    with Recorder("x", global_batch=4, parameters={"phase_every": 1}) as run:
        for _ in range(2):
            for _ in run.epoch(time.sleep(0.05) for _ in range(2)):
                run.step(samples=4, loss=0.5, correct=3)
            time.sleep(0.5)
    tables = records.load_run(run.path)
    epochs = tables["epochs"]
    assert epochs.seconds.min() >= 0.1 and epochs.seconds.max() < 0.5
    assert (tables["steps"].data >= 0.05).all() and epochs.data_seconds[0] >= 0.05, "the wait for data is part of it"
    assert (epochs.train_loss[0], epochs.train_correct[0]) == (0.5, 0.75), "plain numbers serve as losses"


def leave(run: Recorder) -> None:
    for _ in run.epoch(range(5)):
        run.step(samples=1)
        break


def leave_and_go_on(run: Recorder) -> None:
    leave(run)
    for _ in run.epoch(range(5)):
        pytest.fail("this epoch must not begin")


def count(samples: int) -> Callable[[Recorder], None]:
    """A step with so many of a batch of 64."""
    return lambda run: [run.step(samples=samples) for _ in run.epoch(range(20))]


def step_twice(run: Recorder) -> None:
    for _ in run.epoch(range(5)):
        for _ in range(2):
            run.step(samples=64)


def step_after_the_epoch(run: Recorder) -> None:
    """For the last batch, of which two make a step."""
    for number, _ in enumerate(run.epoch(range(5))):
        if number % 2:
            run.step(samples=64)
    run.step(samples=32)


def raise_in_step(run: Recorder) -> None:
    for _ in run.epoch(range(5)):
        raise KeyError("mine")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (leave, "RuntimeError: .*islice"), (leave_and_go_on, "RuntimeError: .*islice"),
        (raise_in_step, "KeyError: 'mine'"), (lambda run: None, "RuntimeError: "),
        (lambda run: list(run.epoch(range(2))), "RuntimeError: .*no step"),
        (step_twice, "RuntimeError: .*no batch"), (step_after_the_epoch, "RuntimeError: .*no batch"),
        (count(2), "Refused: "), (count(0), "ValueError: "),
    ],
)  # fmt: skip
def test_a_loop_that_cannot_be_recorded_is_a_failed_run(body: Callable[[Recorder], None], error: str) -> None:
    with pytest.raises((RuntimeError, KeyError, ValueError)), Recorder("x", global_batch=64) as run:
        body(run)
    assert re.match(error, read_json(run.path / "status.json")["reason"])
    assert records.load().unfinished == {run.path.name: "failed"}
    measure(1)  # a failed one is measured again


@pytest.mark.parametrize(("world", "is_refused"), [("1", False), ("2", True)])
def test_several_processes_without_a_process_group_are_refused(
    monkeypatch: pytest.MonkeyPatch, world: str, is_refused: bool
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world)
    if is_refused:
        with pytest.raises(RuntimeError, match=r"init_process_group\(\) before Recorder"):
            measure(1)
        assert measure(1, ranks=Ranks()).rows, "the caller's own ranks count"
        with pytest.raises(ValueError, match="does not divide over 2 ranks"):
            Recorder("x", global_batch=9, ranks=Ranks(world_size=2, ranks_per_node=2))
    else:
        assert measure(1).rows


@pytest.mark.parametrize(
    "noted",
    [{"test_accuracy": 93.0}, {"top5_accuracy": -0.1}, {"test_loss": float("nan")}, {"test_loss": torch.tensor(0.5)}],
)
def test_a_noted_value_that_cannot_be_true_is_refused(noted: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(noted))), Recorder("x", global_batch=1) as run:
        for _ in run.epoch(range(2)):
            run.step(samples=1)
        run.note(test_accuracy=1, test_loss=2.5)
        run.note(**noted)
    assert state(run.path) == "failed" and run.rows[-1]["test_loss"] == 2.5


@pytest.mark.parametrize("call", ["on_start", "on_end"])
def test_a_failure_of_an_observer_is_the_runs(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    ended = []

    def fails(*given: object) -> None:
        raise OSError("no counter")

    monkeypatch.setattr(f"hpc_utils.train.memory.MemoryMeter.{call}", fails)  # the first observer
    monkeypatch.setattr(progress_module.Progress, "on_end", lambda self, rows: ended.append(rows))
    with pytest.raises(OSError, match="no counter"):
        measure(1)
    (run,) = paths.runs().iterdir()
    assert read_json(run / "status.json")["reason"] == "OSError: no counter" and len(ended) == 1


def test_what_cannot_be_written_is_no_running_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="parameter model"):
        measure(1, parameters={"model": object()})
    assert not paths.runs().exists()
    monkeypatch.setattr(run_writer.provenance, "collect", lambda sources: {"digest": object()})
    with pytest.raises(TypeError):
        measure(1)
    assert list(records.load().unfinished.values()) == ["failed"]


def test_a_complete_run_is_not_entered_again() -> None:
    first = measure(2)
    with pytest.raises(AlreadyComplete) as caught:
        measure(2)
    assert caught.value.path == first.path and "redo=True" in caught.value.__notes__[0]
    assert measure(2, redo=True).path == first.path


def test_a_launchers_folder_is_written_and_left_open(results: Path, monkeypatch) -> None:
    folder = RunFolder.claimed(results / "runs" / "launched")
    monkeypatch.setenv("HPC_LAUNCH", json.dumps({"run": str(folder.path)}))
    assert measure(2).path == folder.path and state(folder.path) == "running"
    second = measure(2, "another")
    assert second.path != folder.path, "the launcher's folder is for one run"
    folder.close("complete")
    assert records.load().runs.run_id.tolist() == [second.path.name, "launched"]


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


@pytest.mark.skipif(not psutil.LINUX, reason="/proc/stat")
def test_time_of_other_processes_on_the_ranks_cores_is_measured_and_that_of_its_workers_is_not() -> None:
    core = usable()[0]
    meter = UsageMeter(Ranks(cores=(core,)), energy.meter(torch.device("cpu")))
    spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin]) as other:
        meter.start()
        time.sleep(1.5)
        used = meter.stop()
        other.kill()
    assert used["outside_seconds"] > 0.5 * used["seconds"] and used["steal_seconds"] >= 0
    worker = multiprocessing.get_context("fork").Process(target=exec, args=(spin,))
    worker.start()
    meter.start()
    time.sleep(1.5)
    used, own = meter.stop(), sum(psutil.Process(worker.pid).cpu_times()[:2])
    worker.kill()
    worker.join()
    assert used["outside_seconds"] < used["seconds"] - own + 0.1


def test_a_run_says_whether_it_shares_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = records.load_run(measure(1).path)
    monkeypatch.delenv("HPC_SHARED")
    alone = records.load_run(measure(1, "y").path)
    assert (shared["run"]["shared"], alone["run"]["shared"]) == (True, False)
    for name in ("outside_seconds", "steal_seconds"):
        assert alone["run"][name] == alone["ranks"][name].max()
