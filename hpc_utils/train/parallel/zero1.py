"""DDP with a sharded optimizer: each rank updates its part of the parameters and broadcasts it."""

from __future__ import annotations

import inspect
from typing import Any

from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from ..pytree import on_host, to_device
from .ddp import Ddp


class Zero1(Ddp):
    """PyTorch's ZeroRedundancyOptimizer: stage 1 of ZeRO (Rajbhandari et al. 2020), with whole parameters per rank."""

    def optimizer(self, template: Optimizer) -> Optimizer:
        """Rebuild `template` on each rank's part of the parameters, with the same groups and options."""
        kind = type(template)
        accepted = inspect.signature(kind).parameters  # the defaults of AdamW, for example, have more entries
        options = {name: value for name, value in template.defaults.items() if name in accepted}
        return ZeroRedundancyOptimizer(template.param_groups, optimizer_class=kind, **options)

    def optimizer_state(self, optimizer: ZeroRedundancyOptimizer) -> dict[str, Any] | None:
        optimizer.consolidate_state_dict(to=0)
        return on_host(optimizer.state_dict()) if self.ranks.is_main else None

    def load_optimizer_state(self, optimizer: ZeroRedundancyOptimizer, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)
        optimizer.state.clear()  # an unused second copy of this rank's part
        for group in optimizer.optim.param_groups:
            # Loading moves step counts to the host, but these implementations need them on the device.
            if group.get("fused") or group.get("capturable"):
                for parameter in group["params"]:
                    parameter_state = optimizer.optim.state[parameter]
                    parameter_state.update(to_device(dict(parameter_state), parameter.device))
