"""Images/s of JPEG files decoded in each epoch, beside images that were decoded once into memory maps.

TinyImageNet with the workshop's transforms (RandomResizedCrop(224), flip, ImageNet's normalisation), batch 64, without a model. The
files are read as by the workshop: torchvision's ImageFolder and a DataLoader, with no worker or several. Ours are decoded
at fetch; the transforms are the same. Rounds in alternation, each side in a fresh process.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hpc_utils import datasets
from hpc_utils.datasets import archive
from hpc_utils.datasets.fetch import MIRROR, in_mirror

from . import measure
from .plain_loop import given, pin

BATCH = 64
SIZE = 224


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Files and memory maps, each with no worker and with as many as there are cores."""
    sources = in_mirror("tiny-imagenet", Path(os.environ.get(MIRROR, ".")))
    try:
        datasets.load("tiny-imagenet", "train")
        if not sources:
            raise datasets.DataError(f"{MIRROR} names no folder with TinyImageNet's official files")
    except datasets.DataError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return
    workers = options.threads
    with archive.opened(sources[0], "wnids.txt") as folder:
        sides = {
            "JPEG files": {"kind": "files"},
            f"JPEG files, {workers} workers": {"kind": "files", "workers": workers},
            "decoded once, loader=host": {"kind": "host"},
            f"decoded once, loader=workers, {workers} workers": {"kind": "workers", "workers": workers},
        }
        common = {"folder": str(folder / "train"), "threads": options.threads, "steps": 2 if options.quick else 10}
        variants = {name: functools.partial(_rate, **common, **side) for name, side in sides.items()}
        yield from measure.compare(
            f"tiny-imagenet, {SIZE} pixels", "throughput", "images/s", variants, options
        ).values()


def _rate(**side: str | int) -> float:
    arguments = [f"{name}={value}" for name, value in side.items()]
    return float(measure.last_line(measure.python("-m", "benchmarks.jpeg", *arguments)))


def main(kind: str, folder: str, threads: int, steps: int, workers: int = 0) -> float:
    """Images/s of `steps` batches, after one that is not timed."""
    pin(threads)
    import torch

    torch.set_num_threads(threads)
    batches = _files(folder, steps, workers) if kind == "files" else _ours(kind, steps, workers)
    total = next(batches)[0].sum()
    begun = time.perf_counter()
    for images, _ in batches:
        total += images.sum()
    return BATCH * steps / (time.perf_counter() - begun)


def _files(folder: str, steps: int, workers: int) -> Iterator:
    from hpc_utils.train import augment
    from hpc_utils.train.vision import torchvision_models

    torchvision_models()
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    mean, std = augment.IMAGENET
    crop = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
    data = ImageFolder(folder, transforms.Compose([*crop, transforms.ToTensor(), transforms.Normalize(mean, std)]))
    sampler = RandomSampler(data, replacement=True, num_samples=BATCH * (steps + 1))
    return iter(DataLoader(data, BATCH, sampler=sampler, num_workers=workers))


def _ours(kind: str, steps: int, workers: int) -> Iterator:
    import torch

    from hpc_utils.config import RunConfig
    from hpc_utils.train.loader import Loader
    from hpc_utils.train.resolve import resolve
    from hpc_utils.train.sampler import Sampler

    config = RunConfig(
        dataset="tiny-imagenet", image_size=SIZE, global_batch=BATCH, loader=kind, loader_workers=workers
    )
    workload = resolve(config)
    loader = Loader(workload.train, workload, config, torch.device("cpu"))
    return iter(loader.batches(Sampler(len(workload.train), BATCH, steps=steps + 1).epoch(1), 1))


if __name__ == "__main__":
    print(json.dumps(main(**given(sys.argv[1:]))))
