"""Timing of one backward pass of DistributedDataParallel: when gradients are ready, when buckets are reduced.

Runs on the engines, in a process group. Clocks of ranks are not compared: every rank counts from its own start.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 3  # untimed passes: DDP rebuilds its buckets after the first
PASSES = 12  # timed passes, of which the fastest is kept: it is the least disturbed by other processes


def watch(model: nn.Module, loss: Callable[[nn.Module], Tensor], bucket_cap_mb: float) -> dict[str, Any]:
    """Wrap `model` and time backward passes of `loss(wrapped model)`; the fastest, in seconds from its start.

    Returns:
        `ready`: (parameter's name, second) as its gradient is complete on this rank;
        `buckets`: (bytes, second of the all-reduce's start, second of its end); `end`: of the backward pass.
    """
    ddp = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    ready: list[tuple[str, float]] = []
    buckets: list[tuple[int, float, float]] = []

    def all_reduce(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        started = time.perf_counter()
        size = bucket.buffer().nbytes

        def done(future: torch.futures.Future[Tensor]) -> Tensor:
            buckets.append((size, started, time.perf_counter()))
            return future.value()[0]

        return allreduce_hook(group, bucket).then(done)

    ddp.register_comm_hook(None, all_reduce)
    handles = [
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: ready.append((name, time.perf_counter())))
        for name, parameter in model.named_parameters()
    ]
    recorded = []
    for _ in range(WARM_UP + PASSES):
        value = loss(ddp)
        dist.barrier()
        ready.clear()
        buckets.clear()
        begun = time.perf_counter()
        value.backward()
        end = time.perf_counter() - begun
        ddp.zero_grad()
        complete = [(name, second - begun) for name, second in ready]
        travelled = [(size, started - begun, ended - begun) for size, started, ended in buckets]
        recorded.append({"ready": complete, "buckets": travelled, "end": end})
    for handle in handles:
        handle.remove()
    return min(recorded[WARM_UP:], key=lambda backward_pass: backward_pass["end"])
