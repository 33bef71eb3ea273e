"""The interface of the strategies, and the implementation for a single process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from hpc_utils.config import RunConfig

from ..pytree import on_host, weights_on_host
from ..ranks import Ranks


class Strategy:
    """How weights, gradients and optimizer state are distributed over the ranks: in this base class, not at all.

    Saved states are those of a single process, on rank 0's host. Saving and loading them is collective.

    Attributes:
        model: the workload's module, used in evaluation.
        wrapped: the module that a training step calls.
    """

    def __init__(self, model: nn.Module, config: RunConfig, ranks: Ranks) -> None:
        self.model = model
        self.config = config
        self.ranks = ranks
        self.wrapped = self.wrap()

    def wrap(self) -> nn.Module:
        """Return the module that a training step calls. Called once."""
        return self.model

    def optimizer(self, template: Optimizer) -> Optimizer:
        """Return an optimizer like `template`, with its state distributed."""
        return template

    def backward(self, *, last: bool) -> contextlib.AbstractContextManager:
        """Context of a micro-batch's forward and backward pass; gradients are reduced in the `last` one of a step."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context of an evaluation; all ranks get rank 0's buffers (batch statistics), as in a checkpoint."""
        if self.ranks.world_size > 1:
            for buffer in self.model.buffers():
                dist.broadcast(buffer, 0)
        yield

    def require_gradients(self) -> None:
        """Raise WorkloadError if a parameter has no gradient after a step and the strategy needs one."""

    def counters(self) -> dict[str, float]:
        """Communication times measured by the strategy, by column of the records."""
        return {}

    def close(self) -> None:
        """End the strategy's own communication after the last step; every rank calls it."""

    # -- before the warm-up, and after it ------------------------------------------------------------------

    def keep(self) -> Any:
        """Return the state that `put_back` needs to undo the following steps."""
        return weights_on_host(self.model)

    def put_back(self, state: Any) -> None:
        """Restore weights and buffers, and reset any state kept between steps."""
        self.model.load_state_dict(state)

    # -- checkpoints ---------------------------------------------------------------------------------------

    def weights(self) -> dict[str, Any] | None:
        """Return the plain model's `state_dict` on rank 0; None on other ranks."""
        return weights_on_host(self.model) if self.ranks.is_main else None

    def load_weights(self, state: dict[str, Any]) -> None:
        """Load the weights returned by `weights`."""
        self.model.load_state_dict(state)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any] | None:
        """Return the full optimizer state on rank 0; None on other ranks."""
        return on_host(optimizer.state_dict()) if self.ranks.is_main else None

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Load the state returned by `optimizer_state`."""
        optimizer.load_state_dict(state)

    def own_state(self) -> dict[str, Any]:
        """Return this rank's own state between steps, on the host."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Load the state returned by `own_state` on this rank."""
