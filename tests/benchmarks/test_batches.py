"""Every loader that is compared does the same work: batches of that shape, all samples, augmented and normalised."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks import batches
from hpc_utils import datasets

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ("pil", "v2", "v2-batch", "device", *batches.OURS))
def test_a_pass_over_the_data_has_each_sample_once_normalised(kind: str) -> None:
    digits = datasets.load("digits", "train")
    size = 16
    epoch = batches.batches(kind, "digits", size, CPU)
    for steps in (2, 3):
        found = list(epoch(steps))
        assert [tuple(images.shape) for images, _ in found] == [(size, 1, 8, 8)] * steps
        assert {images.dtype for images, _ in found} == {torch.float32}
        assert {labels.dtype for _, labels in found} == {torch.int64}
    black = (0 - torch.tensor(digits.mean)) / torch.tensor(digits.std)
    assert torch.cat([images for images, _ in found]).min() == pytest.approx(black.item(), abs=1e-5)
    whole = batches.batches(kind, "digits", 479, CPU)
    counted = torch.bincount(torch.cat([labels for _, labels in whole(len(digits.labels) // 479)]), minlength=10)
    assert len(digits.labels) % 479 == 0, "the test's batch cuts the data set evenly"
    assert counted.tolist() == np.bincount(digits.labels, minlength=10).tolist()


def test_workers_live_on_and_load_what_an_epoch_asks_for_alone() -> None:
    made = batches.Textbook(batches.TensorSamples(datasets.load("digits", "train")), 16, 1, False, whole=False)
    seen = []
    for steps in (1, 4):
        assert len(list(made.epoch(steps))) == steps
        seen.append([worker.pid for worker in made.loader._iterator._workers])
    assert seen[0] == seen[1]


def test_an_order_longer_than_the_data_shuffles_them_anew() -> None:
    order = batches.Shuffled(10)
    order.count = 25
    found = list(order)
    assert sorted(found[:10]) == sorted(found[10:20]) == list(range(10))
    assert len(set(found[20:])) == 5
    assert len({tuple(found[:10]), tuple(found[10:20]), tuple(range(10))}) == 3


def test_batches_on_the_device_are_other_crops_of_the_images_half_of_them_mirrored() -> None:
    pixels = np.random.default_rng(0).integers(1, 256, (8, 16, 16, 3), dtype=np.uint8)
    about = {"name": "", "title": "", "split": "train", "classes": tuple("abcdefgh"), "sha256": ""}
    split = datasets.Images(images=pixels, labels=np.arange(8), mean=(0.5,) * 3, std=(0.2,) * 3, **about)
    torch.manual_seed(0)
    made = batches.OnDevice(split, 8, CPU)
    found = set()
    for _ in range(8):
        for image, crop in zip(made.images, made.crop_and_flip(made.images), strict=True):
            padded = F.pad(image, [2] * 4)
            found |= {
                (top, left, mirrored)
                for top, left, mirrored in itertools.product(range(5), range(5), (False, True))
                if torch.equal(crop, _window(padded, top, left, mirrored))
            }
    assert len(found) > 25, "64 crops, of 50 that there are"
    assert {mirrored for *_, mirrored in found} == {False, True}


def _window(padded: torch.Tensor, top: int, left: int, mirrored: bool) -> torch.Tensor:
    window = padded[:, top : top + 16, left : left + 16]
    return window.flip(2) if mirrored else window
