"""Data parallelism: a model copy on every rank, with gradients averaged during the backward pass."""

from __future__ import annotations

import contextlib
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..workload import WorkloadError
from . import hooks
from .strategy import Strategy


class Ddp(Strategy):
    """PyTorch's DistributedDataParallel (Li et al. 2020, VLDB 13(12))."""

    def wrap(self) -> nn.Module:
        config = self.config
        device = self.ranks.device
        wrapped = DistributedDataParallel(
            self.model,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=config.bucket_mb,
            gradient_as_bucket_view=config.gradient_as_bucket_view,
            static_graph=config.static_graph,
        )
        if device.type == "cpu":  # on a GPU the counters synchronise the device: keep DDP's low default rate
            wrapped._set_ddp_runtime_logging_sample_rate(config.phase_every)
        if config.step_graph:  # they are read on the host, which a capture does not allow
            wrapped._set_ddp_runtime_logging_sample_rate(2**31 - 1)
        self._factors = hooks.register(wrapped, config.comm_hook, device)
        return wrapped

    def backward(self, *, last: bool) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext() if last else self.wrapped.no_sync()

    def require_gradients(self) -> None:
        unused = [
            name for name, weight in self.model.named_parameters() if weight.requires_grad and weight.grad is None
        ]
        if unused and not self.config.static_graph:
            raise WorkloadError(
                f"the loss does not depend on {', '.join(unused)}, but DDP waits for every gradient: freeze "
                "(`requires_grad_(False)`) or remove unused parameters, or set static_graph=true"
            )

    def counters(self) -> dict[str, float]:
        """Gradient communication and its overlap with computation in seconds per step, from DDP's own counters.

        These are rank 0's means over the steps that DDP sampled so far, warm-up included. A captured step is not sampled.
        """
        if self.ranks.world_size == 1 or self.config.step_graph:
            return {}
        counters = self.wrapped._get_ddp_logging_data()
        times = {
            "comm_seconds": counters.get("avg_backward_comm_time", 0),
            "overlap_seconds": counters.get("avg_backward_compute_comm_overlap_time", 0),
        }
        return {name: value / 1e9 for name, value in times.items()} if times["comm_seconds"] else {}

    def put_back(self, state: Any) -> None:
        super().put_back(state)
        if self._factors:
            self._factors.forget()

    def own_state(self) -> dict[str, Any]:
        return self._factors.remembered() if self._factors else {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        if self._factors:
            self._factors.remember(state, self.ranks.device)
