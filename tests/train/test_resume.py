"""A run that is stopped, or dies, and goes on: in the end nobody can tell, but for the column that says so."""

from __future__ import annotations

import json
import os
import signal
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
from hpc_utils.train import CheckpointError, NonFiniteLoss, Result, Stopped, loop, train
from hpc_utils.train.run_writer import RunWriter
from tests.support import soak

from .forked import Ranks, trained
from .support import same, small_disk

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
    "workload": "restless:make",
    "epochs": 3,
    "global_batch": 16,
    "eval_batch": 4,
    "save_weights": True,
    "lr": 0.05,
}
DIGITS = {"workload": "cnn", "epochs": 2, "steps_per_epoch": 6, "global_batch": 32, "eval_batch": 64}
DIGITS |= {"save_weights": True, "lr": 0.3}
TRUE_STEP = loop.Trainer.train_on


@pytest.fixture(autouse=True)
def restless(module: Callable[[str, str], Path]) -> Path:
    """The workload, in a working folder of this test's own."""
    return module("restless", RESTLESS).parent


@pytest.fixture
def signal_at(monkeypatch) -> Callable[..., None]:
    """`signal_at({3: SIGUSR1})` sends this process that signal in its third step of training, counted over attempts."""
    done = [0]
    planned: dict[int, signal.Signals] = {}

    def step(self: loop.Trainer, *batch: Any) -> None:
        TRUE_STEP(self, *batch)
        done[0] += 1
        if done[0] in planned:
            os.kill(os.getpid(), planned[done[0]])

    monkeypatch.setattr(loop.Trainer, "train_on", step)
    return planned.update


def until_complete(parameters: Mapping[str, Any], stops: int) -> Result:
    """Train, stopped so many times."""
    for _ in range(stops):
        with pytest.raises(Stopped):
            train(RunConfig(**parameters))
    return train(RunConfig(**parameters))


def undisturbed(parameters: Mapping[str, Any], monkeypatch, folder: Path) -> Result:
    """The same run in results of its own."""
    with monkeypatch.context() as patch:
        patch.setenv("HPC_RESULTS", str(folder / "undisturbed"))
        return train(RunConfig(**parameters))


def weights(result: Result) -> dict[str, torch.Tensor]:
    return torch.load(result.path / "weights.pt", weights_only=True)


MEASURED = ("epoch", "steps", "samples", "dropped_samples", "lr", "train_loss", "train_accuracy", "test_loss")


def require_equal(resumed: Result, straight: Result) -> None:
    """Bit by bit the same weights, the same losses, and records that are whole."""
    assert same(weights(resumed), weights(straight))
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
        DIGITS | {"precision": "bf16", "optimizer": "adamw", "lr": 0.01, "schedule": "onecycle"},
        DIGITS | {"precision": "fp16", "warmup_steps": 0},
        OWN,
        soak(OWN | {"loader_workers": 2, "optimizer": "adamw", "schedule": "step", "momentum": 0.5}),
    ],
    ids=["fp32", "bf16-adamw", "fp16", "own", "own-workers"],
)
def test_stopped_anywhere_it_ends_bit_by_bit_the_same(
    results: Path, signal_at, monkeypatch, tmp_path: Path, parameters: dict
) -> None:
    """In the first step, in the middle, in the last of an epoch (before its evaluation), in the last of all."""
    straight = undisturbed(parameters, monkeypatch, tmp_path)
    per_epoch, total = straight.tables()["epochs"].steps[0], len(straight.tables()["steps"])
    signal_at(dict.fromkeys((total + n for n in (1, 3, per_epoch, per_epoch + 2, total)), SIGUSR1))
    resumed = until_complete(parameters, 5)
    require_equal(resumed, straight)
    assert resumed.tables()["epochs"].restarts.tolist()[:2] == [2, 1]
    assert resumed.tables()["run"]["restarts"] == 5
    assert len(list((resumed.path / "earlier").iterdir())) == 5


def test_a_stop_is_a_state_that_says_where(results: Path, signal_at) -> None:
    signal_at({4: SIGTERM, 5: SIGUSR1})
    with pytest.raises(Stopped) as first:
        train(RunConfig(**DIGITS))
    assert (first.value.signal, first.value.epoch, first.value.step) == (SIGTERM, 1, 4)
    (run,) = (results / "runs").iterdir()
    assert state(run) == "stopped"
    assert read_json(run / "status.json")["reason"] == "SIGTERM at epoch 1, step 4: checkpointed"
    assert records.load().unfinished == {run.name: "stopped"}
    with pytest.raises(Stopped, match="SIGUSR1 at epoch 1, step 5"):
        train(RunConfig(**DIGITS))


@pytest.mark.parametrize("moment", ["_warm_up", "_fresh_optimizer", "_test_indices", "_notes", "state"])
def test_a_signal_at_any_other_moment_is_heeded_too(results: Path, monkeypatch, tmp_path: Path, moment: str) -> None:
    """While building, warming up, evaluating, between evaluation and epoch, and in a checkpoint itself."""
    parameters = OWN | {"checkpoint_every": 1}
    straight = undisturbed(parameters, monkeypatch, tmp_path)
    truly, sent = getattr(loop.Trainer, moment), []

    def disturbed(self: loop.Trainer, *arguments: Any) -> Any:
        if not sent:
            sent.append(os.kill(os.getpid(), SIGUSR1))
        return truly(self, *arguments)

    monkeypatch.setattr(loop.Trainer, moment, disturbed)
    require_equal(until_complete(parameters, 1), straight)


def test_stopped_again_before_it_could_go_on_nothing_is_lost(
    results: Path, signal_at, monkeypatch, tmp_path: Path
) -> None:
    straight = undisturbed(OWN, monkeypatch, tmp_path)
    signal_at({18 + 3: SIGUSR1})
    until_stop = pytest.raises(Stopped, match="epoch 1, step 3")
    with until_stop:
        train(RunConfig(**OWN))
    truly = loop.Trainer._warm_up
    with monkeypatch.context() as patch, until_stop:
        patch.setattr(loop.Trainer, "_warm_up", lambda self: os.kill(os.getpid(), SIGUSR1) or truly(self))
        train(RunConfig(**OWN))
    resumed = train(RunConfig(**OWN))
    require_equal(resumed, straight)
    assert resumed.tables()["epochs"].restarts.tolist() == [1, 0, 0]


def test_a_long_evaluation_is_left_at_once_and_begun_anew(results: Path, monkeypatch, tmp_path: Path) -> None:
    straight = undisturbed(OWN, monkeypatch, tmp_path)
    seen, truly = [], loop.batch_size

    def counted(targets: Any) -> int:
        seen.append(len(targets))
        if len(seen) == 8:  # 6 steps of training, the second batch of evaluation
            os.kill(os.getpid(), SIGUSR1)
        return truly(targets)

    monkeypatch.setattr(loop, "batch_size", counted)
    with pytest.raises(Stopped, match="epoch 1, step 6"):
        train(RunConfig(**OWN))
    assert len(seen) == 8
    resumed = train(RunConfig(**OWN))
    require_equal(resumed, straight)
    assert resumed.tables()["epochs"].restarts.tolist() == [0, 0, 0], "its training was not interrupted"


def test_a_run_that_failed_goes_on_from_its_last_checkpoint(
    results: Path, monkeypatch, tmp_path: Path, capsys
) -> None:
    parameters = OWN | {"checkpoint_every": 1}
    straight = undisturbed(parameters, monkeypatch, tmp_path)

    def step(self: loop.Trainer, *batch: Any) -> None:
        if self.epoch == 3:
            raise RuntimeError("the node is gone")
        TRUE_STEP(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "train_on", step)
        with pytest.raises(RuntimeError, match="node"):
            train(RunConfig(**parameters))
    (run,) = (results / "runs").iterdir()
    assert state(run) == "failed"
    assert [path.name.partition("-")[0] for path in sorted((run / "checkpoints").iterdir())] == [
        "step000000006",
        "step000000012",
    ]
    resumed = train(RunConfig(**parameters))
    assert "continued at epoch 3, step 0, from step000000012-" in capsys.readouterr().out
    require_equal(resumed, straight)
    assert resumed.tables()["epochs"].restarts.tolist() == [0, 0, 0], "no epoch was continued in its middle"
    assert read_json(run / "run.json")["remarks"][0].startswith("continued at epoch 3")


def test_checkpoints_by_the_clock(results: Path, monkeypatch) -> None:
    """Due after each step; made when the one before is on disk."""
    made, truly, train_on = [], loop.Trainer.state, loop.Trainer.train_on

    def no_sooner(self: loop.Trainer, *batch: Any) -> None:
        while self.checkpoints.busy:
            time.sleep(0.001)
        train_on(self, *batch)

    monkeypatch.setattr(loop.Trainer, "train_on", no_sooner)
    monkeypatch.setattr(loop.Trainer, "state", lambda self: made.append(self.step) or truly(self))
    result = train(RunConfig(**OWN, checkpoint_minutes=1e-9))
    assert len(made) >= 3 and any(0 < step < 6 for step in made)
    assert (result.tables()["epochs"].checkpoint_seconds > 0).any()


def test_without_a_knob_or_a_signal_there_is_no_checkpoint(results: Path, monkeypatch) -> None:
    monkeypatch.setattr(loop.Trainer, "state", None)
    assert train(RunConfig(**DIGITS)).tables()["epochs"].checkpoint_seconds.tolist() == [0, 0]


def test_training_does_not_wait_for_a_checkpoint_to_be_written(results: Path, monkeypatch) -> None:
    """The write of epoch 1's is held up until the last epoch trains: it would never get there if it waited."""
    last_epoch, truly, waited = threading.Event(), atomic.write, []

    def held_up(path: Path, fill: Callable) -> None:
        if path.parent.name == "checkpoints":
            waited.append(last_epoch.wait(60))
        truly(path, fill)

    def step(self: loop.Trainer, *batch: Any) -> None:
        if self.epoch == 3:
            last_epoch.set()
        TRUE_STEP(self, *batch)

    monkeypatch.setattr(atomic, "write", held_up)
    monkeypatch.setattr(loop.Trainer, "train_on", step)
    train(RunConfig(**OWN | {"checkpoint_every": 1}))
    assert waited and all(waited)


def test_time_stood_still_for_checkpoints_is_not_part_of_the_time(results: Path, monkeypatch) -> None:
    truly = loop.Trainer.state

    def slow(self: loop.Trainer) -> Any:
        time.sleep(0.2)
        return truly(self)

    monkeypatch.setattr(loop.Trainer, "state", slow)
    tables = train(RunConfig(**OWN, checkpoint_minutes=1e-9)).tables()
    epochs = tables["epochs"]
    assert epochs.checkpoint_seconds[0] >= 0.2  # the last may find that the one before is still being written
    assert epochs.seconds.max() < 0.2 and tables["steps"].seconds.max() < 0.2
    assert tables["ranks"].seconds[0] == pytest.approx(epochs.seconds.sum())


# -- what lies on disk -------------------------------------------------------------------------------------


def stop_twice(parameters: Mapping[str, Any], signal_at) -> Path:
    """A run stopped in steps 3 and 8, with both checkpoints; its folder."""
    signal_at({3: SIGUSR1, 8: SIGUSR1})
    for _ in range(2):
        with pytest.raises(Stopped):
            train(RunConfig(**parameters))
    path = next(path for path in (Path(os.environ["HPC_RESULTS"]) / "runs").iterdir())
    assert len(list((path / "checkpoints").iterdir())) == 2
    return path


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


def test_a_damaged_newest_checkpoint_costs_only_what_came_after_the_one_before(
    results: Path, signal_at, monkeypatch, tmp_path: Path, capsys
) -> None:
    straight = undisturbed(OWN, monkeypatch, tmp_path)
    run = stop_twice(OWN, lambda plan: signal_at({18 + step: number for step, number in plan.items()}))
    damage(max((run / "checkpoints").iterdir()))
    resumed = train(RunConfig(**OWN))
    said = capsys.readouterr().out
    assert "step000000008-" in said and "is damaged" in said
    assert "continued at epoch 1, step 3" in said
    assert any("is damaged" in remark for remark in read_json(run / "run.json")["remarks"])
    require_equal(resumed, straight)


def test_with_all_checkpoints_damaged_it_starts_from_the_beginning(
    results: Path, signal_at, monkeypatch, tmp_path: Path, capsys
) -> None:
    straight = undisturbed(OWN, monkeypatch, tmp_path)
    run = stop_twice(OWN, lambda plan: signal_at({18 + step: number for step, number in plan.items()}))
    for path in (run / "checkpoints").iterdir():
        damage(path)
    resumed = train(RunConfig(**OWN))
    assert "training starts from the beginning" in capsys.readouterr().out
    assert any("from the beginning" in remark for remark in read_json(run / "run.json")["remarks"])
    require_equal(resumed, straight)
    assert resumed.tables()["run"]["restarts"] == 0


def test_step_times_of_before_that_are_lost_are_missed_aloud(results: Path, signal_at, capsys) -> None:
    run = stop_twice(OWN, signal_at)
    for path in (run / "earlier").glob("*/steps.csv.gz"):
        path.unlink()
    (run / "steps.csv.gz").unlink()
    tables = train(RunConfig(**OWN)).tables()
    assert "step times of the epochs before 2 are lost" in capsys.readouterr().out
    assert set(tables["steps"].epoch) == {2, 3} and len(tables["epochs"]) == 3


def test_full_disk_at_a_checkpoint_harms_nothing(results: Path, monkeypatch, restless: Path, capsys) -> None:
    """Epoch 1's checkpoint fits beside the records, a second one does not."""
    with small_disk(2) as disk:
        monkeypatch.setenv("HPC_RESULTS", str(disk))
        big = OWN | {"workload_args": {"width": 14_000}, "checkpoint_every": 1, "save_weights": False}
        result = train(RunConfig(**big))
        said = capsys.readouterr().out
        assert "WARNING: the checkpoint of step 12 could not be written (No space left on device)" in said
        assert "step000000006-" in said and "stays the newest" in said
        assert any("No space left" in remark for remark in read_json(result.path / "run.json")["remarks"])
        assert len(result.tables()["epochs"]) == 3


def test_full_disk_at_the_last_checkpoint_is_no_stop_but_a_failure(
    results: Path, monkeypatch, signal_at, restless: Path
) -> None:
    with small_disk(1) as disk:
        monkeypatch.setenv("HPC_RESULTS", str(disk))
        signal_at({3: SIGUSR1})
        big = OWN | {"workload_args": {"width": 80_000}}
        why = r"SIGUSR1 at epoch 1, step 3, but its checkpoint could not be written: No space left on device"
        with pytest.raises(CheckpointError, match=why):
            train(RunConfig(**big))
        (run,) = (disk / "runs").iterdir()
        assert state(run) == "failed"
        assert "No space left" in read_json(run / "status.json")["reason"]
        assert not list((run / "checkpoints").iterdir())


def test_records_that_cannot_be_written_end_the_run_with_the_reason(results: Path, monkeypatch) -> None:
    with small_disk(0.5) as disk:
        monkeypatch.setenv("HPC_RESULTS", str(disk))

        def fill_up(self: loop.Trainer, *batch: Any) -> None:
            if not (disk / "ballast").exists():
                with pytest.raises(OSError), (disk / "ballast").open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
            TRUE_STEP(self, *batch)

        monkeypatch.setattr(loop.Trainer, "train_on", fill_up)
        with pytest.raises(OSError, match="No space left on device"):
            train(RunConfig(**OWN))
        (disk / "ballast").unlink()
        (run,) = (disk / "runs").iterdir()
        assert state(run) in ("failed", "dead")
        monkeypatch.setattr(loop.Trainer, "train_on", TRUE_STEP)
        assert len(train(RunConfig(**OWN | {"save_weights": False})).tables()["epochs"]) == 3


# -- whose checkpoint it is --------------------------------------------------------------------------------


def test_other_code_may_continue_and_is_recorded(results: Path, monkeypatch, signal_at, capsys) -> None:
    truly = provenance.collect
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "collect", lambda *a: truly(*a) | {"digest": "a" * 64})
        signal_at({3: SIGUSR1})
        with pytest.raises(Stopped):
            train(RunConfig(**OWN))
    monkeypatch.setattr(provenance, "collect", lambda *a: truly(*a) | {"digest": "b" * 64})
    result = train(RunConfig(**OWN))
    said = "the code has changed since that checkpoint: its digest is bbbbbbbbbbbb, was aaaaaaaaaaaa"
    assert said in capsys.readouterr().out
    origin = json.loads((result.path / "provenance.json").read_text())
    (before,) = origin["continues"]
    assert (before["digest"], origin["digest"]) == ("a" * 64, "b" * 64)
    assert (before["until_epoch"], before["until_step"]) == (1, 3) and before["host"]
    assert result.tables()["run"]["digest"] == "a" * 12 + "+" + "b" * 12


def test_a_checkpoint_of_another_model_is_refused_with_what_to_do(results: Path, signal_at, monkeypatch) -> None:
    signal_at({3: SIGUSR1})
    with pytest.raises(Stopped):
        train(RunConfig(**OWN))
    monkeypatch.setattr(torch.nn, "BatchNorm1d", torch.nn.LayerNorm)  # something that the workload imports
    with pytest.raises(CheckpointError, match=r"does not fit this model.*redo"):
        train(RunConfig(**OWN))
    (run,) = (results / "runs").iterdir()
    assert state(run) == "failed"
    result = train(RunConfig(**OWN), redo=True)
    assert result.tables()["run"]["restarts"] == 0


def test_redo_begins_anew_but_only_once_in_a_job(results: Path, monkeypatch, signal_at, capsys) -> None:
    def stop_at_once() -> str:
        with pytest.raises(Stopped) as stopped:
            train(RunConfig(**OWN), redo=True)
        return stopped.value.where

    monkeypatch.setenv("SLURM_JOB_ID", "17")
    signal_at(dict.fromkeys((4, 8, 11), SIGUSR1))
    assert stop_at_once() == "SIGUSR1 at epoch 1, step 4"
    assert stop_at_once() == "SIGUSR1 at epoch 1, step 4", "redone"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert stop_at_once() == "SIGUSR1 at epoch 2, step 1", "the same job, requeued, does not begin again"


def test_a_loss_that_is_no_number_names_its_step_after_a_resume_too(results: Path, monkeypatch, signal_at) -> None:
    signal_at({3: SIGUSR1})
    with pytest.raises(Stopped):
        train(RunConfig(**OWN))
    truly = loop.Recorder.step
    monkeypatch.setattr(
        loop.Recorder, "step", lambda self, *, loss, **more: truly(self, loss=loss * float("nan"), **more)
    )
    with pytest.raises(NonFiniteLoss, match="by step 4 of epoch 1"):
        train(RunConfig(**OWN))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # two on the one core that a rank has here
def test_a_scheduler_that_tells_every_process_does_not_end_the_workers(results: Path, signal_at, monkeypatch) -> None:
    """Slurm's signals reach the loader's workers too: the rank still needs them for the step that it is in."""
    told = []

    def step(self: loop.Trainer, *batch: Any) -> None:
        TRUE_STEP(self, *batch)
        if self.steps_done == 2 and not told:
            workers = psutil.Process().children()
            assert len(workers) >= 2
            for process in [*workers, psutil.Process()]:
                told.append(process.send_signal(SIGTERM))
            time.sleep(0.3)

    monkeypatch.setattr(loop.Trainer, "train_on", step)
    with pytest.raises(Stopped, match="epoch 1, step 3"):
        train(RunConfig(**OWN | {"loader_workers": 2}))


# -- several ranks -----------------------------------------------------------------------------------------


def tell_one(parameters: Mapping[str, Any], rank: int, number: signal.Signals, step: int) -> None:
    """A rank's body: train; one of the ranks gets a signal in its so-manieth step."""
    done = [0]

    def counted(self: loop.Trainer, *batch: Any) -> None:
        TRUE_STEP(self, *batch)
        done[0] += 1
        if self.ranks.rank == rank and done[0] == step:
            os.kill(os.getpid(), number)

    loop.Trainer.train_on = counted
    train(RunConfig(**parameters))


@pytest.mark.soak  # tests/slurm does it with ranks on two nodes
@pytest.mark.parametrize("parameters", [OWN, OWN | {"loader_workers": 1}, DIGITS], ids=["own", "workers", "cnn"])
def test_two_ranks_of_which_one_is_told_stop_together_and_end_the_same(
    results: Path, restless: Path, parameters: dict
) -> None:
    def attempt(body: Callable, *arguments: Any, where: Path) -> tuple[list[int], str]:
        ranks = Ranks(2, body, parameters, *arguments, folder=restless, results=where)
        return ranks.end(), ranks.said()

    assert attempt(trained, where=results / "straight")[0] == [0, 0]
    stops = [(1, SIGUSR1, 1, 75), (0, SIGUSR1, 3, 75), (1, SIGTERM, 2, 143)]
    for rank, number, step, code in stops:
        codes, said = attempt(tell_one, rank, number, step, where=results)
        assert codes == [code, code], said
        last = [line for line in said.splitlines() if "checkpointed" in line][-2:]
        assert last[0] == last[1] and number.name in last[0], "both in the same step"
    codes, said = attempt(trained, where=results)
    assert codes == [0, 0], said
    ours, theirs = (Result(next((folder / "runs").iterdir())) for folder in (results, results / "straight"))
    require_equal(ours, theirs)
    assert ours.tables()["run"]["restarts"] == 3


def test_two_ranks_agree_rarely_once_steps_are_quick(results: Path, restless: Path) -> None:
    """About once a second, not in each step; and the end of an epoch is heeded whatever the pace."""
    quick = OWN | {"steps_per_epoch": 400, "epochs": 2, "evaluate_every": 0, "save_weights": False}
    ranks = Ranks(2, counting, quick, folder=restless, results=results)
    assert ranks.end() == [0, 0], ranks.said()
    counts = [json.loads((restless / f"agreements{rank}.json").read_text()) for rank in range(2)]
    assert counts[0] == counts[1] < 200


def counting(parameters: Mapping[str, Any]) -> None:
    """A rank's body: train, and leave how often the ranks have asked each other."""
    from hpc_utils.train.ranks import Ranks as Theirs

    asked, truly = [], Theirs.max
    Theirs.max = lambda self, values: asked.append(1) or truly(self, values)
    train(RunConfig(**parameters))
    Path(f"agreements{os.environ['RANK']}.json").write_text(json.dumps(len(asked)))


def full_on_rank_0(parameters: Mapping[str, Any]) -> None:
    """A rank's body: rank 0 finds its disk full when it closes the first epoch."""

    def no_room(self: RunWriter, rows: Any) -> None:
        raise OSError(28, "No space left on device")

    RunWriter.write_epochs = no_room
    train(RunConfig(**parameters))


def test_records_that_rank_0_cannot_write_end_the_others_too(results: Path, restless: Path) -> None:
    ranks = Ranks(2, full_on_rank_0, OWN, folder=restless, results=results)
    assert ranks.end() in (
        [1, 1],
        [1, -signal.SIGTERM],
    )  # rank 1 ends by what it hears from rank 0, or by the launcher
    assert "No space left on device" in ranks.said()
    (run,) = (results / "runs").iterdir()
    assert "No space left" in read_json(run / "status.json")["reason"]
