"""The training step of `parallel="mpi"`: model, loss and optimizer are those of `hpc_utils.mpi`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from hpc_utils.config import RunConfig
from hpc_utils.mpi.loader import Batches

from . import precision
from .images import ImageSource
from .loop import Trainer
from .parallel.mpi import framework
from .ranks import Ranks
from .workload import Batch


class MpiTrainer(Trainer):
    """A trainer whose strategy (`parallel.mpi.Mpi`) has the network; records, checkpoints and signals are the trainer's."""

    def _new_loader(self) -> _Loader:
        return _Loader(self.workload.train, self.config, self.ranks)

    def _first_batch(self) -> Batch:
        """A batch of the torch half, whose model it is for."""
        return self.workload.train.batch(next(self.sampler.epoch(1)), 0, self.ranks.device)

    def _fresh_optimizer(self) -> None:
        config = self.config
        self.scaler = precision.grad_scaler(
            config.precision, self.ranks.device
        )  # does nothing: a checkpoint holds its state
        self.optimizer = framework(self.ranks.device).SGD(
            self.peak_lr, config.momentum, config.weight_decay, config.nesterov
        )

    def _set_lr(self, lr: float) -> None:
        self.optimizer.lr = lr

    def _learn(
        self, inputs: np.ndarray, targets: Tensor, lap: Callable[[str], None] = lambda phase: None
    ) -> tuple[float, dict[str, int]]:
        network = self.strategy.network
        gradient = network.loss(inputs, targets.numpy(), self.ranks.world_size)
        lap("forward")
        self.strategy.backward_pass(gradient)
        lap("backward")
        self.optimizer.step(network)
        mean, correct = network.outcome
        return mean, {"accuracy": correct}


class _Loader:
    """The framework's batches, in the order of the trainer's sampler."""

    def __init__(self, source: ImageSource, config: RunConfig, ranks: Ranks) -> None:
        self._batches = Batches(
            source.pixels, source.labels.numpy(), batch=config.batches(ranks.world_size)[0],
            rank=ranks.rank, world_size=ranks.world_size, seed=source.seed, threads=ranks.threads,
            shift=source.padding, flip=source.flip, mean=source.mean, std=source.std,
        )  # fmt: skip

    def batches(self, indices: Iterable[Tensor], epoch: int, done: int = 0) -> Iterator[Batch]:
        for images, labels in self._batches.of(torch.cat([*indices]).numpy(), epoch):
            yield images, torch.from_numpy(labels)
