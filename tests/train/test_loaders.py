"""The three loaders of the image data sets, and the options of the DataLoader."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from hpc_utils.config import RunConfig
from hpc_utils.train import images
from hpc_utils.train.loader import Loader
from hpc_utils.train.resolve import resolve
from hpc_utils.train.sampler import Sampler

from .support import BRIEF, fit, same

WAYS = [{"loader": "device"}, {"loader": "workers"}, {"loader": "workers", "loader_workers": 1}]


def batches(
    *, device: str = "cpu", world_size: int = 1, epoch: int = 2, done: int = 0, steps: int = 3, **options: object
) -> list[tuple]:
    """(images, labels) of the first steps of an epoch of digits, rank by rank within each step."""
    config = RunConfig(workload="cnn", global_batch=64, **options)
    workload = resolve(config)
    loader = Loader(workload.train, workload, config, torch.device(device))

    def of(rank: int) -> list[tuple]:
        sampler = Sampler(len(workload.train), 64, rank=rank, world_size=world_size, steps=steps)
        return list(loader.batches(sampler.epoch(epoch, done), epoch, done))

    return [batch for step in zip(*(of(rank) for rank in range(world_size)), strict=True) for batch in step]


def require_equal(ours: list[tuple], theirs: list[tuple]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, check_stride=True)


@pytest.mark.parametrize("layout", [True, False], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("way", WAYS)
def test_images_are_the_same_bit_by_bit_whoever_loads_them(way: dict, layout: bool) -> None:
    for options in ({"cutout": 3, "channels_last": layout}, {"image_size": 12, "channels_last": layout}):
        require_equal(batches(**way, **options), batches(loader="host", **options))
        assert batches(**way, **options)[0][0].shape[-1] == options.get("image_size", 8)


@pytest.mark.parametrize("way", ["host", "device", "workers"])
def test_several_ranks_and_a_resume_see_what_one_rank_sees(way: str) -> None:
    whole = batches(loader=way)
    halves = batches(loader=way, world_size=2)
    glued = [tuple(map(torch.cat, zip(*halves[i : i + 2], strict=True))) for i in range(0, 6, 2)]
    torch.testing.assert_close(glued, whole, rtol=0, atol=0)
    require_equal(batches(loader=way, done=2), whole[2:])


def test_an_epoch_longer_than_what_is_drawn_ahead_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "AHEAD", 2)
    require_equal(batches(loader="device", steps=5), batches(loader="host", steps=5))


@pytest.mark.parametrize("way", WAYS)
def test_training_and_evaluation_are_the_same(results: Path, way: dict) -> None:
    run = BRIEF | {"epochs": 2, "evaluate_every": 1, "warmup_steps": 2}
    (ours, weights), (theirs, others) = fit(**run, **way), fit(**run)
    assert same(weights, others)
    columns = ["train_loss", "test_loss", "test_accuracy"]
    assert ours.tables()["epochs"][columns].equals(theirs.tables()["epochs"][columns])


@pytest.mark.parametrize("pinned", [True, False])
def test_batches_wait_in_page_locked_memory_only_if_asked(monkeypatch: pytest.MonkeyPatch, pinned: bool) -> None:
    """Where there is no GPU, it is seen who would be calls for it."""
    calls: list[Tensor] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: calls.append(self) or self)
    config = RunConfig(workload="cnn", pin_memory=pinned)
    resolve(config).train.move(torch.ones(1), torch.device("meta"))
    assert len(calls) == pinned
