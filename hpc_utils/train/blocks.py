"""A model's blocks: the units that FSDP shards and that activation checkpointing recomputes.

Activation checkpointing trades computation for memory: only a block's inputs are kept, and its activations are recomputed
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
    """Return the blocks of `model` in order, not nested: a ResNet's residual blocks, a transformer's layers.

    A block is a child of a container (`Sequential`, `ModuleList`, `ModuleDict`), or a module with children. A module that
    holds more than half of the model's weights is treated as a container. A single layer is a block only in a
    `Sequential`, which certainly calls it. Blocks have weights.
    """
    return [*_within(model, _weights(model) / 2)]


def _within(module: nn.Module, much: float) -> Iterator[nn.Module]:
    for child in module.children():
        size = _weights(child)
        inner = _has_parts(child)
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


def checkpoint_activations(model: nn.Module) -> None:
    """Make `model`'s blocks keep only their inputs. Parameter names do not change.

    Raises:
        WorkloadError: the model has no blocks.
    """
    # A single layer keeps only its input anyway.
    composite_blocks = [block for block in blocks(model) if _has_parts(block)]
    if not composite_blocks:
        raise WorkloadError(
            "activation_checkpointing=true saves nothing: this model has no blocks (modules with parameters and children "
            "inside an nn.Sequential or nn.ModuleList)"
        )
    for block in composite_blocks:
        block.forward = types.MethodType(_checkpointed, block)  # a method, so that it survives a copy of the block


def _checkpointed(block: nn.Module, *args: Any, **named: Any) -> Any:
    """The forward pass of a block whose activations are recomputed."""
    forward = functools.partial(type(block).forward, block)
    if not torch.is_grad_enabled():
        return forward(*args, **named)
    norms = [module for module in block.modules() if isinstance(module, _NormBase) and module.track_running_stats]

    def contexts() -> tuple[contextlib.AbstractContextManager, ...]:
        return contextlib.nullcontext(), _statistics_kept(norms)  # forward pass, recomputation

    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **named)


@contextlib.contextmanager
def _statistics_kept(norms: list[_NormBase]) -> Iterator[None]:
    """Keep running statistics unchanged. They stay enabled, because the recomputation must save as many tensors as before."""
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches
