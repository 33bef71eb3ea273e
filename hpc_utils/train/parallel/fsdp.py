"""Fully sharded data parallelism: weights, gradients and optimizer state are sharded over the ranks."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as sharded_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from ..blocks import blocks
from ..pytree import on_host
from .strategy import Strategy

LEAST = 2**20  # bytes: smaller blocks are gathered with the root module (1 MiB is DDP's first bucket)


class Fsdp(Strategy):
    """PyTorch's FSDP2 (`fully_shard`) on the model's blocks and the rest: stage 3 of ZeRO (Rajbhandari et al. 2020).

    Mixed precision is autocast, as under DDP. FSDP's own policy would also run batch norm and the gradient reduction in
    bf16 or fp16. The cost: weights are communicated in fp32, and autocast keeps its casts, two bytes per parameter on each
    rank, until the backward pass.

    FSDP2 requires contiguous weights, so `channels_last` applies to images and activations only.
    """

    _OPTIONS = sharded_state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)

    def wrap(self) -> nn.Module:
        model = self.model
        for value in (*model.parameters(), *model.buffers()):
            value.data = value.data.contiguous()
            dist.broadcast(value.data, 0)  # as DDP does at construction
        mesh = init_device_mesh(self.ranks.device.type, (self.ranks.world_size,))
        for block in _apart(model):
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def backward(self, *, last: bool) -> contextlib.AbstractContextManager:
        self.model.set_requires_gradient_sync(last)
        self.model.set_is_last_backward(last)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        with super().evaluating():
            yield
        self.model.reshard()  # in training, the root's backward pass does this

    def keep(self) -> dict[str, Any]:
        return {name: on_host(_local_shard(value)) for name, value in self.model.state_dict().items()}

    def put_back(self, state: dict[str, Any]) -> None:
        for name, value in self.model.state_dict().items():
            if isinstance(value, Tensor):
                _local_shard(value).copy_(state[name])

    def weights(self) -> dict[str, Any] | None:
        state = sharded_state_dict.get_model_state_dict(self.model, options=self._OPTIONS)
        return on_host(state) if self.ranks.is_main else None

    def load_weights(self, state: dict[str, Any]) -> None:
        sharded_state_dict.set_model_state_dict(self.model, state, options=self._OPTIONS)

    # `set_optimizer_state_dict` rejects optimizers without a state, and gradients left by the warm-up.

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any] | None:
        state = optimizer.state_dict()
        state["state"] = {
            index: {name: self._gathered(value) for name, value in parameter_state.items()}
            for index, parameter_state in state["state"].items()
        }
        return on_host(state) if self.ranks.is_main else None

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, parameter_state in state["state"].items():
            parameter_state |= {name: _sharded(value, parameters[index]) for name, value in parameter_state.items()}
        optimizer.load_state_dict(state)

    def _gathered(self, value: Any) -> Any:
        """The full tensor of `value` on rank 0's host; None on other ranks."""
        if not isinstance(value, DTensor):
            return value
        full = value.full_tensor()
        return full.cpu() if self.ranks.is_main else None


def _apart(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks to shard individually: large ones that share no weights with other modules."""
    uses = _uses(model)
    for block in blocks(model):
        block_uses = _uses(block)
        tied = any(uses[parameter] != count for parameter, count in block_uses.items())
        if not tied and sum(parameter.nbytes for parameter in block_uses) >= LEAST:
            yield block


def _uses(module: nn.Module) -> Counter[nn.Parameter]:
    """How often each parameter is registered in `module`."""
    return Counter(parameter for _, parameter in module.named_parameters(remove_duplicate=False))


def _local_shard(value: Any) -> Any:
    """This rank's shard of `value`."""
    return value.to_local() if isinstance(value, DTensor) else value


def _sharded(value: Any, parameter: Tensor) -> Any:
    """Shard `value` of the optimizer state like its parameter, if it has the same shape."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)
