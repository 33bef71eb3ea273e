"""Batches on the device, from arrays or from any map-style data set."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hpc_utils.config import RunConfig
from hpc_utils.signals import HEEDED

from . import augment, randomness
from .workload import ArraySource, Batch, Workload


class Loader:
    """Turns a sampler's indices into (inputs, targets) on the device.

    An `ArraySource` makes each batch itself. Any other data set goes through a DataLoader, whose
    `loader_workers` live as long as this object. What a worker draws from the generators of torch, NumPy and
    Python follows from seed, epoch and step: an epoch may begin in its middle, with whichever worker.
    """

    def __init__(self, source: Any, workload: Workload, config: RunConfig, device: torch.device) -> None:
        self.source, self.device, self._seed = source, device, config.seed
        self._indices: list[Any] = []
        self._loader = None
        if not isinstance(source, ArraySource):
            workers = config.loader_workers
            if workers:
                gc.collect()  # the process group of an earlier run here: a worker that collected it would hang
            self._loader = DataLoader(
                _Keyed(source) if workers else source,
                batch_sampler=self._indices,  # the very list: filled anew before each epoch
                num_workers=workers,
                collate_fn=workload.collate,
                worker_init_fn=_prepare,
                pin_memory=device.type == "cuda",
                persistent_workers=workers > 0 and not hasattr(source, "set_epoch"),  # they keep a copy
                generator=torch.Generator().manual_seed(config.seed),  # else it draws from the model's numbers
            )

    def batches(self, indices: Iterable[Tensor], epoch: int, done: int = 0) -> Iterator[Batch]:
        """One batch for each tensor of indices (B,), those of `epoch` from step `done` on."""
        if self._loader is None:
            for chosen in indices:
                yield self.source.batch(chosen, epoch, self.device)
            return
        self._indices[:] = [chosen.tolist() for chosen in indices]
        if self._loader.num_workers:
            key = augment.key(self._seed, epoch)
            self._indices[:] = [(augment.key(key, step), own) for step, own in enumerate(self._indices, done)]
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)
        for inputs, targets in self._loader:
            yield to_device(inputs, self.device), to_device(targets, self.device)


class _Keyed:
    """A map-style data set that fetches (key, indices), its random numbers begun anew by key and first index."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitems__(self, batch: tuple[int, list[int]]) -> list[Any]:
        key, indices = batch
        randomness.seed(augment.key(key, indices[0]))
        together = getattr(self._source, "__getitems__", None)
        return together(indices) if together else [self._source[index] for index in indices]


def _prepare(worker: int) -> None:
    """A worker leaves alone what it has inherited, and obeys SIGTERM only of its rank.

    A scheduler tells all of a job's processes to stop: the rank does so after its step, which needs its workers.
    """

    def listen() -> None:
        while True:
            told = signal.sigwaitinfo(HEEDED)
            if told.si_signo == signal.SIGTERM and told.si_pid == os.getppid():
                os._exit(0)

    gc.freeze()
    if hasattr(signal, "sigwaitinfo"):  # not on macOS, where no scheduler is either
        signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
        threading.Thread(target=listen, daemon=True).start()


def to_device(value: Any, device: torch.device) -> Any:
    """Move tensors, also inside tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {name: to_device(item, device) for name, item in value.items()}
    if isinstance(value, list | tuple):
        moved = [to_device(item, device) for item in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    return value
