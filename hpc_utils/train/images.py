"""The image data sets as batches: gathered on the host, on the device, or loaded sample by sample.

All three use `ImageSource.finish` with random numbers keyed by (seed, epoch, sample), so that images are bit-identical
however they are loaded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from hpc_utils import datasets

from . import augment
from .workload import Batch

AHEAD = 1024  # steps whose indices and random numbers are moved to the device at once: an epoch of most runs


class ImageSource:
    """Images in memory or memory-mapped, augmented and normalised a whole batch at a time on the device.

    Args:
        images: as `datasets.load` returns them: uint8 (N, H, W, C).
        padding: maximum shift of a random crop, in pixels; 0: no crop.
        flip: mirror half of the images. alternate: each in every other epoch.
        cutout: edge of the zeroed square, in pixels; 0: none.
        size: edge of the images after ImageNet's transforms, normalisation included, in pixels; None: none of them.
        crop: those of training (a random box, resized, `padding` unused), not of evaluation (a central one).
        pin_memory: copy batches to a GPU from page-locked memory, without waiting for the copy.
    """

    def __init__(
        self,
        images: datasets.Images,
        *,
        seed: int,
        padding: int = 0,
        flip: bool = False,
        alternate: bool = False,
        cutout: int = 0,
        size: int | None = None,
        crop: bool = False,
        channels_last: bool = True,
        pin_memory: bool = True,
    ) -> None:
        self.mean = images.mean
        self.std = images.std
        self.pixels = images.images
        self.labels = torch.from_numpy(np.array(images.labels))
        self.seed = seed
        self.padding = padding
        self.flip = flip
        self.cutout = cutout
        self.alternate = alternate
        self.size = size
        self.crop = crop
        self.channels_last = channels_last
        self.pin_memory = pin_memory
        statistics = augment.IMAGENET if size and len(images.mean) == 3 else (images.mean, images.std)
        mean, std = (torch.tensor(value, dtype=torch.float64) for value in statistics)
        self._normalisation = tuple(constant.float().view(1, -1, 1, 1) for constant in (255 * mean, 1 / (255 * std)))
        self._constants: dict[torch.device, tuple[Tensor, ...]] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, epoch: int, device: torch.device) -> Batch:
        """Float images (B, C, H, W), normalised, and labels (B,), on `device`."""
        pixels = torch.from_numpy(self.pixels[indices.numpy()])  # a copy: (B, H, W, C) uint8
        pixels, labels, drawn = (
            self.move(t, device) for t in (pixels, self.labels[indices], self.draw(indices, epoch))
        )
        return self.finish(pixels, drawn), labels

    def move(self, value: Tensor, device: torch.device) -> Tensor:
        """Copy `value` to `device`."""
        if device.type == "cpu":
            return value
        return (value.pin_memory() if self.pin_memory else value).to(device, non_blocking=True)

    def draw(self, indices: Tensor, epoch: int) -> Tensor:
        """Draw the random numbers of these samples in `epoch`, on the device of `indices`: see `augment`."""
        height, width = self.pixels.shape[1:3]
        key = augment.key(self.seed, epoch)
        if self.crop:
            return augment.draw_boxes(key, indices, height, width)
        return augment.draw(
            key, indices, height, width,
            padding=self.padding, flip=self.flip, cutout=self.cutout,
            alternate=(augment.key(self.seed, 0), epoch) if self.alternate else None,
        )  # fmt: skip

    def finish(self, pixels: Tensor, drawn: Tensor) -> Tensor:
        """Augment and normalise on the pixels' device: uint8 (B, H, W, C) to float32 (B, C, height, width).

        Subtraction and multiplication stay separate, because a fused operation would round differently.
        """
        if self.crop:
            pixels = augment.resized_crops(pixels, drawn, self.size)
        elif self.size:
            pixels = augment.central_crop(pixels, self.size)
        elif self.padding or self.flip:
            pixels = augment.crop_and_flip(pixels, drawn, padding=self.padding)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        images = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=layout)
        if pixels.device not in self._constants:
            self._constants[pixels.device] = tuple(constant.to(pixels.device) for constant in self._normalisation)
        mean, scale = self._constants[pixels.device]
        images.sub_(mean).mul_(scale)
        return augment.cut_out_(images, drawn, self.cutout) if self.cutout else images


class DeviceImages:
    """All images of a source in device memory."""

    def __init__(self, source: ImageSource, device: torch.device) -> None:
        self._source = source
        self._device = device
        self._pixels = torch.from_numpy(np.array(source.pixels)).to(device)
        self._labels = source.labels.to(device)

    def __len__(self) -> int:
        return len(self._source)

    def parts(self, indices: Iterable[Tensor], epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (indices, random numbers) on the device for each tensor of indices: what `finish` makes a batch of."""
        source = self._source
        steps = iter(indices)
        while next_batches := list(itertools.islice(steps, AHEAD)):
            sizes = [len(batch) for batch in next_batches]
            chosen = source.move(torch.cat(next_batches), self._device)
            drawn = source.draw(chosen, epoch)
            yield from zip(chosen.split(sizes), drawn.split(sizes, dim=1), strict=True)

    def finish(self, chosen: Tensor, drawn: Tensor) -> Batch:
        """Return the batch of one of `parts`, equal to that of `ImageSource.batch`."""
        return self._source.finish(self._pixels.index_select(0, chosen), drawn), self._labels.index_select(0, chosen)


class Numbered(NamedTuple):
    """One batch as a DataLoader's worker receives it: epoch, step and sample indices."""

    epoch: int
    step: int
    indices: list[int]


class ImageSamples:
    """The same images as a map-style data set for a DataLoader, with their collate function."""

    def __init__(self, source: ImageSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitems__(self, batch: Numbered) -> list[tuple[Tensor, int]]:
        """Return the samples in memory order: (H, W, C) for channels last, else (C, H, W)."""
        source = self._source
        numbers = source.draw(torch.tensor(batch.indices), batch.epoch).split(1, dim=1)
        samples = []
        for index, drawn in zip(batch.indices, numbers, strict=True):
            image = source.finish(torch.from_numpy(source.pixels[[index]]), drawn)[0]
            samples.append((image.permute(1, 2, 0) if source.channels_last else image, int(source.labels[index])))
        return samples

    def collate(self, samples: list[tuple[Tensor, int]]) -> Batch:
        """Return images (B, C, H, W) in the configured layout, and labels (B,)."""
        images, labels = default_collate(samples)
        return images.permute(0, 3, 1, 2) if self._source.channels_last else images, labels
