"""torch.compile: within the warm-up, so that T holds none of it, and of the training steps alone."""

from __future__ import annotations

import contextlib
import sys

import torch
from torch import nn

from hpc_utils import capability
from hpc_utils.config import ConfigError, RunConfig


def require(config: RunConfig, device: torch.device) -> None:
    """Refuse what this device, or this machine's compiler, cannot do.

    Raises:
        ConfigError: with the reason.
    """
    why = capability.of_device(config.precision, config.compile, gpu=device.type == "cuda")
    ampere = device.type != "cuda" or (not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0))
    if config.precision == "tf32" and not (why or ampere):
        why = "precision='tf32' is a format of NVIDIA's GPUs from Ampere on, which this one is not"
    if why := why or capability.of_compiler(config.compile):
        raise ConfigError(why)


def eager() -> contextlib.AbstractContextManager:
    """Inside, a compiled model computes as if it were not: evaluation has shapes of its own, the last batch another."""
    compiling = "torch._dynamo" in sys.modules  # which importing takes seconds
    return torch.compiler.set_stance("force_eager") if compiling else contextlib.nullcontext()


class Compiled:
    """A model's forward pass compiled in place, its parameters' names as they were; and what the compiler made of it.

    `forward` is replaced and not the call: hooks stay outside, and `nn.Module.compile` passes over an `nn.Sequential`
    (torch 2.13). DDP, put around it, has Dynamo cut the graph into pieces of a bucket's size, so that communication still
    overlaps with the backward pass (PyTorch docs, "Distributed Data Parallel", TorchDynamo DDPOptimizer).
    """

    def __init__(self, model: nn.Module, config: RunConfig) -> None:
        self._on = config.compile != "off"
        if not self._on:
            return
        import torch._dynamo

        torch._dynamo.reset()  # else graphs of an earlier run of this process count against the limit
        plain = model.forward
        model.forward = torch.compile(
            lambda *args, **named: plain(*args, **named), mode=config.compile, dynamic=False
        )
        self._breaks, self._frames = self._counts()

    def warmed_up(self) -> None:
        """From here on nothing should be compiled any more."""
        if self._on:
            self._frames = self._counts()[1]

    def remarks(self) -> list[str]:
        """What the run's records mention: a graph in pieces, compilation in T."""
        if not self._on:
            return []
        breaks, frames = self._counts()
        found = []
        if breaks > self._breaks:
            found.append(
                f"torch.compile broke the model's graph {breaks - self._breaks} times (TORCH_LOGS=graph_breaks)"
            )
        if frames > self._frames:
            found.append(
                f"torch.compile compiled {frames - self._frames} times after the warm-up, inside the time measured "
                f"(TORCH_LOGS=recompiles shows why)"
            )
        return found

    @staticmethod
    def _counts() -> tuple[int, int]:
        from torch._dynamo.utils import counters

        return sum(counters["graph_break"].values()), counters["frames"]["total"]
