"""`workload=companions.mpi.training:Mpi`: the trainer with the framework's loader, model, loss and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from signal import Signals

import numpy as np
import torch
from torch import Tensor

from hpc_utils.config import RunConfig
from hpc_utils.train import Recorder, WorkloadError, precision
from hpc_utils.train.images import ImageSource
from hpc_utils.train.loop import Trainer
from hpc_utils.train.ranks import Ranks
from hpc_utils.train.workload import Batch, Loop

from .loader import Batches
from .strategy import MpiStrategy, framework

NETWORK = "mnist_cnn"  # torch's twin of the framework's only network


class Mpi(Loop):
    """The network `mnist_cnn` on images of the catalogue.

    Args:
        dataset, augment: as those of `RunConfig`.
        overlap: a thread sums gradients while the backward pass goes on.

    Raises:
        WorkloadError: the weight decay is not that of all parameters, as the framework's optimizer decays.
    """

    launcher = "companions.mpi.launcher:Mpi"
    options = frozenset(
        {"workload", "workload_args", "parallel", "device", "threads_per_rank", "cores_per_rank", "share_period"}
        | {"global_batch", "batch_per_device", "epochs", "steps_per_epoch", "eval_batch", "bucket_mb"}
        | {"seed", "repeat"}
        | {"lr", "lr_batch", "lr_scaling", "lr_warmup_epochs", "schedule", "step_size", "gamma"}
        | {"momentum", "nesterov", "weight_decay", "weight_decay_on", "warmup_steps", "phase_every", "evaluate_every"}
        | {"link_gbit", "profile", "profile_steps", "monitor_seconds", "collective_timeout"}
        | {"checkpoint_every", "checkpoint_minutes", "save_weights", "source", "dataset"}
    )

    def __init__(
        self, config: RunConfig, dataset: str = "mnist", augment: bool = False, overlap: bool = True
    ) -> None:
        if config.weight_decay and config.weight_decay_on != "all":
            raise WorkloadError("the framework's optimizer decays all parameters alike: use weight_decay_on=all")
        trained = {"workload": NETWORK, "workload_args": {}, "dataset": dataset, "augment": augment}
        self.config, self.overlap = config.model_copy(update=trained), overlap

    def run(self, ranks: Ranks, recorder: Recorder, received: Sequence[Signals]) -> None:
        MpiTrainer(self.config, ranks, recorder, received, overlap=self.overlap).run()


class MpiTrainer(Trainer):
    """A trainer whose strategy has the network; records, checkpoints and signals are the trainer's."""

    def __init__(
        self, config: RunConfig, ranks: Ranks, recorder: Recorder, received: Sequence[Signals], *, overlap: bool
    ) -> None:
        self.overlap = overlap
        super().__init__(config, ranks, recorder, received)

    def _new_strategy(self) -> MpiStrategy:
        return MpiStrategy(self.model, self.config, self.ranks, overlap=self.overlap)

    def _new_loader(self) -> _Loader:
        return _Loader(self.workload.train, self.config, self.ranks)

    def _first_batch(self) -> Batch:
        """A batch of the torch half, whose model it is for."""
        return self.workload.train.batch(next(self.sampler.epoch(1)), 0, self.ranks.device)

    def _fresh_optimizer(self) -> None:
        config = self.config
        # It does nothing: a checkpoint holds its state.
        self.scaler = precision.grad_scaler(config.precision, self.ranks.device)
        self.optimizers = [
            framework(self.ranks.device).SGD(self.peak_lr, config.momentum, config.weight_decay, config.nesterov)
        ]

    def _set_lr(self, factor: float) -> float:
        self.optimizers[0].lr = self.peak_lr * factor
        return self.optimizers[0].lr

    def _learn(
        self, inputs: np.ndarray, targets: Tensor, lap: Callable[[str], None] = lambda phase: None
    ) -> tuple[float, dict[str, int]]:
        network = self.strategy.network
        gradient = network.loss(inputs, targets.numpy(), self.ranks.world_size)
        lap("forward")
        self.strategy.backward_pass(gradient)
        lap("backward")
        self.optimizers[0].step(network)
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

    def close(self) -> None:
        """Nothing to end: the threads are the rank's own."""

    def batches(self, indices: Iterable[Tensor], epoch: int, done: int = 0) -> Iterator[Batch]:
        for images, labels in self._batches.of(torch.cat([*indices]).numpy(), epoch):
            yield images, torch.from_numpy(labels)
