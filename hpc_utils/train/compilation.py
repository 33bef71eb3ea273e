"""torch.compile of the training step. Compilation happens in the warm-up and is not part of T."""

from __future__ import annotations

import contextlib
import sys

import torch
from torch import nn

from hpc_utils import capability
from hpc_utils.config import ConfigError, RunConfig


def require(config: RunConfig, device: torch.device) -> None:
    """Raise ConfigError if the device or compiler does not support the requested precision or compile mode."""
    why = capability.of_device(config.precision, config.compile, gpu=device.type == "cuda")
    ampere = device.type != "cuda" or (not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0))
    if config.precision == "tf32" and not (why or ampere):
        why = "precision='tf32' requires an NVIDIA GPU of the Ampere generation or later"
    if why := why or capability.of_compiler(config.compile):
        raise ConfigError(why)


def eager() -> contextlib.AbstractContextManager:
    """Run a compiled model eagerly: evaluation has other shapes, and would compile again."""
    compiling = "torch._dynamo" in sys.modules  # importing it takes seconds
    return torch.compiler.set_stance("force_eager") if compiling else contextlib.nullcontext()


class Compiled:
    """Compiles a model's forward pass in place, and counts graph breaks and recompilations. Parameter names do not change.

    It replaces `forward` rather than calling `nn.Module.compile`, which ignores an `nn.Sequential` (torch 2.13). Under DDP,
    Dynamo splits the graph at bucket boundaries, so that communication still overlaps with the backward pass (PyTorch
    docs, "Distributed Data Parallel", TorchDynamo DDPOptimizer).
    """

    def __init__(self, model: nn.Module, config: RunConfig) -> None:
        self._on = config.compile != "off"
        if not self._on:
            return
        import torch._dynamo

        torch._dynamo.reset()  # otherwise graphs of an earlier run in this process count towards the recompile limit
        plain = model.forward
        model.forward = torch.compile(
            lambda *args, **named: plain(*args, **named), mode=config.compile, dynamic=False
        )
        self._breaks, self._frames = self._counts()

    def warmed_up(self) -> None:
        """Mark the end of the warm-up: later compilations are reported."""
        if self._on:
            self._frames = self._counts()[1]

    def remarks(self) -> list[str]:
        """Return remarks on graph breaks, and on compilation after the warm-up."""
        if not self._on:
            return []
        breaks, frames = self._counts()
        found = []
        if breaks > self._breaks:
            found.append(
                f"torch.compile broke the model's graph {breaks - self._breaks} times (see TORCH_LOGS=graph_breaks)"
            )
        if frames > self._frames:
            found.append(
                f"torch.compile compiled {frames - self._frames} times after the warm-up, within the measured time "
                f"(see TORCH_LOGS=recompiles)"
            )
        return found

    @staticmethod
    def _counts() -> tuple[int, int]:
        from torch._dynamo.utils import counters

        return sum(counters["graph_break"].values()), counters["frames"]["total"]
