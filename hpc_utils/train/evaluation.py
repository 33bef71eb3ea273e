"""Evaluation over every test sample exactly once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hpc_utils.config import RunConfig

from . import compilation, precision
from .loader import Loader
from .parallel import Strategy
from .ranks import Ranks
from .sampler import evaluation_indices
from .workload import Workload, WorkloadError, batch_size


class Evaluation:
    """Evaluates `model` on the workload's test data."""

    def __init__(
        self, model: nn.Module, workload: Workload, config: RunConfig, ranks: Ranks, strategy: Strategy
    ) -> None:
        self._model = model
        self._workload = workload
        self._config = config
        self._ranks = ranks
        self._strategy = strategy
        self._loader = Loader(workload.test, workload, config, ranks.device)

    def close(self) -> None:
        """End the loader's workers."""
        self._loader.close()

    @torch.no_grad()  # not inference_mode: training reuses FSDP's gathered weights
    def run(self, after_batch: Callable[[], None]) -> dict[str, float]:
        """Return loss and metrics reduced over ranks (`test_<name>`), and the duration (`eval_seconds`). Collective.

        With `evaluate_mirrored` also `test_mirrored_<name>`, of the mean output for an image and its mirror image.

        All ranks use rank 0's batch-norm statistics.

        Raises:
            WorkloadError: a metric is a mean over the batch, or the accuracy exceeds 1.
        """
        ranks = self._ranks
        workload = self._workload
        ranks.synchronize()
        begun = time.perf_counter()
        self._model.eval()
        mirrored = self._config.evaluate_mirrored
        names = ["loss", *workload.metrics, *(f"mirrored_{name}" for name in workload.metrics if mirrored)]
        sums = torch.zeros(len(names) + 1, dtype=torch.float64)
        indices, counted = self._indices()
        with self._strategy.evaluating():
            for number, (inputs, targets) in enumerate(self._loader.batches(indices, epoch=0)):
                with precision.autocast(self._config.precision, ranks.device), compilation.eager():
                    outputs = workload.forward(self._model, inputs)
                    loss = workload.loss(outputs, targets)
                    views = [outputs]
                    if mirrored:
                        views.append((outputs.float() + workload.forward(self._model, inputs.flip(3)).float()) / 2)
                if number == 0:
                    _require_sums(workload, outputs, targets)
                if number < counted:
                    count = batch_size(targets)
                    values = [float(metric(view, targets)) for view in views for metric in workload.metrics.values()]
                    sums += torch.tensor([count, float(loss) * count, *values], dtype=torch.float64)
                after_batch()
        total, *values = ranks.sum(sums).tolist()
        self._model.train()
        means = {f"test_{name}": value / total for name, value in zip(names, values, strict=True)}
        if (accuracy := means.get("test_accuracy", 0)) > 1:
            raise WorkloadError(
                f"the test accuracy is {accuracy:.5g}: the metric `accuracy` must add at most 1 for each sample of the batch"
            )
        return means | {"eval_seconds": time.perf_counter() - begun}

    def _indices(self) -> tuple[list[Tensor], int]:
        """Return the indices of this rank's test batches, and how many of the batches count.

        Forward passes may contain collectives, so all ranks run the same number of batches: a rank with one batch less
        runs a one-sample batch that does not count.
        """
        size = len(self._workload.test)
        share = self._config.eval_batch
        world = self._ranks.world_size
        indices = [*evaluation_indices(size, share, rank=self._ranks.rank, world_size=world)]
        counted = len(indices)
        most = -(-size // (share * world))
        return indices + [torch.tensor([0])] * (most - counted), counted


def _require_sums(workload: Workload, outputs: Any, targets: Any) -> None:
    """Raise WorkloadError if a metric of a batch is the mean, not the sum, of those of its halves.

    It is not tried on outputs or targets that are no tensors, which cannot be divided.
    """
    tensors = [value for value in (outputs, targets) if isinstance(value, Tensor) and value.ndim]
    if len(tensors) < 2 or len(outputs) != len(targets) or not (half := len(targets) // 2):
        return
    parts = slice(2 * half), slice(half), slice(half, 2 * half)
    for name, metric in workload.metrics.items():
        batch_sum, first_sum, second_sum = (float(metric(outputs[part], targets[part])) for part in parts)
        if batch_sum and math.isclose(batch_sum, (first_sum + second_sum) / 2, rel_tol=1e-3):
            raise WorkloadError(f"the metric `{name}` is a mean over the batch: it must be the sum over its samples")
