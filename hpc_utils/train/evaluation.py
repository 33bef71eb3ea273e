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

PAIRS = 8  # of samples, whose metrics are compared with those of all of them together


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
    """Raise WorkloadError if a metric or `count` of `PAIRS` pairs of samples is not the sum of those of each pair, as a mean is not.

    Outputs that are not one entry for each sample are computed anew, by `forward` of the pairs' inputs, as often on every rank. It is
    not tried on a batch with tensors that are not one entry for each sample.
    """
    size = batch_size(batch[1])
    count = min(PAIRS, size // 2)
    places = [slice(first, first + 2) for first in range(0, 2 * count, 2)]
    slices = [slice(2 * count or size), *places, *[slice(size)] * (PAIRS - count)]
    try:
        parts = [portion(batch, size, place) for place in slices]
    except WorkloadError:
        return
    leaves = tensors(outputs)
    if leaves and all(leaf.ndim and len(leaf) == size for leaf in leaves):
        part_outputs = [portion(outputs, size, place) for place in slices]
    else:
        part_outputs = [forward(inputs) for inputs, _ in parts]
    whole, *of_pairs = (_sums(workload, parts[number], part_outputs[number]) for number in range(count + 1))
    for name, total in whole.items() if count else ():
        values = [pair[name] for pair in of_pairs]
        # Counts may differ where a forward pass of other batches rounds otherwise.
        is_count = all(value.is_integer() for value in (total, *values))
        size_of_sum = sum(map(abs, values))
        allowance = 2 + 0.25 * size_of_sum if is_count else 0.02 * size_of_sum
        if abs(total - sum(values)) > allowance:
            raise WorkloadError(
                f"`{name.removesuffix(COUNT)}` is no sum over the samples: it is {total:.5g} of {2 * count} samples, but "
                f"{sum(values):.5g} of their pairs together; return the sum (a metric also two sums: value, count)"
            )


def _sums(workload: Workload, batch: Batch, outputs: Any) -> dict[str, float]:
    """The metrics' sums of a batch, and its count."""
    sums = workload.sums(outputs, batch[1]) | ({"count": workload.count(*batch)} if workload.count else {})
    return {name: float(value) for name, value in sums.items()}
