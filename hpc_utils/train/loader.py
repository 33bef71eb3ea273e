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
from torch.utils.data import DataLoader, get_worker_info

from hpc_utils.config import RunConfig
from hpc_utils.signals import HANDLED

from . import augment, randomness
from .images import DeviceImages, ImageSamples, Numbered
from .pytree import to_device
from .workload import ArraySource, Batch, Workload, WorkloadError


class Loader:
    """Turns a sampler's indices into (inputs, targets) on the device.

    Our images come as `config.loader` says (see `images`); another `ArraySource` makes each batch itself. Any other data
    set goes through a DataLoader, whose `loader_workers` live as long as this object. What a worker draws from the
    generators of torch, NumPy and Python follows from seed, epoch and step: an epoch may begin in its middle, with
    whichever worker.

    Raises:
        ConfigError: images that are to be on the device do not fit it.
    """

    def __init__(self, source: Any, workload: Workload, config: RunConfig, device: torch.device) -> None:
        if config.loader == "device":
            source = DeviceImages(source, device)
        self.source, self.device = source, device
        self._batches: list[Numbered] = []
        self._loader = None
        if config.loader == "workers":
            samples = ImageSamples(source)
            self._loader = self._sample_by_sample(samples, samples.collate, config)
        elif isinstance(source, ArraySource) and config.loader_workers:
            raise WorkloadError(
                f"loader_workers={config.loader_workers}: the data of {config.workload!r} make whole batches themselves "
                f"(`batch`), without workers; use loader_workers=0"
            )
        elif not isinstance(source, DeviceImages | ArraySource):
            self._loader = self._sample_by_sample(_Keyed(source, config.seed), workload.collate, config)

    def _sample_by_sample(
        self, samples: Any, collate: Callable[[list], Batch] | None, config: RunConfig
    ) -> DataLoader:
        workers = config.loader_workers
        if workers:
            gc.collect()  # the process group of an earlier run here: a worker that collected it would hang
        follows = hasattr(self.source, "set_epoch")  # persistent workers, with a copy each, would not get it
        return DataLoader(
            samples,
            batch_sampler=self._batches,  # the very list: filled anew before each epoch
            num_workers=workers,
            collate_fn=collate,
            worker_init_fn=_prepare,
            pin_memory=config.pin_memory and self.device.type == "cuda",
            prefetch_factor=config.prefetch_factor if workers else None,
            persistent_workers=workers > 0 and config.persistent_workers and not follows,
            generator=torch.Generator().manual_seed(config.seed),  # else it draws from the model's numbers
        )

    def batches(self, indices: Iterable[Tensor], epoch: int, done: int = 0) -> Iterator[Batch]:
        """One batch for each tensor of indices (B,), those of `epoch` from step `done` on."""
        if self._loader is not None:
            self._batches[:] = [Numbered(epoch, step, own.tolist()) for step, own in enumerate(indices, done)]
            if hasattr(self.source, "set_epoch"):
                self.source.set_epoch(epoch)
            for batch in self._loader:
                yield to_device(tuple(batch), self.device)
        elif isinstance(self.source, DeviceImages):
            yield from self.source.batches(indices, epoch)
        else:
            for chosen in indices:
                yield self.source.batch(chosen, epoch, self.device)


class _Keyed:
    """A map-style data set by numbered batches; a worker's random numbers begin anew with each."""

    def __init__(self, source: Any, seed: int) -> None:
        self._source, self._seed = source, seed

    def __len__(self) -> int:
        return len(self._source)

    def __getitems__(self, batch: Numbered) -> list[Any]:
        epoch, step, indices = batch
        if get_worker_info():  # the rank itself draws from generators that a checkpoint holds
            randomness.seed(augment.key(augment.key(augment.key(self._seed, epoch), step), indices[0]))
        together = getattr(self._source, "__getitems__", None)
        return together(indices) if together else [self._source[index] for index in indices]


def _prepare(worker: int) -> None:
    """A worker does not collect what it has inherited, and obeys SIGTERM only from its rank.

    A scheduler signals all processes of a job: the rank stops after its step, for which it needs its workers.
    """

    def listen() -> None:
        while True:
            received = signal.sigwaitinfo(HANDLED)
            if received.si_signo == signal.SIGTERM and received.si_pid == os.getppid():
                os._exit(0)

    gc.freeze()
    if hasattr(signal, "sigwaitinfo"):  # not on macOS, where no scheduler is either
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        threading.Thread(target=listen, daemon=True).start()
