"""The interface of every strategy, and its implementation for one process alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from hpc_utils.config import RunConfig

from ..pytree import on_host, weights_on_host
from ..ranks import Ranks


class Strategy:
    """How weights, gradients and the optimizer's state are spread over the ranks: here, not at all.

    States are whole, as one process would have them, and on rank 0's host; every rank calls what makes and loads them.

    Attributes:
        model: the workload's own module, which evaluates.
        wrapped: what a training step calls.
    """

    def __init__(self, model: nn.Module, config: RunConfig, ranks: Ranks) -> None:
        self.model, self.config, self.ranks = model, config, ranks
        self.wrapped = self.wrap()

    def wrap(self) -> nn.Module:
        """The model as a training step calls it; called once."""
        return self.model

    def optimizer(self, build: Callable[[nn.Module], Optimizer]) -> Optimizer:
        """What `build` makes of the model, with its state spread."""
        return build(self.model)

    def backward(self, *, last: bool) -> contextlib.AbstractContextManager:
        """Around a micro-batch's forward and backward pass: gradients are reduced in the step's `last` only."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Around an evaluation: all ranks have rank 0's buffers (batch statistics), as a checkpoint has."""
        if self.ranks.world_size > 1:
            for buffer in self.model.buffers():
                dist.broadcast(buffer, 0)
        yield

    def counters(self) -> dict[str, float]:
        """What the strategy itself has measured of its communication, by names of the records' columns."""
        return {}

    # -- before the warm-up, and after it ------------------------------------------------------------------

    def keep(self) -> Any:
        """What `put_back` needs to undo the steps that follow."""
        return weights_on_host(self.model)

    def put_back(self, kept: Any) -> None:
        """Weights and buffers as they were, and as if no step had ever been made."""
        self.model.load_state_dict(kept)

    # -- checkpoints ---------------------------------------------------------------------------------------

    def weights(self) -> dict[str, Any] | None:
        """The plain model's `state_dict`; None but on rank 0."""
        return weights_on_host(self.model) if self.ranks.is_main else None

    def load_weights(self, state: dict[str, Any]) -> None:
        """Take over what `weights` gave."""
        self.model.load_state_dict(state)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any] | None:
        """The state of all of the optimizer; None but on rank 0."""
        return on_host(optimizer.state_dict()) if self.ranks.is_main else None

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Take over what `optimizer_state` gave."""
        optimizer.load_state_dict(state)

    def own_state(self) -> dict[str, Any]:
        """What this rank alone remembers from step to step, on the host."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take over what `own_state` gave on this rank."""
