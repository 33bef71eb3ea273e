"""Batches on the device, from arrays or from any map-style data set."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate, get_worker_info

from hpc_utils.config import RunConfig
from hpc_utils.signals import HANDLED

from . import augment, randomness
from .images import DeviceImages, ImageSamples, Numbered
from .pytree import to_device
from .workload import ArraySource, Batch, Workload, WorkloadError


class Loader:
    """Turns a sampler's indices into (inputs, targets) on the device.

    The image data sets are loaded as `config.loader` selects (see `images`), and any other `ArraySource` makes whole
    batches itself. Every other data set goes through a DataLoader. Its workers reseed torch, NumPy and Python from seed,
    epoch and step at each batch, so that an epoch can resume in its middle and on any worker.
    """

    def __init__(self, source: Any, workload: Workload, config: RunConfig, device: torch.device) -> None:
        if config.loader == "device":
            source = DeviceImages(source, device)
        self.source = source
        self.device = device
        self._batches: list[Numbered] = []
        self._loader = None
        if config.loader == "workers":
            samples = ImageSamples(source)
            self._loader = self._sample_by_sample(samples, samples.collate, config)
        elif isinstance(source, ArraySource) and config.loader_workers:
            raise WorkloadError(
                f"loader_workers={config.loader_workers}: the data of {config.workload!r} make whole batches themselves "
                f"(method `batch`), without workers; use loader_workers=0"
            )
        elif not isinstance(source, DeviceImages | ArraySource):
            self._loader = self._sample_by_sample(_Keyed(source, config.seed), workload.collate, config)

    def _sample_by_sample(
        self, samples: Any, collate: Callable[[list], Batch] | None, config: RunConfig
    ) -> DataLoader:
        workers = config.loader_workers
        if workers:
            gc.collect()  # frees an earlier run's process group: a worker that collected it would hang
        return DataLoader(
            samples,
            batch_sampler=self._batches,  # the same list object, refilled before each epoch
            num_workers=workers,
            collate_fn=collate or _collate,
            worker_init_fn=_prepare,
            pin_memory=config.pin_memory and self.device.type == "cuda",
            prefetch_factor=config.prefetch_factor if workers else None,
            persistent_workers=workers > 0 and config.persistent_workers,
            generator=torch.Generator().manual_seed(config.seed),  # otherwise it advances the global generator
        )

    def batches(self, indices: Iterable[Tensor], epoch: int, done: int = 0) -> Iterator[Batch]:
        """Yield one batch for each tensor of indices (B,); they are those of `epoch` from step `done` on."""
        for part in self.parts(indices, epoch, done):
            yield self.finish(*part)

    def close(self) -> None:
        """End the workers. If garbage collection ends them instead, each loader waits 5 s for them."""
        self._loader = None

    def finish(self, *part: Any) -> Batch:
        """Make the batch of one of `parts`; images on the device are gathered and augmented here."""
        return self.source.finish(*part) if isinstance(self.source, DeviceImages) else part

    def parts(self, indices: Iterable[Tensor], epoch: int, done: int = 0) -> Iterator[tuple[Any, Any]]:
        """Yield, as `batches` does, what `finish` makes each batch of: for images on the device their indices and random
        numbers, else the batch itself."""
        if self._loader is not None:
            self._batches[:] = [Numbered(epoch, step, chosen.tolist()) for step, chosen in enumerate(indices, done)]
            for batch in self._loader:
                yield to_device(_pair(batch), self.device)
        elif isinstance(self.source, DeviceImages):
            yield from self.source.parts(indices, epoch)
        else:
            for chosen in indices:
                yield _pair(self.source.batch(chosen, epoch, self.device))


class _Keyed:
    """A map-style data set indexed by `Numbered` batches; workers reseed at each batch."""

    def __init__(self, source: Any, seed: int) -> None:
        self._source = source
        self._seed = seed

    def __len__(self) -> int:
        return len(self._source)

    def __getitems__(self, batch: Numbered) -> list[Any]:
        epoch, step, indices = batch
        if get_worker_info():  # in the rank itself, checkpoints restore the generators
            randomness.seed(augment.key(augment.key(augment.key(self._seed, epoch), step), indices[0]))
        together = getattr(self._source, "__getitems__", None)
        return together(indices) if together else [self._source[index] for index in indices]


def _collate(samples: list) -> Any:
    """torch's batch of `samples`."""
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        raise WorkloadError(
            f"samples make no batch: {error}; give a `collate` that returns (inputs, targets)"
        ) from error


def _pair(batch: Any) -> Batch:
    """`batch`, if it is one.

    Raises:
        WorkloadError: it is not a pair.
    """
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return tuple(batch)
    size = f" of {len(batch)}" if isinstance(batch, list | tuple) else ""
    raise WorkloadError(
        f"a batch is a {type(batch).__name__}{size}; expected (inputs, targets), each a tensor, or a dict, list, tuple or dataclass of "
        "tensors: let `collate` return such a pair, for example `batch, batch['labels']`"
    )


def _prepare(worker: int) -> None:
    """Set up a worker: ignore signals of the scheduler, which the rank handles, and do not collect inherited objects.

    Slurm signals all processes of a job, but the rank still needs its workers to finish the step. SIGTERM from the rank
    itself ends the worker.
    """

    def listen() -> None:
        while True:
            received = signal.sigwaitinfo(HANDLED)
            if received.si_signo == signal.SIGTERM and received.si_pid == os.getppid():
                os._exit(0)

    gc.freeze()
    if hasattr(signal, "sigwaitinfo"):  # not on macOS
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        threading.Thread(target=listen, daemon=True).start()
