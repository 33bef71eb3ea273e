"""A model's blocks, the parts that it is a stack of: what FSDP shards and activation checkpointing computes again.

Activation checkpointing saves memory for more work: of a block only the inputs are kept, and the rest is computed again
in the backward pass (Chen et al. 2016).
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from .workload import WorkloadError

LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of `model`, in its order, none within another: a ResNet's residual blocks, a transformer's layers.

    They are the children of what only lists others (`Sequential`, `ModuleList`, `ModuleDict`), and modules that have
    children themselves; one that holds more than half of the model's weights is a stack, and opened. A single layer
    is a block where a `Sequential` calls it: others may be read without being called. Blocks have weights.
    """
    return [*_within(model, _weights(model) / 2)]


def _within(module: nn.Module, much: float) -> Iterator[nn.Module]:
    for child in module.children():
        size, inner = _weights(child), _has_parts(child)
        if not size:
            continue
        if isinstance(child, LISTS) or (inner and size > much):
            yield from _within(child, much)
        elif inner or isinstance(module, nn.Sequential):
            yield child


def _weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _has_parts(module: nn.Module) -> bool:
    return any(True for _ in module.children())


def recomputed(model: nn.Module) -> list[nn.Module]:
    """The blocks that are worth computing again: those with parts. A single layer keeps only its input anyway."""
    return [block for block in blocks(model) if _has_parts(block)]


def checkpoint_activations(model: nn.Module) -> None:
    """Have `model`'s blocks keep only their inputs; the names of parameters stay.

    Raises:
        WorkloadError: it has no blocks.
    """
    found = recomputed(model)
    if not found:
        raise WorkloadError(
            "activation_checkpointing=true saves nothing: this model has no blocks (modules with parameters and parts "
            "of their own, inside an nn.Sequential or nn.ModuleList)"
        )
    for block in found:
        block.forward = types.MethodType(_checkpointed, block)  # a method, so that a copy of the block has its own


def _checkpointed(block: nn.Module, *args: Any, **named: Any) -> Any:
    """The block's forward pass."""
    forward = functools.partial(type(block).forward, block)
    if not torch.is_grad_enabled():
        return forward(*args, **named)
    norms = [module for module in block.modules() if isinstance(module, _NormBase) and module.track_running_stats]

    def contexts() -> tuple[contextlib.AbstractContextManager, ...]:
        return contextlib.nullcontext(), _statistics_kept(norms)  # for the forward pass, for its repetition

    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **named)


@contextlib.contextmanager
def _statistics_kept(norms: list[_NormBase]) -> Iterator[None]:
    """The same batch does not move running statistics twice. They are still passed on: the repetition must save as many
    tensors as the first time."""
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches
