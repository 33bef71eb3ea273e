"""The training step as one CUDA graph: captured once, then replayed on each batch.

The host starts one graph a step instead of each of its kernels (PyTorch docs, "CUDA Graphs", whole-network capture). A
graph repeats what was captured: its tensors keep their places in memory, and code of the host does not run again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from . import randomness
from .pytree import apply, tensors
from .workload import WorkloadError

# Eager steps before the capture: in its first ten, DDP times its buckets, which a capture does not allow.
WARM_UP = 12
ZERO_STATE = (SGD, Adam, AdamW)  # optimizers whose state starts as zeros


class StepGraph:
    """A captured training step.

    Args:
        step: maps a batch to tensors, such as loss and metrics; called once, under capture on the current stream.
        batch: nested tuples, lists and dicts of tensors; every later batch has the same shapes.
        timeout: a replay that takes longer ends the process, in seconds.

    Raises:
        WorkloadError: the step cannot be captured.
    """

    def __init__(self, step: Callable[[Any], Any], batch: Any, *, timeout: float) -> None:
        if on_host := [value.device for value in tensors(batch) if value.device.type != "cuda"]:
            raise WorkloadError(
                f"step_graph=true: the batch has a tensor on {on_host[0]}, which the host would read once for all steps; "
                "return tensors on the device"
            )
        self._form = _form(batch)
        self._inputs = apply(torch.clone, batch)
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        before = randomness.host_state()
        try:
            # thread_local: NCCL's watchdog thread queries events meanwhile.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._outputs = step(self._inputs)
        except RuntimeError as error:
            cause = error.__context__ or error  # the first operation that failed, not the end of the capture
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            raise WorkloadError(
                "step_graph=true: the training step cannot be captured, because it reads a result on the host (`.item()`, "
                f"`.cpu()`, `if tensor`) or does else what a graph cannot: {str(cause).strip().partition(chr(10))[0]}"
            ) from error
        if randomness.host_state() != before:
            self._graph.reset()  # else NCCL waits for it when the run ends
            raise WorkloadError(
                "step_graph=true: the training step draws random numbers on the host, which a graph would repeat in "
                "every step; draw them on the device, with torch"
            )
        self._watch = ReplayWatch(timeout)

    def __call__(self, batch: Any) -> Any:
        """Replay the step on `batch`, without waiting for the device; returns what `step` returned, as new tensors.

        Raises:
            WorkloadError: shapes, types or values that are no tensors differ from those of the captured batch.
        """
        if _form(batch) != self._form:
            raise WorkloadError(
                f"step_graph=true needs batches that differ in the values of their tensors only: captured with {self._form}, "
                f"now {_form(batch)}"
            )
        for fixed, value in zip(tensors(self._inputs), tensors(batch), strict=True):
            fixed.copy_(value, non_blocking=True)
        self._graph.replay()
        self._watch.add()
        return apply(torch.clone, self._outputs)

    def close(self) -> None:
        """Free the graph. NCCL's communicator is not destroyed before the graphs that use it."""
        self._graph.reset()
        self._watch.close()


class ReplayWatch:
    """Ends this process if the device finishes no replay for `timeout` seconds.

    NCCL's own watchdog does not see collectives that are replayed, so a rank whose peer has died would wait for ever.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._device = torch.cuda.current_device()
        self._pending: deque[torch.cuda.Event] = deque()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="replay watch", daemon=True).start()

    def add(self) -> None:
        """A replay was enqueued on the current stream."""
        event = torch.cuda.Event()
        event.record()
        self._pending.append(event)

    def close(self) -> None:
        """End once the device has finished what was added."""
        self._closed.set()

    def _watch(self) -> None:
        torch.cuda.set_device(self._device)
        progress = time.monotonic()
        while self._pending or not self._closed.is_set():
            time.sleep(min(1.0, self._timeout / 10))
            while self._pending and self._pending[0].query():
                self._pending.popleft()
                progress = time.monotonic()
            if not self._pending:
                progress = time.monotonic()
            elif time.monotonic() - progress > self._timeout:
                print(
                    f"a replay of the step graph took longer than collective_timeout={self._timeout:g} s: the step hangs, "
                    "or another rank has ended",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
                os._exit(1)  # the main thread may wait for the device


def require_capturable(optimizer: Optimizer) -> None:
    """Raise WorkloadError unless `optimizer` can be captured, and `zero_state` makes it a fresh one."""
    kind = type(optimizer).__name__
    groups = optimizer.param_groups
    why = ""
    if type(optimizer) not in ZERO_STATE:
        why = f"supported are {', '.join(kind.__name__ for kind in ZERO_STATE)}"
    elif not all(group["fused"] for group in groups):
        why = "only the fused form reads learning rate and loss scale on the device: fused_optimizer=true, or fused=True in your own"
    elif any(group.get("dampening") for group in groups):
        why = "with dampening, its first step differs from the others"
    if why:
        raise WorkloadError(f"step_graph=true with the optimizer {kind}: {why}")


@torch.no_grad()
def zero_state(optimizers: list[Optimizer]) -> None:
    """Set the optimizers' state to that before their first step, in place."""
    for value in state_tensors(optimizers):
        value.zero_()


def state_tensors(optimizers: list[Optimizer]) -> list[Tensor]:
    """The tensors of the optimizers' state."""
    return tensors([value for optimizer in optimizers for value in optimizer.state.values()])


def _form(batch: Any) -> Any:
    """`batch` with the shape and type of each tensor in its place."""
    return apply(lambda value: (tuple(value.shape), value.dtype), batch)
