"""The samples that a rank trains on at each step, and those it evaluates."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hpc_utils.config import ConfigError


class Sampler:
    """Splits each epoch's permutation into global batches, and each global batch into one slice per rank.

    The global batch of a step does not depend on the number of ranks, and nothing is padded. An incomplete last batch is
    dropped (`dropped` samples, others in each epoch). With fixed `steps`, an epoch continues into further permutations
    and drops nothing.

    Args:
        size: samples in the data set. global_batch: over all ranks, divisible by `world_size`.
        steps: steps per epoch, or None for one pass over the data.
    """

    def __init__(
        self,
        size: int,
        global_batch: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        steps: int | None = None,
    ) -> None:
        if steps is None and size < global_batch:
            raise ConfigError(
                f"the data set has {size} samples, fewer than one global batch of {global_batch}: "
                f"use a smaller batch, or set steps_per_epoch to reshuffle"
            )
        self.size = size
        self.global_batch = global_batch
        self.seed = seed
        self.rank = rank
        self.per_rank = global_batch // world_size
        self.steps = steps or size // global_batch
        self.dropped = 0 if steps else size % global_batch
        self._fixed = steps is not None

    def __len__(self) -> int:
        return self.steps

    def epoch(self, epoch: int, done: int = 0) -> Iterator[Tensor]:
        """Yield this rank's sample indices (batch_per_device,) for each step of `epoch` (from 1) after the first `done`."""
        first = (epoch - 1) * self.steps * self.global_batch if self._fixed else (epoch - 1) * self.size
        for step in range(done, self.steps):
            start = first + step * self.global_batch + self.rank * self.per_rank
            yield self._stream(start, start + self.per_rank)

    def _stream(self, start: int, stop: int) -> Tensor:
        """Samples `start` to `stop` of the infinite sequence of permutations."""
        parts = []
        while start < stop:
            shuffle, offset = divmod(start, self.size)
            part = self._permutation(shuffle)[offset : offset + stop - start]
            parts.append(part)
            start += len(part)
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _permutation(self, shuffle: int) -> Tensor:
        if getattr(self, "_cached", (None,))[0] != shuffle:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + shuffle)
            self._cached = shuffle, torch.randperm(self.size, generator=generator)
        return self._cached[1]


def evaluation_indices(size: int, batch: int, *, rank: int, world_size: int) -> Iterator[Tensor]:
    """Yield this rank's part of `size` samples in batches; over all ranks each index appears exactly once."""
    mine = torch.arange(size)[rank::world_size]
    if len(mine):  # an empty batch has no mean loss
        yield from mine.split(batch)
