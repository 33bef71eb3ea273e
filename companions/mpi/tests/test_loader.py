"""The loader's batches: the same for any number of threads and ranks, and those of the PyTorch half."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from companions.mpi import loader
from hpc_utils.datasets import Images
from hpc_utils.train.images import ImageSource

COUNT, BATCH = 70, 12
RNG = np.random.default_rng(0)


def data(channels: int) -> Images:
    pixels = RNG.integers(1, 256, (COUNT, 6, 5, channels), dtype=np.uint8)
    mean, std = (0.5, 0.4, 0.3)[:channels], (0.2, 0.25, 0.3)[:channels]
    return Images("x", "x", "train", pixels, np.arange(COUNT), tuple("abc"), mean, std, "")


DATA = data(3)


def epoch(number: int = 1, images: Images = DATA, **options) -> list[loader.Batch]:
    options = {"batch": BATCH, "shift": 2, "flip": True, "mean": images.mean, "std": images.std, **options}
    made = loader.Batches(images.images, images.labels, **options)
    found = [(x.copy(), y) for x, y in made.epoch(number)]
    assert len(found) == len(made)
    return found


def joined(*shares: list[loader.Batch]) -> tuple[np.ndarray, np.ndarray]:
    """The global batches of all ranks, one after the other."""
    parts = [part for step in zip(*shares, strict=True) for part in step]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


@pytest.mark.parametrize("chunk", [1, 30, 2048])
@pytest.mark.parametrize(("threads", "ranks"), [(1, 2), (2, 1), (2, 3)])
def test_batches_do_not_depend_on_threads_ranks_or_chunks(
    threads: int, ranks: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = joined(epoch())
    monkeypatch.setattr(loader, "CHUNK", chunk)
    found = joined(*(epoch(threads=threads, rank=rank, world_size=ranks) for rank in range(ranks)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_epochs_are_other_permutations() -> None:
    (x, y), (_, other) = joined(epoch(1)), joined(epoch(2))
    assert len(set(y)) == len(y) == COUNT // BATCH * BATCH
    assert x.shape == (len(y), 6, 5, 3) and x.dtype == np.float32
    assert not np.array_equal(y, other)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("shift", "flip"), [(0, False), (1, True), (4, False)])
def test_images_are_those_of_the_torch_loader(shift: int, flip: bool, channels: int) -> None:
    images = data(channels)
    x, y = joined(epoch(3, images=images, seed=5, shift=shift, flip=flip))
    expected, _ = ImageSource(images, seed=5, padding=shift, flip=flip).batch(
        torch.from_numpy(y), 3, torch.device("cpu")
    )
    np.testing.assert_allclose(x, expected.permute(0, 2, 3, 1), atol=1e-5)


@pytest.mark.parametrize("options", [{"batch": 7, "world_size": 2}, {"shift": 5}])
def test_what_has_no_batches_is_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="expected"):
        epoch(**options)
