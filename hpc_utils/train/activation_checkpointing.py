"""Less memory for more work: of a model's blocks only the inputs are kept, the rest is computed again (Chen et al. 2016)."""

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

from .blocks import blocks
from .workload import WorkloadError

_suspended = False


def apply(model: nn.Module) -> None:
    """Have `model`'s blocks keep their inputs only; parameters keep their names.

    Raises:
        WorkloadError: it has no blocks.
    """
    found = recomputed(model)
    if not found:
        raise WorkloadError(
            "activation_checkpointing=true: this model has no blocks (modules with parameters and parts of their own, "
            "inside an nn.Sequential or nn.ModuleList), so it would save nothing"
        )
    for block in found:
        block.forward = types.MethodType(_checkpointed, block)  # a method, so that a copy of the block has its own


def recomputed(model: nn.Module) -> list[nn.Module]:
    """The blocks that are computed again: those with parts. A lone layer keeps no more than its input anyway."""
    return [block for block in blocks(model) if any(True for _ in block.children())]


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Inside, everything is kept: a model's own operations are counted without those done again."""
    global _suspended
    _suspended = True
    try:
        yield
    finally:
        _suspended = False


def _checkpointed(block: nn.Module, *args: Any, **named: Any) -> Any:
    """The block's forward pass."""
    forward = functools.partial(type(block).forward, block)
    if _suspended or not torch.is_grad_enabled():
        return forward(*args, **named)
    norms = [module for module in block.modules() if isinstance(module, _NormBase) and module.track_running_stats]
    contexts = functools.partial(_contexts, norms)
    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **named)


def _contexts(norms: list[_NormBase]) -> tuple[contextlib.AbstractContextManager, ...]:
    """Around the forward pass, and around what is computed again in the backward pass."""
    return contextlib.nullcontext(), _statistics_kept(norms)


@contextlib.contextmanager
def _statistics_kept(norms: list[_NormBase]) -> Iterator[None]:
    """Running statistics are not moved a second time by the same batch. They are still passed on: what is computed again
    must save as many tensors as the first time."""
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches
