"""A device that computes nothing: each pass waits as long as the real one was measured to take.

The parameters are the real model's; gradients of their shapes appear in the order and at the times measured, so that
DDP's buckets, hooks and all-reduce have what they have in earnest. Deadlines are counted from the start of a pass: what
Python and the copying of gradients cost is inside them. With `dilation` k every wait is k times as long.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records.compute_profile import Profile, required

from .workload import Batch, Workload


def workload(config: RunConfig, real: Workload) -> Workload:
    """`real` on the emulated device: its model's parameters and its number of samples, and calibrated waits.

    Raises:
        ConfigError: no such profile, or (when the model is built) it is another model's.
    """
    profile = required(config)
    device = Device(profile, config.dilation or 1.0)
    return Workload(
        model=lambda: emulate(real.model(), profile, device),
        train=Source(len(real.train), device),
        test=Source(len(real.test), device),
        loss=lambda outputs, targets: outputs,
        optimizer=lambda model, config, lr: Optimizer(model, device),
        learns=False,
    )


@dataclass
class Device:
    """Waits by a profile, for a batch of the size last fetched."""

    profile: Profile
    dilation: float
    _seconds: dict[str, float] = field(default_factory=dict)
    _begun: float = 0.0

    def fetch(self, batch: int) -> None:
        """A step on `batch` samples begins."""
        self._seconds = self._of(batch)

    def begin(self) -> None:
        """A pass begins."""
        self._begun = time.perf_counter()

    def wait(self, phase: str, fraction: float = 1.0) -> None:
        """Until that fraction of the phase's time has gone since its pass began."""
        deadline = self._begun + fraction * self._seconds[phase] * self.dilation
        while (left := deadline - time.perf_counter()) > 0:
            time.sleep(left)

    @functools.cached_property
    def _of(self) -> Callable[[int], dict[str, float]]:
        return functools.cache(self.profile.seconds)


@dataclass(frozen=True)
class Stage:
    """Parameters of one module whose gradients are complete one after the other, with nothing of others between.

    `begins`, `ends`: fractions of the backward pass. The forward pass comes to them in the opposite order.
    """

    parameters: tuple[str, ...]
    begins: float
    ends: float


def stages(profile: Profile) -> list[Stage]:
    """In the order of the backward pass, which ends with the last of them."""
    groups = [list(group) for _, group in itertools.groupby(profile.ready, key=lambda one: one[0].rpartition(".")[0])]
    ends = [group[-1][2] for group in groups[:-1]] + [1.0]
    return [
        Stage(tuple(name for name, _, _ in group), begins, end)
        for group, begins, end in zip(groups, [0.0, *ends], ends, strict=False)
    ]


def emulate(model: nn.Module, profile: Profile, device: Device) -> nn.Module:
    """`model` itself, with names, shapes and buffers as they are; only what its forward pass does is replaced.

    Raises:
        ConfigError: the profile was measured of other parameters.
    """
    own = {name: parameter.nbytes for name, parameter in model.named_parameters() if parameter.requires_grad}
    if own != {name: size for name, size, _ in profile.ready}:
        raise ConfigError(
            f"the profile {profile.name} is of another model: it has {len(profile.ready)} parameters of "
            f"{profile.gradient_bytes} bytes, this one {len(own)} of {sum(own.values())}; measure it again"
        )
    model.forward = _Forward(model, stages(profile), device)
    return model


class _Forward:
    """The forward pass: a chain of stages, from which autograd makes the backward pass."""

    def __init__(self, model: nn.Module, chain: list[Stage], device: Device) -> None:
        self._model, self._device = model, device
        self._chain = chain[::-1]

    def __call__(self, inputs: Tensor) -> Tensor:
        self._device.begin()
        held = self._held
        value = torch.zeros(())
        for stage in self._chain:
            value = _Pass.apply(value, self._device, stage, *(held[name] for name in stage.parameters))
        return value

    @functools.cached_property
    def _held(self) -> dict[str, nn.Parameter]:  # at the first pass: until then a module may be moved
        return dict(self._model.named_parameters())


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, device: Device, stage: Stage, *parameters: Tensor) -> Tensor:
        ctx.device, ctx.stage, ctx.shapes = device, stage, [(p.shape, p.dtype) for p in parameters]
        device.wait("forward", 1.0 - stage.begins)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        if not ctx.stage.begins:
            ctx.device.begin()
        ctx.device.wait("backward", ctx.stage.ends)
        # Without memory of their own: what accumulates them writes them out once, as it does real ones.
        return gradient, None, None, *(torch.zeros((), dtype=kind).expand(shape) for shape, kind in ctx.shapes)


class Source:
    """As many samples as the real data set has, without content."""

    def __init__(self, size: int, device: Device) -> None:
        self._size, self._device = size, device

    def __len__(self) -> int:
        return self._size

    def batch(self, indices: Tensor, epoch: int, device: torch.device) -> Batch:
        """Empty inputs (B, 0), and the samples' numbers (B,), after the wait for data."""
        self._device.begin()
        self._device.fetch(len(indices))
        self._device.wait("data")
        return torch.empty(len(indices), 0), indices


class Optimizer(torch.optim.Optimizer):
    """Changes nothing, in the time that the real one took."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        super().__init__([p for p in model.parameters() if p.requires_grad], {"lr": 0.0})
        self._device = device

    def step(self, closure: Any = None) -> None:
        self._device.begin()
        self._device.wait("optimizer")
