"""A rank is killed at any moment, as by the kernel or a power cut; the resumed run equals an uninterrupted one."""

from __future__ import annotations

import random
import shutil
import textwrap
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from hpc_utils.train import Result, loop

from .forked import Ranks, trained
from .support import gets
from .test_resume import RESTLESS, require_equal, the_run

pytestmark = pytest.mark.soak  # tests/launch kills a rank once

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


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> tuple[Result, float, float]:
    """The same run without a kill, and how long it took: over all, and of that in training."""
    for number in range(2):  # the first also starts the server that ranks are forked from
        begun = time.monotonic()
        ranks = Ranks(2, trained, PARAMETERS, folder=folder, results=folder / f"uninterrupted{number}")
        assert ranks.end() == [0, 0], ranks.output()
        seconds = time.monotonic() - begun
    result = Result(the_run(folder / "uninterrupted1"))
    epochs = result.tables()["epochs"]
    return result, seconds, epochs[["seconds", "eval_seconds", "checkpoint_seconds"]].sum(axis=None)


def doomed(parameters: Mapping[str, Any], rank: int, seconds: float) -> None:
    """A rank's body: train; one of the ranks is killed so long after its first step began."""
    original = loop.Trainer._train

    def train_on_time(self: loop.Trainer) -> None:
        if self.ranks.rank == rank:
            threading.Timer(seconds, gets(SIGKILL), [self]).start()
        loop.Trainer._train = original
        original(self)

    loop.Trainer._train = train_on_time
    trained(parameters)


def survive(seed: int, folder: Path, uninterrupted: tuple[Result, float, float]) -> int:
    """Kill a random rank at a random moment, some times; then let it end, and compare. How often one was killed."""
    dice, results, killed = random.Random(seed), folder / f"seed{seed}", 0
    straight, seconds, training = uninterrupted
    for attempt in range(KILLS + 1):
        rank, when, early = dice.randrange(2), dice.random(), dice.random() < 0.5
        body = [trained, PARAMETERS] if attempt == KILLS or early else [doomed, PARAMETERS, rank, when * training]
        ranks = Ranks(2, *body, folder=folder, results=results)
        if early and attempt < KILLS:  # from before it has joined the others to about the end
            time.sleep(when * seconds)
            ranks.signal(rank, SIGKILL)
        codes = ranks.end()
        if codes == [0, 0]:
            break
        assert attempt < KILLS and -SIGKILL in codes, ranks.output()
        killed += 1
    require_equal(Result(the_run(results)), straight)
    shutil.rmtree(results)
    return killed


@pytest.mark.timeout(6 * 3600)
def test_a_rank_may_be_killed_at_any_moment(folder: Path, uninterrupted: tuple) -> None:
    killed = [survive(seed, folder, uninterrupted) for seed in range(1000)]
    assert sum(killed) >= 1000, "they were hardly ever hit"
