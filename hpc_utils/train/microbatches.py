"""Splits a batch of nested tensors into micro-batches."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .pytree import rebuild
from .workload import Batch, WorkloadError, batch_size


def microbatches(batch: Batch, parts: int) -> list[Batch]:
    """Split `batch` into `parts` equal micro-batches: tensors as views along their first dimension, and lists.

    Scalars, and values other than tensors, tuples, lists and dicts, are repeated in each.

    Raises:
        WorkloadError: a tensor's first dimension is not the batch size, or the batch does not divide into `parts`.
    """
    if parts == 1:
        return [batch]
    size = batch_size(batch[1])
    if size % parts:
        raise WorkloadError(
            f"accumulate={parts} does not divide a batch of {size} samples from the workload's data: "
            f"use batches of the requested size, or accumulate=1"
        )
    share = size // parts
    return [_slice(batch, slice(part * share, (part + 1) * share), size) for part in range(parts)]


def _slice(value: Any, part: slice, size: int) -> Any:
    """The samples `part` of `value`, which belongs to a batch of `size`."""
    if isinstance(value, Tensor) and value.ndim:
        if len(value) != size:
            raise WorkloadError(
                f"accumulate splits batches along the first dimension, but a batch of {size} samples has a tensor of shape "
                f"{tuple(value.shape)}; make the samples its first dimension, or use accumulate=1"
            )
        return value[part]
    if (
        isinstance(value, list | tuple)
        and len(value) == size
        and not any(isinstance(item, Tensor | dict | list | tuple) for item in value)
    ):
        return value[part]  # one value per sample, such as file names
    return rebuild(value, lambda item: _slice(item, part, size))
