"""Throughput of the textbook's loaders and ours, without a model.

The digits and CIFAR-10, batch 128 (on a GPU 512), augmented and normalised as `batches` says, at least two seconds after a
pass that is not timed; each batch is moved to the device and summed there. DataLoaders have no worker, or as many as
there are cores (at most 8). All sides keep freed memory for the next batch, as our trainer does. 5 rounds in alternation,
each side in a fresh process.

Attained on two cores of an AMD EPYC (AVX-512, no AMX), 3 rounds, 2026-11-22, times a DataLoader of PIL images without workers:
ours from the device's memory 86 (78 .. 91) with the digits and 28 (26 .. 42) with CIFAR-10 (153,000 images/s), gathered on the
host 45 and 18, sample by sample with two workers 1.6 and 1.2, as the textbook's own with two workers. Not yet
run on a GPU.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Iterator

from hpc_utils import datasets

from . import measure
from .plain_loop import given, pin

STEPS = {"digits": 100, "cifar10": 40}  # of a pass: on a CPU about a second of the slowest


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Both data sets, if available."""
    import torch

    workers = min(8, options.threads)
    batch = 512 if torch.cuda.is_available() else 128
    plural = f"{workers} worker" if workers == 1 else f"{workers} workers"
    sides = {
        "DataLoader, PIL": {"kind": "pil"},
        f"DataLoader, PIL, {plural}": {"kind": "pil", "workers": workers},
        "DataLoader, transforms v2": {"kind": "v2"},
        f"DataLoader, transforms v2, {plural}": {"kind": "v2", "workers": workers},
        "DataLoader, transforms v2 on whole batches": {"kind": "v2-batch"},
        "by hand, batches on the device": {"kind": "device"},
        "ours, loader=host": {"kind": "ours-host"},
        "ours, loader=device": {"kind": "ours-device"},
        f"ours, loader=workers, {plural}": {"kind": "ours-workers", "workers": workers},
    }
    if options.quick:
        sides = {name: sides[name] for name in ("DataLoader, PIL", "ours, loader=host")}
    for dataset, steps in STEPS.items():
        if not options.full and dataset != "digits":
            continue
        try:
            datasets.load(dataset, "train")
        except datasets.DataError as error:
            print(f"skipped {dataset}: {error} (`hpc data fetch {dataset}`)", file=sys.stderr)
            continue
        work = {"steps": 4} if options.quick else {"steps": steps, "seconds": 2}
        about = {"dataset": dataset, "batch": batch, **work}
        variants = {
            name: functools.partial(_rate, threads=options.threads, **about, **side) for name, side in sides.items()
        }
        rows = measure.compare(f"{dataset}, batch {batch}", "throughput", "images/s", variants, options)
        notes = {"DataLoader, transforms v2 on whole batches": "one crop and flip a batch, not an image"}
        yield from (row.noted(notes.get(name, "")) for name, row in rows.items())


def _rate(**side: str | int) -> float:
    arguments = [f"{name}={value}" for name, value in side.items()]
    return float(measure.last_line(measure.python("-m", "benchmarks.loaders", *arguments)))


def main(kind: str, dataset: str, batch: int, steps: int, threads: int, workers: int = 0, seconds: int = 0) -> float:
    """Images/s of passes of `steps` batches, as many as take `seconds`, after one that is not timed."""
    pin(threads)
    import torch

    from hpc_utils.train import memory

    from .batches import batches

    memory.keep_freed()
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pinned = device.type == "cuda" and workers > 0
    epoch = batches(kind, dataset, batch, device, workers=workers, pinned=pinned)

    def consume() -> float:
        total = torch.zeros((), device=device)
        for inputs, targets in epoch(steps):
            inputs, targets = (tensor.to(device, non_blocking=True) for tensor in (inputs, targets))
            total += inputs.sum() + targets.sum()
        return total.item()  # on the host, so the device is done

    consume()
    begun, passes = time.perf_counter(), 0
    while not passes or time.perf_counter() - begun < seconds:
        consume()
        passes += 1
    return batch * steps * passes / (time.perf_counter() - begun)


if __name__ == "__main__":
    print(json.dumps(main(**given(sys.argv[1:]))))
