"""DDP with the optimizer's state spread: each rank updates its share of the parameters and sends them to the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from ..pytree import on_host, to_device
from ..workload import WorkloadError
from .ddp import Ddp


class Zero1(Ddp):
    """Stage 1 of ZeRO (Rajbhandari et al. 2020) by PyTorch's ZeroRedundancyOptimizer, parameters dealt out whole."""

    def optimizer(self, build: Callable[[nn.Module], Optimizer]) -> Optimizer:
        """The optimizer that `build` makes, made anew on every rank of its share, with its groups and options.

        Raises:
            WorkloadError: its class does not take (parameters, **defaults).
        """
        whole = build(self.model)
        kind = type(whole)
        taken = inspect.signature(kind).parameters  # AdamW, for one, keeps more among its defaults than it takes
        options = {name: value for name, value in whole.defaults.items() if name in taken}
        try:
            return ZeroRedundancyOptimizer(whole.param_groups, optimizer_class=kind, **options)
        except Exception as error:  # whatever the user's class raises
            raise WorkloadError(
                f"parallel='zero1' makes the optimizer anew on each rank's share of the parameters, and "
                f"{kind.__name__}(parameters, {', '.join(options)}) failed: {error}; use parallel='ddp'"
            ) from error

    def optimizer_state(self, optimizer: ZeroRedundancyOptimizer) -> dict[str, Any] | None:
        optimizer.consolidate_state_dict(to=0)
        return on_host(optimizer.state_dict()) if self.ranks.is_main else None

    def load_optimizer_state(self, optimizer: ZeroRedundancyOptimizer, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)
        optimizer.state.clear()  # a second copy of this rank's share, which nothing reads
        for (
            group
        ) in optimizer.optim.param_groups:  # it moves step counts to the host, where these do not look for them
            if group.get("fused") or group.get("capturable"):
                for parameter in group["params"]:
                    own = optimizer.optim.state[parameter]
                    own.update(to_device(dict(own), parameter.device))
