"""Augmentation keyed by (seed, epoch, sample): the same image whoever loads it, in whatever order.

Random numbers come from a counter-based generator (the finaliser of SplitMix64, Steele et al. 2014), so they
need no state and are the same on CPU and GPU, on any number of ranks and after a resume.
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
    """Uniform integers in [0, high), one a sample: int64 (B,). `stream` tells independent draws apart."""
    state = indices * 1_000_003 + (key ^ _mix(stream + 1) >> 1)
    for multiplier in (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15):  # SplitMix64's, as signed 64-bit
        state = (state ^ _logical_shift(state, 30)) * multiplier
    state = state ^ _logical_shift(state, 31)
    return _logical_shift(state, 33) % high


def crop_and_flip(pixels: Tensor, key: int, indices: Tensor, *, padding: int, flip: bool) -> Tensor:
    """Shift each image of (B, H, W, C) by up to `padding` pixels, zeros moving in, and mirror half of them."""
    batch, height, width, channels = pixels.shape
    rows, columns = (torch.arange(n, device=pixels.device) for n in (height, width))
    top = integers(key, indices, 0, 2 * padding + 1)
    left = integers(key, indices, 1, 2 * padding + 1)
    x = columns.expand(batch, width)
    if flip:
        mirrored = integers(key, indices, 2, 2).bool()
        x = torch.where(mirrored[:, None], width - 1 - x, x)
    y, x = rows + top[:, None], x + left[:, None]  # in the padded image
    padded = F.pad(pixels, (0, 0, padding, padding, padding, padding))
    tall, wide = height + 2 * padding, width + 2 * padding
    first = torch.arange(batch, device=pixels.device)[:, None, None] * (tall * wide)
    source = first + y[:, :, None] * wide + x[:, None, :]
    return padded.view(-1, channels)[source.view(-1)].view(batch, height, width, channels)


def _logical_shift(value: Tensor, bits: int) -> Tensor:
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _mix(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
