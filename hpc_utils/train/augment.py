"""Augmentation keyed by (seed, epoch, sample), independent of rank and order; and ImageNet's transforms.

Random numbers come from a counter-based generator (the finaliser of SplitMix64, Steele et al. 2014): it has no state, and
gives the same numbers on CPU and GPU, on any number of ranks and after a resume.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

_MASK = (1 << 64) - 1
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of its pixels in [0, 1]
# Defaults of torchvision's RandomResizedCrop.
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10


def key(seed: int, epoch: int) -> int:
    """A 63-bit key of (seed, epoch)."""
    return _mix(_mix(seed * 0x9E3779B97F4A7C15 + 1) ^ (epoch * 0xD1B54A32D192ED03 + 7)) >> 1


def integers(key: int, indices: Tensor, stream: int, high: int) -> Tensor:
    """Draw one uniform integer in [0, high) per sample: int64 (B,). Each `stream` is independent."""
    state = indices * 1_000_003 + (key ^ _mix(stream + 1) >> 1)
    for multiplier in (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15):  # SplitMix64's, as signed 64-bit
        state = (state ^ _logical_shift(state, 30)) * multiplier
    state = state ^ _logical_shift(state, 31)
    return _logical_shift(state, 33) % high


def draw(
    key: int,
    indices: Tensor,
    height: int,
    width: int,
    *,
    padding: int = 0,
    flip: bool = False,
    alternate: tuple[int, int] | None = None,
    cutout: int = 0,
) -> Tensor:
    """Draw all random numbers of the samples `indices` (B,): int32 (5, B), zeros for disabled transforms.

    Rows: the crop's first row and column in the padded image, whether the image is mirrored, row and column of the
    cutout's centre. Each row has its own stream, so that enabling one transform does not change the others.

    Args:
        alternate: with `flip`, (key of all epochs, epoch): each image is mirrored in every other epoch, half of them in each
            (Jordan 2024, arXiv:2404.00498).
    """
    highs = (2 * padding + 1, 2 * padding + 1, 2 if flip else 1, height if cutout else 1, width if cutout else 1)
    drawn = [
        integers(key, indices, stream, high) if high > 1 else torch.zeros_like(indices)
        for stream, high in enumerate(highs)
    ]
    if flip and alternate:
        drawn[2] = (integers(alternate[0], indices, 2, 2) + alternate[1]) % 2
    return torch.stack(drawn).int()


def draw_boxes(key: int, indices: Tensor, height: int, width: int) -> Tensor:
    """Draw the boxes of torchvision's RandomResizedCrop and a flip for the samples `indices` (B,): int32 (5, B).

    Rows: the box's first row and column, whether it is mirrored, its height and width.
    """

    def uniform(stream: int, low: float, high: float) -> Tensor:
        attempts = indices * ATTEMPTS + torch.arange(ATTEMPTS, device=indices.device)[:, None]
        return low + (high - low) * integers(key, attempts, stream, 1 << 31).double() / (1 << 31)

    area = height * width * uniform(5, *AREA)
    ratio = uniform(6, *(math.log(bound) for bound in RATIO)).exp()
    tall, wide = ((area / ratio).sqrt().round().long(), (area * ratio).sqrt().round().long())
    fits = (tall > 0) & (tall <= height) & (wide > 0) & (wide <= width)
    first = fits.int().argmax(dim=0, keepdim=True)
    # If no attempt fits, the largest centred box whose ratio is allowed.
    largest = min(height, round(width / RATIO[0])), min(width, round(height * RATIO[1]))
    tall, wide = (
        torch.where(fits.any(dim=0), drawn.gather(0, first)[0], fallback)
        for drawn, fallback in zip((tall, wide), largest, strict=True)
    )
    top, left = (
        torch.where(fits.any(dim=0), integers(key, indices, stream, edge - size + 1), (edge - size) // 2)
        for stream, edge, size in ((0, height, tall), (1, width, wide))
    )
    return torch.stack([top, left, integers(key, indices, 2, 2), tall, wide]).int()


def resized_crops(pixels: Tensor, boxes: Tensor, size: int) -> Tensor:
    """The drawn boxes of (B, H, W, C), each resized to (size, size), and mirrored where drawn."""
    images = []
    for image, (top, left, mirrored, tall, wide) in zip(pixels, boxes.T.tolist(), strict=True):
        box = image[None, top : top + tall, left : left + wide]
        box = _resized(box, (size, size))
        images.append(box.flip(2) if mirrored else box)
    return torch.cat(images)


def central_crop(pixels: Tensor, size: int) -> Tensor:
    """The middle (size, size) of (B, H, W, C) after its shorter edge is resized to 8/7 of `size` (256 for 224)."""
    height, width = pixels.shape[1:3]
    edge = round(size * 8 / 7)
    scaled = [edge * length // min(height, width) for length in (height, width)]
    top, left = (round((length - size) / 2) for length in scaled)
    return _resized(pixels, scaled)[:, top : top + size, left : left + size]


def _resized(pixels: Tensor, size: Sequence[int]) -> Tensor:
    """(B, H, W, C) resized as torchvision does: bilinear, antialiased."""
    images = pixels.permute(0, 3, 1, 2)
    if pixels.device.type != "cpu":  # uint8 is interpolated on a CPU only
        images = images.float()
    images = F.interpolate(images, size, mode="bilinear", antialias=True)
    return images.round_().to(pixels.dtype).permute(0, 2, 3, 1)


def crop_and_flip(pixels: Tensor, drawn: Tensor, *, padding: int) -> Tensor:
    """Shift each image of (B, H, W, C) by up to `padding` pixels, filling with zeros, and mirror the drawn ones."""
    batch, height, width, channels = pixels.shape
    tall, wide = height + 2 * padding, width + 2 * padding
    first, y, x = (torch.arange(n, device=pixels.device, dtype=torch.int32) for n in (batch, height, width))
    top, left, mirrored = drawn[:3, :, None]
    y = y + top  # in the padded image: (B, H)
    x = torch.where(mirrored.bool(), width - 1 - x, x) + left
    rows = first[:, None] * tall + y
    source = rows[:, :, None] * wide + x[:, None, :]
    padded = F.pad(pixels, (0, 0, padding, padding, padding, padding))
    return padded.view(-1, channels).index_select(0, source.view(-1)).view(pixels.shape)


def cut_out_(images: Tensor, drawn: Tensor, size: int) -> Tensor:
    """Zero a square of `size` pixels in each image of (B, C, H, W), clipped at the border (DeVries & Taylor 2017)."""
    row, column = (
        _within(torch.arange(n, device=images.device, dtype=torch.int32) - (centre[:, None] - size // 2), size)
        for n, centre in zip(images.shape[2:], drawn[3:], strict=True)
    )
    return images.masked_fill_(row[:, None, :, None] & column[:, None, None, :], 0.0)


def _within(offset: Tensor, size: int) -> Tensor:
    return (offset >= 0) & (offset < size)


def _logical_shift(value: Tensor, bits: int) -> Tensor:
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _mix(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
