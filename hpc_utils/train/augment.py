"""Augmentation keyed by (seed, epoch, sample), independent of rank and order.

Random numbers come from a counter-based generator (the finaliser of SplitMix64, Steele et al. 2014): it has no state, and
gives the same numbers on CPU and GPU, on any number of ranks and after a resume.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_MASK = (1 << 64) - 1


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
    key: int, indices: Tensor, height: int, width: int, *, padding: int = 0, flip: bool = False, cutout: int = 0
) -> Tensor:
    """Draw all random numbers of the samples `indices` (B,): int32 (5, B), zeros for disabled transforms.

    Rows: the crop's first row and column in the padded image, whether the image is mirrored, row and column of the
    cutout's centre. Each row has its own stream, so that enabling one transform does not change the others.
    """
    highs = (2 * padding + 1, 2 * padding + 1, 2 if flip else 1, height if cutout else 1, width if cutout else 1)
    drawn = [
        integers(key, indices, stream, high) if high > 1 else torch.zeros_like(indices)
        for stream, high in enumerate(highs)
    ]
    return torch.stack(drawn).int()


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
