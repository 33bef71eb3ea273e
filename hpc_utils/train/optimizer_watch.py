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
        """The steps of all optimizers together; 0: none of torch's has stepped."""
        return sum(self._steps.values())

    def close(self) -> None:
        """Count no more."""
        self._hook.remove()

    def fault(self, parallel: str, ranks: Ranks) -> str:
        """Why the weights are not those of `parallel`; "" if they can be. Collective, and the same answer on all ranks."""
        from torch.distributed.tensor import DTensor  # which takes half a second

        weights = [
            weight for optimizer in self._steps for group in optimizer.param_groups for weight in group["params"]
        ]
        unsharded = [weight.detach() for weight in weights if not isinstance(weight, DTensor)]
        real = [torch.view_as_real(weight) if weight.is_complex() else weight for weight in unsharded]
        norms = (
            torch.linalg.vector_norm(weight, dtype=torch.float64) for weight in real if weight.is_floating_point()
        )
        norm = sum(map(float, norms))
        has_zero = any(type(optimizer).__name__ == ZERO for optimizer in self._steps)
        facts = torch.tensor([bool(weights), len(unsharded) < len(weights), has_zero, norm], dtype=torch.float64)
        stepping_ranks, sharded_ranks, zero_ranks, total = ranks.sum(facts).tolist()
        if parallel == "ddp" and sharded_ranks:
            return "its weights are sharded: give parallel=fsdp"
        if parallel == "ddp" and zero_ranks:
            return f"it has a {ZERO}: give parallel=zero1"
        if (
            sharded_ranks or zero_ranks or stepping_ranks < ranks.world_size
        ):  # not all ranks step, such as under a parameter server
            return ""
        mean = total / ranks.world_size
        is_replica = not ranks.sum(torch.tensor([float(abs(norm - mean) > CLOSE * mean)])).item()
        if parallel == "ddp" and not is_replica:
            return (
                "its ranks have different weights, so each trains a model of its own: wrap the model in DistributedDataParallel and "
                "call the wrapper, or give parallel=own if they are averaged otherwise"
            )
        return "every rank has all weights: give parallel=ddp" if parallel == "fsdp" and is_replica else ""
