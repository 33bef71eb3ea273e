"""Stopped and killed runs resume to the same weights and records, except for `restarts`."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGTERM, SIGUSR1
from typing import Any

import psutil
import pytest
import torch

from hpc_utils import provenance, records
from hpc_utils.config import RunConfig
from hpc_utils.records import atomic, checks
from hpc_utils.records.folder import read_json, state
from hpc_utils.train import CheckpointError, Result, Stopped, evaluation, loop, ranks, train
from hpc_utils.train.run_writer import RunWriter
from tests.support import soak

from .forked import Ranks
from .support import after_steps, gets, remarks, same, saved, small_disk, stop

# All that a resume could get wrong: batch statistics, dropout, and random numbers of every kind in the data set.
RESTLESS = """
    import random
    import numpy as np
    import torch
    from torch import nn
    from torch.utils.data import Dataset
    from hpc_utils.train import Workload

    class Points(Dataset):
        def __init__(self, size, seed):
            self.x = torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))

        def __len__(self):
            return len(self.x)

        def __getitem__(self, index):
            noise = torch.randn(4) * 0.1 + random.random() + np.random.rand()
            return (self.x[index] + noise).float(), int(self.x[index].sum() > 0)

    def make(width=8):
        return Workload(
            model=lambda: nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.5), nn.Linear(width, 2)),
            train=Points(96, 0),
            test=Points(21, 1),
            loss=nn.CrossEntropyLoss(),
            metrics={"accuracy": lambda outputs, targets: (outputs.argmax(1) == targets).sum()},
        )
"""
OWN = {
    "workload": "restless:make", "epochs": 3, "global_batch": 16, "eval_batch": 4, "save_weights": True, "lr": 0.05,
}  # fmt: skip
DIGITS = {"workload": "cnn", "epochs": 2, "steps_per_epoch": 6, "global_batch": 32, "eval_batch": 64}
DIGITS |= {"save_weights": True, "lr": 0.3}


@pytest.fixture(autouse=True)
def restless(module: Callable[[str, str], Path]) -> Path:
    """The workload, in a working folder of this test's own."""
    return module("restless", RESTLESS).parent


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Mapping[str, Any]], Result]:
    """`uninterrupted(parameters)`: the run without a stop, once for all tests."""
    found: dict[str, Result] = {}

    def run(parameters: Mapping[str, Any]) -> Result:
        key = json.dumps(parameters)
        if key not in found:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("HPC_RESULTS", str(tmp_path_factory.mktemp("uninterrupted")))
                found[key] = train(RunConfig(**parameters))
        return found[key]

    return run


def the_run(results: Path) -> Path:
    (run,) = (results / "runs").iterdir()
    return run


MEASURED = ("epoch", "steps", "samples", "dropped_samples", "lr", "train_loss", "train_accuracy", "test_loss")


def require_equal(resumed: Result, straight: Result) -> None:
    """Bit by bit the same weights, the same losses, and records that are whole."""
    assert same(saved(resumed.path), saved(straight.path))
    ours, theirs = resumed.tables(), straight.tables()
    for name in (*MEASURED, "test_accuracy"):
        assert ours["epochs"][name].tolist() == theirs["epochs"][name].tolist(), name
    steps = ["rank", "epoch", "step"]
    assert ours["steps"][steps].equals(theirs["steps"][steps]), "each step once, in order"
    assert ours["ranks"].samples.tolist() == theirs["ranks"].samples.tolist()
    for row in ours["epochs"].to_dict("records"):
        assert not [*checks.epoch_faults(row)]
        mine = ours["steps"][ours["steps"].epoch == row["epoch"]].groupby("rank").seconds.sum().max()
        assert mine <= row["seconds"] * 1.001, "T is the sum of its parts"
    found = records.load(resumed.path.parent.parent)
    assert found.refused == {} and resumed.run_id in set(found.runs.run_id)
    assert not (resumed.path / "checkpoints").exists(), "a complete run needs none"


@pytest.mark.parametrize(
    "parameters",
    [
        DIGITS | {"augment": True, "parallel": "none", "steps_per_epoch": None, "global_batch": 256},
        soak(DIGITS | {"precision": "bf16", "optimizer": "adamw", "lr": 0.01, "schedule": "onecycle"}),
        DIGITS | {"precision": "fp16", "warmup_steps": 0},
        OWN,
        soak(OWN | {"loader_workers": 2, "optimizer": "adamw", "schedule": "multistep", "momentum": 0.5}),
    ],
    ids=["fp32", "bf16-adamw", "fp16", "own", "own-workers"],
)
def test_stopped_anywhere_it_ends_bit_by_bit_the_same(
    results: Path, uninterrupted: Callable, parameters: dict
) -> None:
    """In the first step, in the middle, in the last of an epoch (before its evaluation), in the last of all."""
    straight = uninterrupted(parameters)
    per_epoch, total = straight.tables()["epochs"].steps[0], len(straight.tables()["steps"])
    first = stop(parameters, 1, SIGTERM)
    assert (first.signal, first.epoch, first.step) == (SIGTERM, 1, 1)
    run = the_run(results)
    assert state(run) == "stopped" and read_json(run / "status.json")["reason"] == str(first)
    for step in (2, per_epoch - 3, 2, total - per_epoch - 2):
        stop(parameters, step)
    resumed = train(RunConfig(**parameters))
    require_equal(resumed, straight)
    assert resumed.tables()["epochs"].restarts.tolist()[:2] == [2, 1]
    assert resumed.tables()["run"]["restarts"] == 5
    assert len(list((resumed.path / "earlier").iterdir())) == 5


@pytest.mark.parametrize("moment", ["_warm_up", soak("_fresh_optimizer"), soak("evaluate"), soak("_notes"), "state"])
def test_a_signal_at_any_other_moment_is_handled_too(
    results: Path, uninterrupted: Callable, monkeypatch, moment: str
) -> None:
    """While building, warming up, evaluating, between evaluation and epoch, and in a checkpoint itself."""
    parameters = OWN | {"checkpoint_every": 1}
    straight = uninterrupted(parameters)
    original, sent = getattr(loop.Trainer, moment), []

    def disturbed(self: loop.Trainer, *arguments: Any) -> Any:
        if not sent:
            sent.append(os.kill(os.getpid(), SIGUSR1))
        return original(self, *arguments)

    monkeypatch.setattr(loop.Trainer, moment, disturbed)
    with pytest.raises(Stopped):
        train(RunConfig(**parameters))
    require_equal(train(RunConfig(**parameters)), straight)


def test_stopped_again_before_it_could_go_on_nothing_is_lost(
    results: Path, uninterrupted: Callable, monkeypatch
) -> None:
    stop(OWN, 3)
    original = loop.Trainer._warm_up
    with monkeypatch.context() as patch, pytest.raises(Stopped) as stopped:
        patch.setattr(loop.Trainer, "_warm_up", lambda self: os.kill(os.getpid(), SIGUSR1) or original(self))
        train(RunConfig(**OWN))
    assert (stopped.value.epoch, stopped.value.step) == (1, 3)
    resumed = train(RunConfig(**OWN))
    require_equal(resumed, uninterrupted(OWN))
    assert resumed.tables()["epochs"].restarts.tolist() == [1, 0, 0]


def test_a_long_evaluation_is_left_at_once_and_repeated(results: Path, uninterrupted: Callable, monkeypatch) -> None:
    seen, original = [], evaluation.batch_size

    def counted(targets: Any) -> int:
        seen.append(len(targets))
        if len(seen) == 2:
            os.kill(os.getpid(), SIGUSR1)
        return original(targets)

    with monkeypatch.context() as patch, pytest.raises(Stopped) as stopped:
        patch.setattr(evaluation, "batch_size", counted)
        train(RunConfig(**OWN))
    assert (stopped.value.epoch, stopped.value.step, len(seen)) == (1, 6, 2)
    resumed = train(RunConfig(**OWN))
    require_equal(resumed, uninterrupted(OWN))
    assert resumed.tables()["epochs"].restarts.tolist() == [0, 0, 0], "its training was not interrupted"


def test_a_run_that_failed_goes_on_from_its_last_checkpoint(
    results: Path, uninterrupted: Callable, monkeypatch
) -> None:
    parameters = OWN | {"checkpoint_every": 1}
    straight = uninterrupted(parameters)

    def fail(_: loop.Trainer) -> None:
        raise RuntimeError("the node is gone")

    with after_steps({13: fail}), pytest.raises(RuntimeError, match="node"):
        train(RunConfig(**parameters))
    run = the_run(results)
    assert state(run) == "failed"
    monkeypatch.setattr(loop.Trainer, "state", None)  # what is on disk needs no other checkpoint
    resumed = train(RunConfig(**parameters))
    assert remarks(run)[0].startswith("continued at epoch 3, step 0, from step000000012-")
    require_equal(resumed, straight)
    assert resumed.tables()["epochs"].restarts.tolist() == [0, 0, 0], "no epoch was continued in its middle"


def test_checkpoints_by_the_clock_are_no_part_of_the_time(results: Path, monkeypatch) -> None:
    """Due after each step; made when the one before is on disk."""
    made, original = [], loop.Trainer.state

    def slow(self: loop.Trainer) -> Any:
        made.append(self.step)
        time.sleep(0.1)
        return original(self)

    monkeypatch.setattr(loop.Trainer, "state", slow)
    on_disk = {step: lambda trainer: trainer.checkpoints.wait() for step in range(1, 19)}
    with after_steps(on_disk):
        tables = train(RunConfig(**OWN, checkpoint_minutes=1e-9)).tables()
    epochs = tables["epochs"]
    assert len(made) >= 3 and any(0 < step < 6 for step in made)
    assert epochs.checkpoint_seconds[0] >= 0.1 * sum(0 < step < 6 for step in made[:5])
    assert tables["steps"].seconds.max() < 0.1, "no step holds one"
    assert tables["ranks"].seconds[0] == pytest.approx(epochs.seconds.sum())


def test_training_does_not_wait_for_a_checkpoint_to_be_written(results: Path, monkeypatch) -> None:
    """The write of epoch 1's is held up until the last epoch trains: it would never get there if it waited."""
    last_epoch, original, waited = threading.Event(), atomic.write_file, []

    def held_up(path: Path, fill: Callable) -> None:
        if path.parent.name == "checkpoints":
            waited.append(last_epoch.wait(60))
        original(path, fill)

    monkeypatch.setattr(atomic, "write_file", held_up)
    with after_steps({13: lambda _: last_epoch.set()}):
        train(RunConfig(**OWN | {"checkpoint_every": 1}))
    assert waited and all(waited)


# -- what lies on disk -------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_costs_only_what_came_after_the_one_before(
    results: Path, uninterrupted: Callable
) -> None:
    for step in (3, 5):
        stop(OWN, step)
    *_, newest = sorted((the_run(results) / "checkpoints").iterdir())
    content = bytearray(newest.read_bytes())
    content[len(content) // 3] ^= 4
    newest.write_bytes(content)
    resumed = train(RunConfig(**OWN))
    reports = " ".join(remarks(resumed.path))
    assert "is damaged" in reports and "continued at epoch 1, step 3" in reports
    require_equal(resumed, uninterrupted(OWN))


def test_a_full_disk_at_the_last_checkpoint_is_no_stop_but_a_failure(results: Path, monkeypatch) -> None:
    with small_disk(1) as disk:
        monkeypatch.setenv("HPC_RESULTS", str(disk))
        why = "SIGUSR1 at epoch 1, step 3, .* No space left on device"
        with after_steps({3: gets(SIGUSR1)}), pytest.raises(CheckpointError, match=why):
            train(RunConfig(**OWN | {"workload_args": {"width": 80_000}}))
        run = the_run(disk)
        assert state(run) == "failed" and "No space left" in read_json(run / "status.json")["reason"]
        assert not list((run / "checkpoints").iterdir())


# -- whose checkpoint it is --------------------------------------------------------------------------------


def test_other_code_may_continue_and_is_recorded(results: Path, monkeypatch) -> None:
    original = provenance.collect
    monkeypatch.setattr(provenance, "collect", lambda *a: original(*a) | {"digest": "a" * 64})
    stop(OWN, 3)
    monkeypatch.setattr(provenance, "collect", lambda *a: original(*a) | {"digest": "b" * 64})
    result = train(RunConfig(**OWN))
    assert any("bbbbbbbbbbbb, was aaaaaaaaaaaa" in remark for remark in remarks(result.path))
    (before,) = read_json(result.path / "provenance.json")["continues"]
    assert (before["digest"], before["until_epoch"], before["until_step"]) == ("a" * 64, 1, 3) and before["host"]
    assert result.tables()["run"]["digest"] == "a" * 12 + "+" + "b" * 12


def test_a_checkpoint_of_another_model_is_refused_with_what_to_do(results: Path, monkeypatch) -> None:
    stop(OWN, 3)
    monkeypatch.setattr(torch.nn, "BatchNorm1d", torch.nn.LayerNorm)  # something that the workload imports
    with pytest.raises(CheckpointError, match="redo"):
        train(RunConfig(**OWN))
    assert state(the_run(results)) == "failed"
    assert train(RunConfig(**OWN), redo=True).tables()["run"]["restarts"] == 0


def test_redo_begins_anew_but_only_once_in_a_job(results: Path, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    for _ in range(2):
        stopped = stop(OWN, 4, redo=True)
        assert (stopped.epoch, stopped.step) == (1, 4)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    stopped = stop(OWN, 3, redo=True)
    assert (stopped.epoch, stopped.step) == (2, 1), "the same job, requeued, does not begin again"


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # two on the one core that a rank has here
def test_a_scheduler_that_tells_every_process_does_not_end_the_workers(results: Path) -> None:
    """Slurm's signals reach the loader's workers too: the rank still needs them for the step that it is in."""

    def tell_all(_: loop.Trainer) -> None:
        workers = psutil.Process().children()
        assert len(workers) >= 2
        for process in [*workers, psutil.Process()]:
            process.send_signal(SIGTERM)
        time.sleep(0.3)

    with after_steps({3: tell_all}), pytest.raises(Stopped) as stopped:
        train(RunConfig(**OWN | {"loader_workers": 2}))
    assert (stopped.value.epoch, stopped.value.step) == (1, 3)


# -- several ranks -----------------------------------------------------------------------------------------


def counting(parameters: Mapping[str, Any]) -> None:
    """A rank's body: train, and print how often the ranks reduce their requests."""
    calls, original = [], ranks.Ranks.max
    ranks.Ranks.max = lambda self, values: calls.append(1) or original(self, values)
    train(RunConfig(**parameters))
    print("reductions:", len(calls))


def test_two_ranks_agree_rarely_once_steps_are_quick(results: Path, restless: Path) -> None:
    """About once a second, not in each step; and the end of an epoch is handled whatever the pace."""
    quick = OWN | {"steps_per_epoch": 150, "epochs": 2, "evaluate_every": 0, "save_weights": False}
    two = Ranks(2, counting, quick, folder=restless, results=results)
    assert two.end() == [0, 0], two.output()
    one, other = (int(count) for count in re.findall(r"reductions: (\d+)", two.output()))
    assert one == other < 75


def full_on_rank_0(parameters: Mapping[str, Any]) -> None:
    """A rank's body: rank 0 finds its disk full when it closes the first epoch."""

    def no_room(self: RunWriter, rows: Any) -> None:
        raise OSError(28, "No space left on device")

    RunWriter.write_epochs = no_room
    train(RunConfig(**parameters))


def test_records_that_rank_0_cannot_write_end_the_others_too(results: Path, restless: Path) -> None:
    two = Ranks(2, full_on_rank_0, OWN, folder=restless, results=results)
    assert two.end() in ([1, 1], [1, -SIGTERM])  # rank 1 ends by what it gets from rank 0, or by the launcher
    assert "No space left" in read_json(the_run(results) / "status.json")["reason"]
