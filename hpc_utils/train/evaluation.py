"""Evaluation over every test sample exactly once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hpc_utils.config import RunConfig

from . import compilation, precision
from .loader import Loader
from .parallel import Strategy
from .pytree import batch_size, portion, tensors
from .ranks import Ranks
from .sampler import evaluation_indices
from .workload import COUNT, Batch, Workload, WorkloadError, means

UNLIKE = 0.25  # share by which a metric differs from the sum over both halves: of a mean it is 0.5, of a sum rounding


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
        sums: Counter[str] = Counter()
        indices, counted = self._indices()
        with self._strategy.evaluating():
            for number, (inputs, targets) in enumerate(self._loader.batches(indices, epoch=0)):
                with precision.autocast(self._config.precision, ranks.device), compilation.eager():
                    outputs = workload.forward(self._model, inputs)
                    loss = workload.loss(outputs, targets)
                    views = {"": outputs}
                    if mirrored:
                        both = outputs.float() + workload.forward(self._model, inputs.flip(3)).float()
                        views["mirrored_"] = both / 2
                    if number == 0:
                        require_sums(workload, (inputs, targets), outputs, partial(workload.forward, self._model))
                count = batch_size(targets)
                values = {"samples": count, "loss": float(loss) * count}
                for view, view_outputs in views.items():
                    for name, value in workload.sums(view_outputs, targets).items():
                        values[view + name] = float(value)
                sums.update(values if number < counted else dict.fromkeys(values, 0))
                after_batch()
        totals = dict(zip(sums, ranks.sum(torch.tensor([*sums.values()], dtype=torch.float64)).tolist(), strict=True))
        self._model.train()
        finish = {view + name: function for view in views for name, function in workload.finish.items()}
        tested = means(totals, totals.pop("samples"), finish)
        if (accuracy := tested.get("accuracy", 0)) > 1:
            raise WorkloadError(
                f"the test accuracy is {accuracy:.5g}: the metric `accuracy` must add at most 1 for each sample of the batch"
            )
        return {f"test_{name}": value for name, value in tested.items()} | {
            "eval_seconds": time.perf_counter() - begun
        }

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


@torch.no_grad()
def require_sums(workload: Workload, batch: Batch, outputs: Any, forward: Callable[[Any], Any]) -> None:
    """Raise WorkloadError if a metric of a batch is not the sum of those of its halves, as a mean is not.

    Outputs that cannot be divided are computed again, by `forward` of the halves' inputs, on every rank. It is not tried on a batch
    with tensors that are not one entry for each sample.
    """
    size = batch_size(batch[1])
    middle = -(-size // 2)
    halves = [slice(middle), slice(middle, size) if size > 1 else slice(size)]
    try:
        parts = [portion(batch, size, half) for half in halves]
    except WorkloadError:
        return
    if tensors(outputs) and all(not tensor.ndim or len(tensor) == size for tensor in tensors(outputs)):
        outputs_of_halves = [portion(outputs, size, half) for half in halves]
    else:
        outputs_of_halves = [forward(inputs) for inputs, _ in parts]
    if size == 1:
        return
    sums = [
        workload.sums(half_outputs, targets)
        for half_outputs, (_, targets) in zip(outputs_of_halves, parts, strict=True)
    ]
    for name, total in workload.sums(outputs, batch[1]).items():
        values = [float(half[name]) for half in sums]
        if abs(float(total) - sum(values)) > UNLIKE * sum(map(abs, values)):
            metric = name.removesuffix(COUNT)
            raise WorkloadError(
                f"the metric `{metric}` is no sum over the samples: it is {float(total):.5g} of a batch, but {values[0]:.5g} and "
                f"{values[1]:.5g} of its halves; return the sum, or two sums (value, count)"
            )
