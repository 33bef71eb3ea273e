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


@pytest.mark.parametrize("kind", (*batches.TEXTBOOK, *batches.OURS))
def test_a_pass_over_the_data_has_each_sample_once_normalised(kind: str) -> None:
    digits = datasets.load("digits", "train")
    size, steps = 16, 3
    loader = batches.batches(kind, "digits", size, steps, CPU)
    for _ in range(2):
        found = list(loader)
        assert [tuple(images.shape) for images, _ in found] == [(size, 1, 8, 8)] * steps
        assert {images.dtype for images, _ in found} == {torch.float32}
        assert {labels.dtype for _, labels in found} == {torch.int64}
    black = (0 - torch.tensor(digits.mean)) / torch.tensor(digits.std)
    assert torch.cat([images for images, _ in found]).min() == pytest.approx(black.item(), abs=1e-5)
    whole = batches.batches(kind, "digits", 479, len(digits.labels) // 479, CPU)
    counted = torch.bincount(torch.cat([labels for _, labels in whole]), minlength=10)
    assert len(digits.labels) % 479 == 0, "the test's batch cuts the data set evenly"
    assert counted.tolist() == np.bincount(digits.labels, minlength=10).tolist()


def test_batches_on_the_device_are_other_crops_of_the_images_half_of_them_mirrored() -> None:
    pixels = np.random.default_rng(0).integers(1, 256, (8, 16, 16, 3), dtype=np.uint8)
    about = {"name": "", "title": "", "split": "train", "classes": tuple("abcdefgh"), "sha256": ""}
    split = datasets.Images(images=pixels, labels=np.arange(8), mean=(0.5,) * 3, std=(0.2,) * 3, **about)
    torch.manual_seed(0)
    made = batches.OnDevice(split, 8, 1, CPU)
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
