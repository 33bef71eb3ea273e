"""The optimizers of a loop of a user's own: how often they step, and whether their weights are as the run's `parallel` says."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from .ranks import Ranks

ZERO = "ZeroRedundancyOptimizer"  # whose import takes a second
CLOSE = 1e-9  # relative: DDP keeps the weights of all ranks equal bit by bit


class OptimizerWatch:
    """Counts the steps of every optimizer of torch in this process until it is closed."""

    def __init__(self) -> None:
        self._steps: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._hook = register_optimizer_step_post_hook(self._count)

    def _count(self, optimizer: Optimizer, *_: Any) -> None:
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1

    @property
    def steps(self) -> int:
        """The steps of the optimizer that has made most; 0: none of torch's has stepped."""
        return max(self._steps.values(), default=0)

    def close(self) -> None:
        """Count no more."""
        self._hook.remove()

    def fault(self, parallel: str, ranks: Ranks) -> str:
        """Why the weights are not those of `parallel`; "" if they can be. Collective, and the same answer on all ranks."""
        from torch.distributed.tensor import DTensor  # which takes half a second

        weights = [
            weight for optimizer in self._steps for group in optimizer.param_groups for weight in group["params"]
        ]
        is_sharded = any(isinstance(weight, DTensor) for weight in weights)
        has_shards_of_state = any(type(optimizer).__name__ == ZERO for optimizer in self._steps)
        if parallel == "ddp" and is_sharded:
            return "its weights are sharded: give parallel=fsdp"
        if parallel == "ddp" and has_shards_of_state:
            return f"it has a {ZERO}: give parallel=zero1"
        if is_sharded or has_shards_of_state or not self._steps:
            return ""
        norm = sum(float(torch.linalg.vector_norm(weight.detach(), dtype=torch.float64)) for weight in weights)
        mean = ranks.sum(torch.tensor([norm], dtype=torch.float64)).item() / ranks.world_size
        is_replica = not ranks.sum(torch.tensor([float(abs(norm - mean) > CLOSE * mean)])).item()
        if parallel == "ddp" and not is_replica:
            return (
                "its ranks have different weights, so each trains a model of its own: wrap the model in DistributedDataParallel and "
                "call the wrapper, or give parallel=own if they are averaged otherwise"
            )
        return "every rank has all weights: give parallel=ddp" if parallel == "fsdp" and is_replica else ""
