"""Data parallelism of the framework: its model on every rank, with gradients summed by MPI_Allreduce."""

from __future__ import annotations

import importlib
from importlib import metadata
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hpc_utils import datasets
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.train.parallel.strategy import Strategy
from hpc_utils.train.ranks import Ranks

from . import model
from .communication import Allreduce


class MpiStrategy(Strategy):
    """The framework's network in place of the workload's module, which gives it its initial weights.

    Attributes:
        network: with flat `parameters` and `gradients`. allreduce: of the gradients.
    """

    def __init__(self, torchs: nn.Module, config: RunConfig, ranks: Ranks, *, overlap: bool) -> None:
        super().__init__(torchs, config, ranks)
        _, share = config.batches(ranks.world_size)
        images = datasets.load(config.dataset, "train")
        self.network = framework(ranks.device).CNN(
            images.images.shape[1:], len(images.classes), batch=max(share, config.eval_batch), threads=ranks.threads
        )
        self.network.parameters = _flat(torchs, self.network)
        self.model = self.wrapped = _Module(self.network)
        self.allreduce = Allreduce(
            ranks.group, self.network.gradients,
            bucket_bytes=config.bucket_mb * 2**20, overlap=overlap, timeout=config.collective_timeout,
        )  # fmt: skip
        self._steps = 0

    def backward_pass(self, gradient: Any) -> None:
        """Run the backward pass from the gradient of the global batch's mean loss, and sum gradients over ranks."""
        self.network.backward(gradient, self.allreduce.ready if self.ranks.world_size > 1 else None)
        self.allreduce.finish()
        self._steps += 1

    def counters(self) -> dict[str, float]:
        """Seconds per step in all-reduces, and their part hidden behind the backward pass, on rank 0 since the last call."""
        reduce, steps, self._steps = self.allreduce, self._steps, 0
        found = {"comm_seconds": reduce.seconds, "overlap_seconds": max(0.0, reduce.seconds - reduce.exposed)}
        reduce.seconds = reduce.exposed = 0.0
        return {name: value / steps for name, value in found.items()} if steps and self.ranks.world_size > 1 else {}

    def keep(self) -> np.ndarray:
        return self.network.parameters.copy()

    def put_back(self, kept: np.ndarray) -> None:
        self.network.parameters = kept
        self.counters()

    def weights(self) -> dict[str, Tensor] | None:
        return {"parameters": torch.tensor(self.network.parameters)} if self.ranks.is_main else None

    def load_weights(self, state: dict[str, Tensor]) -> None:
        self.network.parameters = state["parameters"].numpy()

    def optimizer_state(self, optimizer: model.SGD) -> dict[str, Any] | None:
        velocity = optimizer.velocity
        return {"velocity": None if velocity is None else torch.tensor(velocity)} if self.ranks.is_main else None

    def load_optimizer_state(self, optimizer: model.SGD, state: dict[str, Any]) -> None:
        velocity = state["velocity"]
        optimizer.velocity = None if velocity is None else velocity.numpy().copy()


class _Module(nn.Module):
    """The network as evaluation calls it."""

    def __init__(self, network: model.CNN) -> None:
        super().__init__()
        self._forward = network.forward

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.from_numpy(self._forward(channels_last(inputs))).to(inputs.device)


def channels_last(inputs: Tensor) -> np.ndarray:
    """Images (n, c, h, w) as (n, h, w, c), without a copy if they lie so in memory."""
    return np.ascontiguousarray(inputs.permute(0, 2, 3, 1).cpu().numpy())


def framework(device: torch.device) -> ModuleType:
    """The module whose `CNN` and `SGD` compute on `device`.

    Raises:
        ConfigError: numba-cuda cannot be imported, such as beside a NumPy that is newer than it knows.
    """
    if device.type == "cpu":
        return model
    try:
        from . import cuda

        importlib.import_module("numba.cuda.np.arrayobj")  # which the first kernel would import
    except (ImportError, AttributeError) as error:
        versions = {package.name: package.version for package in metadata.distributions()}
        pair = " with ".join(f"{name} {versions.get(name, '(not installed)')}" for name in ("numba-cuda", "numpy"))
        why = str(error).partition("\n")[0]
        raise ConfigError(f"{pair} cannot be imported ({why}): pip install -e '.[cuda]'") from error
    cuda.use(device.index)
    return cuda


def _flat(torchs: nn.Module, network: model.CNN) -> np.ndarray:
    """The weights of torch's module as the network's flat array: filters as (row, column, input, output)."""
    flat, channels = np.empty_like(network.gradients), 0
    values = [value.detach().cpu().numpy() for value in torchs.parameters()]
    for layer, weight, bias in zip(network.layers, values[::2], values[1::2], strict=True):
        if weight.ndim == 2:  # its inputs are (channel, row, column), with the channels of the layer before
            weight = weight.reshape(len(weight), channels, -1, 1)
        own_weight, own_bias = layer.views(flat)
        own_weight[:] = weight.transpose(2, 3, 1, 0).reshape(own_weight.shape)
        own_bias[:] = bias
        channels = len(bias)
    return flat
