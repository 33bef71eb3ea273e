"""Moves, copies, lists and splits the tensors in nested tuples, lists and dicts, such as batches and states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from .workload import Batch, WorkloadError, batch_size


def tensors(value: Any) -> list[Tensor]:
    """The tensors in `value`."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def to_device(value: Any, device: torch.device) -> Any:
    """`value` with its tensors on `device`."""
    return tree_map_only(Tensor, lambda tensor: tensor.to(device, non_blocking=True), value)


def on_host(value: Any) -> Any:
    """Copy `value` to the host, without sharing memory."""
    return tree_map_only(Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), value)


def weights_on_host(module: nn.Module) -> dict[str, Any]:
    """Copy a module's `state_dict`, with its version metadata, to the host."""
    state = module.state_dict()
    for name, value in state.items():
        state[name] = on_host(value)
    return state


def microbatches(batch: Batch, parts: int) -> list[Batch]:
    """Split `batch` into `parts` equal micro-batches: tensors along their first dimension, and lists of one value a sample.

    Other values are repeated in each.

    Raises:
        WorkloadError: a tensor's first dimension is not the batch size, or the batch does not divide into `parts`.
    """
    if parts == 1:
        return [batch]
    size = batch_size(batch[1])
    share = size // parts

    def is_of_samples(value: Any) -> bool:
        is_list = isinstance(value, list | tuple) and len(value) == size
        return is_list and not any(isinstance(item, Tensor | dict | list | tuple) for item in value)

    def check(value: Tensor) -> None:
        if value.ndim and (len(value) != size or size % parts):
            raise WorkloadError(
                f"accumulate={parts} does not divide a tensor of shape {tuple(value.shape)} in a batch of {size} samples"
            )

    def part(value: Any, start: int) -> Any:
        is_split = value.ndim if isinstance(value, Tensor) else is_of_samples(value)
        return value[start : start + share] if is_split else value

    tree_map_only(Tensor, check, batch)
    return [
        tree_map(lambda value, start=start: part(value, start), batch, is_leaf=is_of_samples)
        for start in range(0, size, share)
    ]
