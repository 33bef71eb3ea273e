"""Weights, gradients and the optimizer's state spread: a block's weights are gathered while it computes."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as whole
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from ..blocks import blocks
from ..pytree import on_host
from ..workload import WorkloadError
from .strategy import Strategy

LEAST = 2**20  # B that are worth a message of their own, as a bucket of DDP's; smaller blocks go with the root


class Fsdp(Strategy):
    """PyTorch's FSDP2, `fully_shard`, on the model's blocks and the rest: stage 3 of ZeRO (Rajbhandari et al. 2020).

    Mixed precision stays autocast's, not FSDP's own policy: that would have batch norm and the reduction of gradients in
    bf16 or fp16 too, and the same option would mean other arithmetic than under DDP. Hence weights travel in fp32, and autocast
    keeps what it casts of a whole model until the backward pass: two bytes a parameter on each rank that are not spread.

    Weights are contiguous whatever `channels_last` says, as FSDP2 wants them; images, and so activations, follow it.
    """

    _OPTIONS = whole.StateDictOptions(full_state_dict=True, cpu_offload=True)

    def wrap(self) -> nn.Module:
        model = self.model
        for value in (*model.parameters(), *model.buffers()):
            value.data = value.data.contiguous()
            dist.broadcast(value.data, 0)  # as DDP does
        mesh = init_device_mesh(self.ranks.device.type, (self.ranks.world_size,))
        for block in _apart(model):
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    @contextlib.contextmanager
    def backward(self, *, last: bool) -> Iterator[None]:
        self.model.set_requires_gradient_sync(last)
        self.model.set_is_last_backward(last)
        try:
            yield
        except RuntimeError as error:
            if "DTensor" not in str(error):
                raise
            raise WorkloadError(
                f"parallel='fsdp': the model reads weights of a block without calling the block, and they are gathered for "
                f"its forward pass only; use parallel='zero1' ({str(error).partition(chr(10))[0]})"
            ) from error

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        with super().evaluating():
            yield
        self.model.reshard()  # which else the root's backward pass does

    def keep(self) -> dict[str, Any]:
        return {name: on_host(_own(value)) for name, value in self.model.state_dict().items()}

    def put_back(self, kept: dict[str, Any]) -> None:
        for name, value in self.model.state_dict().items():
            if isinstance(value, Tensor):
                _own(value).copy_(kept[name])

    def weights(self) -> dict[str, Any] | None:
        state = whole.get_model_state_dict(self.model, options=self._OPTIONS)
        return on_host(state) if self.ranks.is_main else None

    def load_weights(self, state: dict[str, Any]) -> None:
        whole.set_model_state_dict(self.model, state, options=self._OPTIONS)

    # Not `get_optimizer_state_dict`: its counterpart refuses optimizers without a state, and gradients left by a warm-up.

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any] | None:
        state = optimizer.state_dict()
        state["state"] = {
            index: {name: self._gathered(value) for name, value in own.items()}
            for index, own in state["state"].items()
        }
        return on_host(state) if self.ranks.is_main else None

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, own in state["state"].items():
            own |= {name: _sharded(value, parameters[index]) for name, value in own.items()}
        optimizer.load_state_dict(state)

    def _gathered(self, value: Any) -> Any:
        """All of `value`, one after the other brought to rank 0's host."""
        if not isinstance(value, DTensor):
            return value
        full = value.full_tensor()
        return full.cpu() if self.ranks.is_main else None


def _apart(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks that are gathered on their own: large ones whose weights no other module has too."""
    uses = _uses(model)
    for block in blocks(model):
        own = _uses(block)
        tied = any(uses[parameter] != count for parameter, count in own.items())
        if not tied and sum(parameter.nbytes for parameter in own) >= LEAST:
            yield block


def _uses(module: nn.Module) -> Counter[nn.Parameter]:
    """How often each parameter is registered in `module`."""
    return Counter(parameter for _, parameter in module.named_parameters(remove_duplicate=False))


def _own(value: Any) -> Any:
    """What this rank has of `value`."""
    return value.to_local() if isinstance(value, DTensor) else value


def _sharded(value: Any, parameter: Tensor) -> Any:
    """`value` of an optimizer's state as its parameter is, if it has that one's shape."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)
