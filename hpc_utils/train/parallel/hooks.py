"""Gradient compression (PyTorch docs, "DDP Communication Hooks").

DDP checks a hook's annotations, so this file cannot use `from __future__ import annotations`.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ..pytree import on_host, to_device

RANK = 2  # rank of PowerSGD's factors, as for ResNet-18 on CIFAR-10 in Vogels et al. 2019, table 3
_MEMORIES = ("error_dict", "p_memory_dict", "q_memory_dict")


class Factors(powerSGD_hook.PowerSGDState):
    """PowerSGD's state (Vogels et al. 2019): the last step's factors, and the error fed back to the next step.

    It is stored by DDP bucket, and DDP rebuilds its buckets after the first step. So compression starts after two warm-up
    steps, and is active from the first step of the run.
    """

    __slots__ = ()

    def forget(self) -> None:
        """Reset the state; the buckets stay, and compression is active immediately."""
        fresh = powerSGD_hook.PowerSGDState(
            self.process_group, self.matrix_approximation_rank, self.start_powerSGD_iter
        )
        for name in powerSGD_hook.PowerSGDState.__slots__:
            setattr(self, name, getattr(fresh, name))
        self.iter = self.start_powerSGD_iter

    def remembered(self) -> dict[str, Any]:
        """Return the state as tensors and plain values on the host."""
        return {"iter": self.iter} | {name: on_host(getattr(self, name)) for name in _MEMORIES}

    def remember(self, state: dict[str, Any], device: torch.device) -> None:
        """Load the state returned by `remembered`."""
        self.iter = state["iter"]
        for name in _MEMORIES:
            setattr(self, name, to_device(state[name], device))


def register(wrapped: DistributedDataParallel, name: str, device: torch.device) -> Factors | None:
    """Register the communication hook `name`; returns its state, if it has one."""
    if name == "none":
        return None
    if name == "powersgd":
        factors = Factors(None, matrix_approximation_rank=RANK, start_powerSGD_iter=2)  # 2 is the minimum
        wrapped.register_comm_hook(factors, powersgd_in_turn if device.type == "cpu" else powerSGD_hook.powerSGD_hook)
        return factors
    hook = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}[name]
    if name == "bf16" and device.type == "cpu":
        hook = bf16_on_host
    wrapped.register_comm_hook(None, hook)
    return None


def powersgd_in_turn(factors: Factors, bucket: dist.GradBucket) -> Future[Tensor]:
    """`powerSGD_hook` for gloo, one bucket at a time, without overlap.

    The hook starts later reductions in callbacks on gloo's threads. With two buckets in flight their order could differ
    between ranks, and gloo, which matches collectives by order, would deadlock.
    """
    future = powerSGD_hook.powerSGD_hook(factors, bucket)
    future.wait()
    return future


def bf16_on_host(group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> Future[Tensor]:
    """`default_hooks.bf16_compress_hook`, which supports NCCL only, for gloo."""
    full = bucket.buffer()
    half = full.to(torch.bfloat16).div_(dist.get_world_size())
    reduced = dist.all_reduce(half, async_op=True).get_future()
    return reduced.then(lambda future: full.copy_(future.value()[0]))
