"""Tensors inside tuples, lists and dicts, as batches and states are: moved, copied and found as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def apply(function: Callable[[Tensor], Any], value: Any) -> Any:
    """`value` with each of its tensors replaced by what `function` makes of it."""
    if isinstance(value, Tensor):
        return function(value)
    return rebuild(value, lambda item: apply(function, item))


def rebuild(value: Any, function: Callable[[Any], Any]) -> Any:
    """A dict, list or tuple with `function` applied to its items; anything else as it is."""
    if isinstance(value, dict):
        return {name: function(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [function(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def tensors(value: Any) -> list[Tensor]:
    """The tensors in `value`."""
    found: list[Tensor] = []
    apply(found.append, value)
    return found


def to_device(value: Any, device: torch.device) -> Any:
    """`value` with its tensors on `device`."""
    return apply(lambda tensor: tensor.to(device, non_blocking=True), value)


def on_host(value: Any) -> Any:
    """A copy on the host that shares no memory with `value`."""
    return apply(lambda tensor: tensor.detach().to("cpu", copy=True), value)


def weights_on_host(module: nn.Module) -> dict[str, Any]:
    """A module's `state_dict`, with its version metadata, as such a copy."""
    state = module.state_dict()
    for name, value in state.items():
        state[name] = on_host(value)
    return state
