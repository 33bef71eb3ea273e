"""A batch cut into micro-batches, whatever it is made of."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .workload import Batch, WorkloadError, batch_size


def cut(batch: Batch, parts: int) -> list[Batch]:
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
            f"accumulate={parts} does not divide a batch of {size} samples, which the workload's data gave: give batches of "
            f"the size asked for, or use accumulate=1"
        )
    share = size // parts
    return [_between(batch, part * share, (part + 1) * share, size) for part in range(parts)]


def _between(value: Any, start: int, stop: int, size: int) -> Any:
    """What samples `start` to `stop` of `size` have of `value`."""
    if isinstance(value, Tensor):
        if not value.ndim:
            return value
        if len(value) != size:
            raise WorkloadError(
                f"accumulate cuts batches along the first dimension: one of {size} samples holds a tensor of shape "
                f"{tuple(value.shape)}; give it that dimension, or use accumulate=1"
            )
        return value[start:stop]
    if isinstance(value, dict):
        return {name: _between(item, start, stop, size) for name, item in value.items()}
    if isinstance(value, list | tuple):
        if len(value) == size and not any(isinstance(item, Tensor | dict | list | tuple) for item in value):
            return value[start:stop]  # names, for instance, one a sample
        items = [_between(item, start, stop, size) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
