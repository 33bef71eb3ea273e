"""A rank is killed at any moment, as by the kernel or a power cut: run again, it ends as if nothing had been."""

from __future__ import annotations

import os
import random
import shutil
import signal
import textwrap
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from hpc_utils import records
from hpc_utils.records import checks
from hpc_utils.train import Result, loop

from .forked import Ranks, trained
from .support import same
from .test_resume import MEASURED, RESTLESS

# Batch norm, dropout and random data; each epoch checkpointed, and by the clock as often as the disk lets it.
PARAMETERS = {
    "workload": "restless:make", "epochs": 6, "steps_per_epoch": 12, "global_batch": 16, "eval_batch": 4,
    "lr": 0.05, "warmup_steps": 1, "checkpoint_every": 1, "checkpoint_minutes": 1e-9, "save_weights": True,
}  # fmt: skip
KILLS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ranks run, with the workload."""
    folder = tmp_path_factory.mktemp("kills")
    (folder / "restless.py").write_text(textwrap.dedent(RESTLESS))
    return folder


@dataclass(frozen=True)
class Undisturbed:
    """The same run without a kill, and how long it took: over all, and of that in training."""

    result: Result
    seconds: float
    training: float


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Undisturbed:
    for number in range(2):  # the first also starts the server that ranks are forked from
        begun = time.monotonic()
        ranks = Ranks(2, trained, PARAMETERS, folder=folder, results=folder / f"undisturbed{number}")
        assert ranks.end() == [0, 0], ranks.said()
        seconds = time.monotonic() - begun
    result = the_run(folder / "undisturbed1")
    epochs = result.tables()["epochs"]
    return Undisturbed(result, seconds, epochs[["seconds", "eval_seconds", "checkpoint_seconds"]].sum(axis=None))


def the_run(results: Path) -> Result:
    (run,) = (results / "runs").iterdir()
    return Result(run)


def doomed(parameters: Mapping[str, Any], rank: int, seconds: float) -> None:
    """A rank's body: train; one of the ranks is killed so long after its first step began."""
    truly = loop.Trainer._train

    def train_on_time(self: loop.Trainer) -> None:
        if self.ranks.rank == rank:
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        loop.Trainer._train = truly
        truly(self)

    loop.Trainer._train = train_on_time
    trained(parameters)


def survive(seed: int, folder: Path, undisturbed: Undisturbed) -> int:
    """Kill a random rank at a random moment, some times; then let it end, and compare. How often one was killed."""
    dice, results, killed = random.Random(seed), folder / f"seed{seed}", 0
    for attempt in range(KILLS + 1):
        rank, when = dice.randrange(2), dice.random()
        if attempt == KILLS:
            ranks = Ranks(2, trained, PARAMETERS, folder=folder, results=results)
        elif dice.random() < 0.5:  # from before it has joined the others to about the end
            ranks = Ranks(2, trained, PARAMETERS, folder=folder, results=results)
            time.sleep(when * undisturbed.seconds)
            ranks.signal(rank, signal.SIGKILL)
        else:  # while it trains
            moment = when * undisturbed.training
            ranks = Ranks(2, doomed, PARAMETERS, rank, moment, folder=folder, results=results)
        codes = ranks.end()
        if codes == [0, 0]:
            break
        assert attempt < KILLS and -signal.SIGKILL in codes, ranks.said()
        killed += 1
    require_undisturbed(seed, the_run(results), undisturbed.result)
    shutil.rmtree(results)
    return killed


def require_undisturbed(seed: int, resumed: Result, undisturbed: Result) -> None:
    """Bit by bit the same weights and losses, each step recorded once."""
    ours, theirs = (torch.load(run.path / "weights.pt", weights_only=True) for run in (resumed, undisturbed))
    assert same(ours, theirs), f"seed {seed}: other weights"
    found = records.load(resumed.path.parent.parent)
    assert found.refused == {} and list(found.runs.run_id) == [resumed.run_id]
    ours, theirs = resumed.tables(), undisturbed.tables()
    for name in MEASURED:
        assert ours["epochs"][name].tolist() == theirs["epochs"][name].tolist(), f"seed {seed}: {name}"
    step = ["rank", "epoch", "step"]
    assert ours["steps"][step].equals(theirs["steps"][step]), f"seed {seed}: a step is missing or twice there"
    assert not [fault for row in ours["epochs"].to_dict("records") for fault in checks.epoch_faults(row)]


@pytest.mark.soak  # tests/launch kills a rank once
@pytest.mark.parametrize("tens", range(2))
def test_a_rank_may_be_killed_at_any_moment(tens: int, folder: Path, undisturbed: Undisturbed) -> None:
    killed = [survive(seed, folder, undisturbed) for seed in range(10 * tens, 10 * tens + 10)]
    assert sum(killed) >= 10, "they were hardly ever hit"


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_a_rank_may_be_killed_at_any_of_a_thousand_moments(folder: Path, undisturbed: Undisturbed) -> None:
    for seed in range(1000, 2000):
        survive(seed, folder, undisturbed)
