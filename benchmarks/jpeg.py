"""Images/s of JPEG files decoded in each epoch, beside images that were decoded once into memory maps.

TinyImageNet with the workshop's transforms (RandomResizedCrop(224), flip, ImageNet's normalisation), batch 64, without a model. The
files are read as by the workshop: torchvision's ImageFolder and a DataLoader, with no worker or several. Ours are decoded
at fetch; the transforms are the same. Rounds in alternation, each side in a fresh process.

Attained on two cores of an AMD EPYC (AVX-512), 3 rounds, 2026-11-25, times JPEG files without a worker (903 images/s): files with two
workers 1.11 (1.03 .. 1.14), decoded once and gathered on the host 2.24 (2.17 .. 2.32), with two workers 1.5 (1.43 .. 1.65).
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils import datasets
from hpc_utils.datasets import archive
from hpc_utils.datasets.fetch import MIRROR, in_mirror

from . import measure
from .plain_loop import given, pin

if TYPE_CHECKING:
    from torch.utils.data import Dataset

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

    from hpc_utils.train import memory

    from .batches import Ours, Textbook

    memory.keep_freed()
    torch.set_num_threads(threads)
    if kind == "files":
        epoch = Textbook(_files(folder), BATCH, workers, pinned=False, whole=False).epoch
    else:
        cpu = torch.device("cpu")
        epoch = Ours(kind, "tiny-imagenet", BATCH, cpu, workers, channels_last=True, image_size=SIZE).epoch

    def consume(steps: int) -> float:
        return sum(images.sum().item() for images, _ in epoch(steps))

    consume(1)
    begun = time.perf_counter()
    consume(steps)
    return BATCH * steps / (time.perf_counter() - begun)


def _files(folder: str) -> Dataset:
    """torchvision's ImageFolder with the workshop's transforms."""
    from hpc_utils.train import augment

    from .batches import torchvision

    vision = torchvision()
    transforms = vision.transforms
    crop = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    return vision.datasets.ImageFolder(folder, transforms.Compose([*crop, transforms.Normalize(*augment.IMAGENET)]))


if __name__ == "__main__":
    print(json.dumps(main(**given(sys.argv[1:]))))
