"""Moves, copies and lists the tensors in nested tuples, lists and dicts, such as batches and states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def apply(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Apply `function` to each tensor in `value`."""
    if isinstance(value, Tensor):
        return function(value)
    return rebuild(value, lambda item: apply(function, item))


def rebuild(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to the items of a dict, list or tuple; return anything else unchanged."""
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
    """Copy `value` to the host, without sharing memory."""
    return apply(lambda tensor: tensor.detach().to("cpu", copy=True), value)


def weights_on_host(module: nn.Module) -> dict[str, Any]:
    """Copy a module's `state_dict`, with its version metadata, to the host."""
    state = module.state_dict()
    for name, value in state.items():
        state[name] = on_host(value)
    return state
