"""What the tests and the ranks that they start share."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from hpc_utils.config import RunConfig
from hpc_utils.records.folder import read_json
from hpc_utils.train import Result, Stopped, loop, train

# A run of a moment: `cnn` has no batch statistics, so it trains alike on any number of ranks.
BRIEF = {
    "workload": "cnn", "epochs": 1, "steps_per_epoch": 3, "global_batch": 64, "warmup_steps": 0, "evaluate_every": 0,
}  # fmt: skip
PHASES = ["data", "forward", "backward", "optimizer"]

Weights = dict[str, Tensor]
Action = Callable[[loop.Trainer], object]


def fit(**parameters: Any) -> tuple[Result, Weights]:
    """Train again with `parameters`; also the trained weights and buffers."""
    kept: Weights = {}

    class Kept(loop.Trainer):
        def run(self) -> None:
            super().run()
            kept.update((name, value.clone()) for name, value in self.model.state_dict().items())

    with mock.patch.object(loop, "Trainer", Kept):
        result = train(RunConfig(**parameters), redo=True)
    return result, kept


def same(one: Weights, other: Weights) -> bool:
    """Whether all weights are equal, bit by bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def distance(one: Weights, other: Weights) -> float:
    """The largest difference between any two weights."""
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


def saved(run: Path) -> Weights:
    return torch.load(run / "weights.pt", weights_only=True)


def remarks(run: Path) -> list[str]:
    return read_json(run / "run.json")["remarks"]


@contextlib.contextmanager
def after_steps(actions: Mapping[int, Action]) -> Iterator[None]:
    """Inside, the trainer does something after its n-th step, counted over all attempts of this process."""
    original, done = loop.Trainer.train_on, [0]

    def step(self: loop.Trainer, *batch: Any) -> None:
        original(self, *batch)
        done[0] += 1
        actions.get(done[0], lambda _: None)(self)

    with mock.patch.object(loop.Trainer, "train_on", step):
        yield


def gets(number: signal.Signals) -> Action:
    """The process gets that signal."""
    return lambda _: os.kill(os.getpid(), number)


def stop(parameters: Mapping[str, Any], step: int, number: signal.Signals = signal.SIGUSR1, **more: Any) -> Stopped:
    """Train until a signal comes in the attempt's n-th step."""
    with after_steps({step: gets(number)}), pytest.raises(Stopped) as stopped:
        train(RunConfig(**parameters), **more)
    return stopped.value


def resumed(parameters: Mapping[str, Any], step: int) -> Result:
    """The second repeat of a run, stopped in that step and then continued."""
    again = {**parameters, "repeat": 2}
    stop(again, step)
    result = train(RunConfig(**again))
    assert result.tables()["run"]["restarts"] == 1
    return result


@contextlib.contextmanager
def small_disk(mebibytes: float) -> Iterator[Path]:
    """A real file system of that size; skips where none can be mounted, which in CI is a failure."""
    folder = Path(tempfile.mkdtemp(prefix="small-disk-"))
    size = f"size={round(mebibytes * 1024)}k"
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True, text=True)
        why = done.stderr.strip()
    except FileNotFoundError:
        why = "there is no mount command"
    if why:
        folder.rmdir()
        if os.environ.get("CI") and sys.platform == "linux":
            pytest.fail(f"no small disk: {why}")
        pytest.skip(f"no small disk can be mounted here: {why}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()
