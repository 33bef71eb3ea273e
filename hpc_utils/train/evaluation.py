"""Evaluation over every test sample exactly once."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hpc_utils.config import RunConfig

from . import compilation, precision, randomness
from .loader import Loader
from .parallel import Strategy
from .pytree import batch_size
from .ranks import Ranks
from .sampler import evaluation_indices
from .workload import COUNT, Workload, WorkloadError, means

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
        self._is_tried = False  # whether the metrics are sums

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
        self._model.eval()
        mirrored = self._config.evaluate_mirrored
        sums: Counter[str] = Counter()
        indices, counted = self._indices()
        if not self._is_tried:
            self._is_tried = True
            random_state = randomness.take(ranks.device)
            with self._strategy.evaluating(), self._eager():
                require_sums(workload, self._loader, indices[0], partial(workload.forward, self._model))
            randomness.put(random_state, ranks.device)
        ranks.synchronize()
        begun = time.perf_counter()
        with self._strategy.evaluating():
            for number, (inputs, targets) in enumerate(self._loader.batches(indices, epoch=0)):
                with self._eager():
                    outputs = workload.forward(self._model, inputs)
                    loss = workload.loss(outputs, targets)
                    views = {"": outputs}
                    if mirrored:
                        both = outputs.float() + workload.forward(self._model, inputs.flip(3)).float()
                        views["mirrored_"] = both / 2
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

    @contextlib.contextmanager
    def _eager(self) -> Iterator[None]:
        with precision.autocast(self._config.precision, self._ranks.device), compilation.eager():
            yield

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
def require_sums(workload: Workload, loader: Loader, indices: Tensor, forward: Callable[[Any], Any]) -> None:
    """Raise WorkloadError if a metric or `count` of the first samples is not the sum of those of `PAIRS` pairs of them, each a batch of
    its own: a mean is not, nor what counts padding. Every rank calls `forward` as often.
    """
    pairs = list(indices[: 2 * PAIRS].split(2))
    batches = [indices[: 2 * PAIRS], *pairs, *[indices[:1]] * (PAIRS - len(pairs))]
    sums = []
    for inputs, targets in loader.batches(batches, epoch=0):
        values = workload.sums(forward(inputs), targets)
        values |= {"count": workload.count(inputs, targets)} if workload.count else {}
        sums.append({name: float(value) for name, value in values.items()})
    whole, *of_pairs = sums[: 1 + len(pairs)]
    for name, total in whole.items():
        values = [pair[name] for pair in of_pairs]
        size_of_sum = sum(map(abs, values))
        allowance = 0.02 * size_of_sum
        is_of_targets = name == "count" or name.endswith(COUNT)
        if not is_of_targets and all(value.is_integer() for value in (total, *values)):
            # Predictions that are counted may differ: a forward pass of another batch rounds otherwise.
            allowance = 2 + 0.25 * size_of_sum
        if abs(total - sum(values)) > allowance:
            raise WorkloadError(
                f"`{name.removesuffix(COUNT)}` is no sum over the samples: it is {total:.5g} of {len(batches[0])} samples, but "
                f"{sum(values):.5g} of their pairs together, padded anew; return the sum (a metric also two sums: value, count)"
            )
