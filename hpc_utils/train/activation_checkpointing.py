"""Less memory for more work: of a model's blocks only the inputs are kept, the rest is computed again (Chen et al. 2016)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from .workload import WorkloadError

_suspended = False


def apply(model: nn.Module) -> list[str]:
    """Have `model`'s blocks keep their inputs only; the names of those blocks. Parameters keep their names.

    Raises:
        WorkloadError: it has no blocks.
    """
    found = dict(blocks(model))
    if not found:
        raise WorkloadError(
            "activation_checkpointing=true: this model has no blocks (modules with parameters and parts of their own, "
            "inside an nn.Sequential or nn.ModuleList), so it would save nothing"
        )
    for block in found.values():
        block.forward = _recomputed(block, block.forward)
    return list(found)


def blocks(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The outermost modules that a Sequential or ModuleList holds, those with parameters and parts of their own.

    So a ResNet's BasicBlocks or Bottlenecks, a transformer's layers. A lone layer is none: it keeps no more than its input.
    """
    listed = isinstance(model, nn.Sequential | nn.ModuleList)
    for name, child in model.named_children():
        composite = any(True for _ in child.children()) and any(True for _ in child.parameters())
        if listed and composite and not isinstance(child, nn.Sequential | nn.ModuleList):
            yield prefix + name, child
        else:
            yield from blocks(child, f"{prefix}{name}.")


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Inside, everything is kept: a model's own operations are counted without those done again."""
    global _suspended
    _suspended = True
    try:
        yield
    finally:
        _suspended = False


def _recomputed(block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    norms = [module for module in block.modules() if isinstance(module, _NormBase) and module.track_running_stats]
    contexts = functools.partial(_contexts, norms)

    @functools.wraps(forward)
    def recomputed(*args: Any, **named: Any) -> Any:
        if _suspended or not torch.is_grad_enabled():
            return forward(*args, **named)
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **named)

    return recomputed


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
