"""Floating-point operations of training per sample, from which the model FLOPs utilisation (MFU) follows."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from .pytree import batch_size
from .workload import Batch, Workload


def per_sample(workload: Workload, model: nn.Module, batch: Batch) -> float:
    """Count operations of the forward and backward pass per sample of `batch`, in matrix products and convolutions.

    A multiplication and an addition are two operations. The count uses fake tensors (PyTorch docs, "Fake tensor"), so
    nothing is computed and the model does not change.

    Raises:
        Exception: the model depends on tensor values, or uses operators without a fake implementation.
    """
    step = _Step(workload, model)
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    counter = FlopCounterMode(display=False)
    with _silent("torch._subclasses.fake_tensor"), fakes as fake, counter:
        state = {name: fake.from_tensor(value) for name, value in (*step.named_parameters(), *step.named_buffers())}
        weights = [value for value in state.values() if value.requires_grad]
        loss = torch.func.functional_call(step, state, batch)
        torch.autograd.grad(loss, weights, allow_unused=True)
    return counter.get_total_flops() / batch_size(batch[1])


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """Silence the logger `name` in the block; the exception has its message."""
    logger = logging.getLogger(name)
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


class _Step(nn.Module):
    """A training step as a module, so that `functional_call` can replace its weights."""

    def __init__(self, workload: Workload, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._workload = workload

    def forward(self, inputs: Any, targets: Any) -> Tensor:
        return self._workload.loss(self._workload.forward(self.model, inputs), targets)
