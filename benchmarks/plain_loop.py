"""The standard tutorial loop, as the reference for our trainer. It uses nothing of `hpc_utils.train.loop`.

    python -m benchmarks.plain_loop workload=cnn dataset=digits batch=128 steps=100 warmup=5 threads=2
    python -m benchmarks.plain_loop ... precision=bf16 channels_last=1 fused=1 keep_freed=1 data=device compile=default

PIL images through a shuffling DataLoader, SGD with Nesterov momentum, cross-entropy, in true fp32; and each
optimisation as one would add it by hand: `precision` (`fp32`; `default`: as torch ships it, with convolutions in TF32;
`tf32`; `bf16`), `channels_last`, `fused`, `keep_freed` (freed memory, for the next step: `hpc_utils.train.memory`), `compile`,
`data` (see `batches`), `workers` and `pinned`. Model and data set are the same as ours; so are batch, number of steps,
threads and cores. It avoids common costs of such loops: `loss.item()` at each step, new workers in each
epoch, counting correct predictions. Prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from typing import Any

from hpc_utils import datasets, provenance


def main(
    workload: str,
    dataset: str,
    batch: int,
    steps: int,
    warmup: int,
    threads: int,
    *,
    data: str = "pil",
    workers: int = 0,
    pinned: int = 0,
    precision: str = "fp32",
    channels_last: int = 0,
    fused: int = 0,
    keep_freed: int = 0,
    compile: str = "off",
) -> dict[str, Any]:
    """Train an epoch of `warmup` steps, then time one of `steps`.

    {"images_per_second", "step_p50", "step_p95", "step_p99"}: the steps' percentiles in seconds by the device's clock.
    """
    pin(threads)
    import numpy as np
    import torch
    from torch import nn

    from hpc_utils.train import memory
    from hpc_utils.train.vision import MODELS

    from .batches import batches

    if keep_freed:
        memory.keep_freed()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if precision != "default":  # which computes convolutions in TF32, and calls it fp32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    half = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    epoch = batches(
        data, dataset, batch, device, workers=workers, pinned=bool(pinned), channels_last=bool(channels_last)
    )
    about = datasets.load(dataset, "train")
    model = MODELS[workload](about.images.shape[3], len(about.classes), "cifar", about.images.shape[1])
    model = model.to(device, memory_format=layout)
    if compile != "off":
        model = torch.compile(model, mode=compile)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=bool(fused)
    )

    def now() -> Any:
        if device.type == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def train_epoch(steps: int) -> list[Any]:
        model.train()
        running = torch.zeros((), device=device)
        marks = [now()]
        for inputs, targets in epoch(steps):
            inputs = inputs.to(device, non_blocking=True).contiguous(memory_format=layout)
            targets = targets.to(device, non_blocking=True)
            optimizer.zero_grad()
            with half:
                loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            running += loss.detach()
            marks.append(now())
        running.item()  # on the host, so the device is done
        return marks

    train_epoch(warmup)
    begun = time.perf_counter()
    marks = train_epoch(steps)
    seconds = time.perf_counter() - begun
    between = (lambda a, b: b - a) if device.type == "cpu" else (lambda a, b: a.elapsed_time(b) / 1e3)
    times = [between(*pair) for pair in itertools.pairwise(marks)]
    p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
    return {"images_per_second": batch * steps / seconds, "step_p50": p50, "step_p95": p95, "step_p99": p99}


def pin(threads: int) -> None:
    """Keep this process, and the workers that it starts, on the cores that ours would be pinned to."""
    if hasattr(os, "sched_setaffinity"):
        cores = provenance.core_groups()[:threads]
        os.sched_setaffinity(0, [cpu for core in cores for cpu in core])


def given(arguments: list[str]) -> dict[str, Any]:
    """`name=value` as keywords, whole numbers as such."""
    pairs = dict(argument.split("=", 1) for argument in arguments)
    return {name: int(value) if value.isdigit() else value for name, value in pairs.items()}


if __name__ == "__main__":
    print(json.dumps(main(**given(sys.argv[1:]))))
