"""torch.compile of the training step. Compilation happens in the warm-up and is not part of T."""

from __future__ import annotations

import contextlib
import sys

import torch
from torch import nn

from hpc_utils import capability
from hpc_utils.config import ConfigError, RunConfig


def require(config: RunConfig, device: torch.device) -> None:
    """Raise ConfigError if the device or compiler does not support the requested precision, compile mode or step graph."""
    gpu = device.type == "cuda"
    ampere = gpu and not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)
    why = capability.of_device(config.model_dump(), gpu=gpu)
    if config.precision == "tf32" and not ampere:
        why = f"precision='tf32': {capability.LACKS['tf32']}"
    if why := why or capability.of_compiler(config.compile):
        raise ConfigError(why)


def eager() -> contextlib.AbstractContextManager:
    """Run a compiled model eagerly: evaluation has other shapes, and would compile again."""
    compiling = "torch._dynamo" in sys.modules  # importing it takes seconds
    return torch.compiler.set_stance("force_eager") if compiling else contextlib.nullcontext()


class Compiled:
    """Compiles a model's forward pass in place, and counts compilations. Parameter names do not change.

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

    def warmed_up(self) -> None:
        """Mark the end of the warm-up."""
        self._frames = self._compiled_frames()

    def remark(self) -> str:
        """A remark if torch compiled after the warm-up, that is, in the measured time; else empty."""
        frames = self._compiled_frames() - self._frames
        return (
            f"torch.compile compiled {frames} times in the measured time (see TORCH_LOGS=recompiles)"
            if frames
            else ""
        )

    def _compiled_frames(self) -> int:
        if not self._on:
            return 0
        from torch._dynamo.utils import counters

        return counters["frames"]["total"]
