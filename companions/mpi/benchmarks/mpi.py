"""The loader of our own framework (companions.mpi) beside PyTorch's; `mpi_step` measures a training step.

MNIST shifted and normalised, CIFAR-10 mirrored too, in batches of 128 that nobody reads; ours on 1 to all cores of OpenMP,
torch's DataLoader of PIL images with 0, 1 and 2 worker processes, all on the same cores. `memory copy` is a parallel copy of
arrays larger than the caches, in images of as many bytes as the loader reads and writes (5 for each value): its ratio is the bandwidth.

Attained on two cores of an AMD EPYC (AVX2), 3 rounds, 2026-11-26: MNIST on two threads 1,131,000 images/s, 265 (209 .. 311) times a
DataLoader with two workers and 28 % of the memory's bandwidth, on one thread 145 (128 .. 163) times; CIFAR-10 371,000 images/s, 94 (85 ..
96) times and 33 %.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks import measure
from benchmarks.plain_loop import given, pin
from hpc_utils import datasets
from hpc_utils.plural import counted

BATCH = 128
PADDING = {"mnist": 3, "cifar10": 4}  # an eighth of the edge, as `batches` shifts
WORKERS = {"2 workers": 2, "1 worker": 1, "no workers": 0}
TIMES = 100  # the promise for MNIST: as many times as many samples as a DataLoader with two workers


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Loaders of the data sets that are available."""
    for dataset in PADDING:
        try:
            datasets.load(dataset, "train")
        except datasets.DataError as error:
            print(f"skipped {dataset}: {error} (`hpc data fetch {dataset}`)", file=sys.stderr)
        else:
            yield from _loaders(dataset, options)


def _loaders(dataset: str, options: measure.Options) -> Iterator[measure.Row]:
    start = functools.partial(_measured, cores=options.threads, dataset=dataset, seconds=0 if options.quick else 2)
    torchs = {f"DataLoader, {text}": ("torch", count) for text, count in WORKERS.items()}
    ours = {f"ours, {counted(count, 'thread')}": ("ours", count) for count in range(1, options.threads + 1)}
    sides = torchs | ours | {"memory copy": ("copy", options.threads)}
    variants = {name: functools.partial(start, kind, count=count) for name, (kind, count) in sides.items()}
    case = f"{dataset}, batch {BATCH}"
    values = measure.alternate(case, variants, options)
    rows = measure.summarise(case, "throughput", "images/s", values)
    for name in ours:
        share = statistics.median(measure.pairwise(values[name], values["memory copy"]))
        rows[name] = rows[name].noted(f"{share:.0%} of the memory's bandwidth")
    if dataset == "mnist":
        best = max(ours, key=lambda name: rows[name].median)
        rows[best] = rows[best].promised(f"at least {TIMES} times", rows[best].ratio >= TIMES)
    yield from rows.values()


def _measured(kind: str, **side: str | int) -> float:
    arguments = [f"{name}={value}" for name, value in {"kind": kind, **side}.items()]
    return float(measure.last_line(measure.python("-m", "companions.mpi.benchmarks.mpi", *arguments)))


def main(kind: str, cores: int, dataset: str, count: int, seconds: int) -> float:
    """Images/s of a loader."""
    pin(cores)
    once = {"ours": our_batches, "torch": torchs_batches, "copy": copied}[kind](dataset, count)
    once()
    begun, images = time.perf_counter(), 0
    while not images or time.perf_counter() - begun < seconds:
        images += once()
    return images / (time.perf_counter() - begun)


def our_batches(dataset: str, threads: int) -> Callable[[], int]:
    """A pass over all images, by as many threads of OpenMP."""
    from companions.mpi.loader import Batches

    split = datasets.load(dataset, "train")
    batches = Batches(
        split.images, split.labels, batch=BATCH, threads=threads, mean=split.mean, std=split.std,
        shift=PADDING.get(dataset, 1), flip=dataset == "cifar10",
    )  # fmt: skip
    return lambda: sum(len(labels) for _, labels in batches.epoch(1))


def torchs_batches(dataset: str, workers: int) -> Callable[[], int]:
    """A few batches of a DataLoader."""
    import torch

    from benchmarks.batches import batches

    epoch = batches("pil", dataset, BATCH, torch.device("cpu"), workers=workers)
    return lambda: sum(len(labels) for _, labels in epoch(40))


def copied(dataset: str, threads: int) -> Callable[[], int]:
    """A copy of 256 MiB, as images of as many bytes, by as many threads."""
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def copy(source, target):
        for i in numba.prange(len(source)):
            target[i] = source[i]

    numba.set_num_threads(threads)
    source, target = np.ones(2**25), np.ones(2**25)

    def once() -> int:
        copy(source, target)
        return 2 * source.nbytes // (5 * datasets.load(dataset, "train").images[0].size)

    return once


if __name__ == "__main__":
    print(json.dumps(main(**given(sys.argv[1:]))))
