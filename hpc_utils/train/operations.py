"""Operations that training takes per sample: the model's own, of which MFU is the share of what a device could do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from .workload import Batch, Workload, batch_size


def per_sample(workload: Workload, model: nn.Module, batch: Batch) -> float:
    """Operations of forward and backward pass on one sample of `batch`, by matrix products and convolutions alone.

    A multiplication and an addition are two. Counted on tensors without data (PyTorch docs, "Fake tensor"): nothing is
    computed, and the model stays as it is.

    Raises:
        Exception: whatever a model raises that needs to see values, or uses operators of which only code is known.
    """
    step = _Step(workload, model)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, FlopCounterMode(display=False) as counter:
        state = {name: fake.from_tensor(value) for name, value in (*step.named_parameters(), *step.named_buffers())}
        weights = [value for value in state.values() if value.requires_grad]
        loss = torch.func.functional_call(step, state, batch)
        torch.autograd.grad(loss, weights, allow_unused=True)
    return counter.get_total_flops() / batch_size(batch[1])


class _Step(nn.Module):
    """A training step as a module, so that it can be called with other weights."""

    def __init__(self, workload: Workload, model: nn.Module) -> None:
        super().__init__()
        self.model, self._workload = model, workload

    def forward(self, inputs: Any, targets: Any) -> Tensor:
        return self._workload.loss(self._workload.forward(self.model, inputs), targets)
