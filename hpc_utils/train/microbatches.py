"""A batch cut into micro-batches, whatever it is made of."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .pytree import rebuild
from .workload import Batch, WorkloadError, batch_size


def microbatches(batch: Batch, parts: int) -> list[Batch]:
    """`batch` in `parts` equal micro-batches, in order: tensors and lists along their first dimension, as views.

    Tensors without dimensions, and what is no tensor, tuple, list or dict, are in each of them.

    Raises:
        WorkloadError: a tensor's first dimension is not the batch's, or the batch has not so many equal parts.
    """
    if parts == 1:
        return [batch]
    size = batch_size(batch[1])
    if size % parts:
        raise WorkloadError(
            f"accumulate={parts} does not divide a batch of {size} samples from the workload's data: "
            f"give batches of the requested size, or use accumulate=1"
        )
    share = size // parts
    return [_slice(batch, slice(part * share, (part + 1) * share), size) for part in range(parts)]


def _slice(value: Any, part: slice, size: int) -> Any:
    """The samples `part` of `value`, which belongs to a batch of `size`."""
    if isinstance(value, Tensor) and value.ndim:
        if len(value) != size:
            raise WorkloadError(
                f"accumulate cuts batches along the first dimension: one of {size} samples holds a tensor of shape "
                f"{tuple(value.shape)}; give it that dimension, or use accumulate=1"
            )
        return value[part]
    if (
        isinstance(value, list | tuple)
        and len(value) == size
        and not any(isinstance(item, Tensor | dict | list | tuple) for item in value)
    ):
        return value[part]  # names, for instance, one per sample
    return rebuild(value, lambda item: _slice(item, part, size))
