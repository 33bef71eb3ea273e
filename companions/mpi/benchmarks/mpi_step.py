"""A training step of our own framework (companions.mpi) beside torch's, alone and under DDP on one rank.

Batch 128 of MNIST's shape: images from the host's memory, forward, loss, backward, SGD with momentum, and the loss back on the host, in
float32 (no TF32). On a GPU if there is one, with NCCL; otherwise on one core, with gloo. All three in one process, in alternating rounds of
consecutive steps. The share of the roofline is the operations of torch's step, per second, over the measured rate of fp32 matrix products; our
convolution on the CPU has fewer (Winograd), and may exceed it.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import ceilings, measure
from benchmarks.plain_loop import given
from hpc_utils.analyze import stats

from .mpi import BATCH

ROUNDS = 9  # at least, for an interval


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Rows of the three; the note has the interval of the median, images/s and the share of the roofline."""
    sizes = f"rounds={2 if options.quick else max(ROUNDS, options.repeats)}", f"steps={options.size(2, 20, 50)}"
    found = json.loads(measure.last_line(measure.python("-m", "companions.mpi.benchmarks.mpi_step", *sizes)))
    case = f"step, batch {BATCH}, {found['device']}"
    rows = measure.summarise(case, "step_time", "s", found["seconds"])
    for name, row in rows.items():
        estimate = stats.median(found["seconds"][name]).times(1e3)
        text = f"{estimate.value:.3g} ms, 95 % {estimate.low:.3g} .. {estimate.high:.3g}; {BATCH / row.median:,.0f} images/s; "
        rows[name] = row.noted(f"{text}{found['flops'] / row.median / found['peak']:.1%} of the fp32 roofline")
    rows["ours"] = rows["ours"].promised("at most torch's time", rows["ours"].ratio <= 1)
    yield from rows.values()


def main(rounds: int, steps: int) -> dict[str, Any]:
    """{"device", "seconds": {variant: mean time of a step in each round}, "flops" of a step, "peak" in FLOP/s}."""
    peak = ceilings.main(threads=1, milliseconds=300)["fp32"]
    import torch
    from torch import distributed
    from torch.utils.flop_counter import FlopCounterMode

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if gpu else "gloo", store=distributed.HashStore(), rank=0, world_size=1)
    kind = "cuda" if gpu else "cpu"
    variants = {"torch": torchs(kind), "DDP, one rank": torchs(kind, ddp=True), "ours": ours(kind)}
    with FlopCounterMode(display=False) as counter:
        variants["torch"]()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for number, name in itertools.product(range(rounds + 1), variants):
        begun = time.perf_counter()
        for _ in range(steps * (10 if gpu else 1)):
            variants[name]()
        if gpu:
            torch.cuda.synchronize()
        if number:  # the first round warms up
            seconds[name].append((time.perf_counter() - begun) / (steps * (10 if gpu else 1)))
    distributed.destroy_process_group()
    device = torch.cuda.get_device_name() if gpu else "cpu"
    return {"device": device, "seconds": seconds, "flops": counter.get_total_flops(), "peak": peak}


def ours(device: str) -> Callable[[], None]:
    """A step of our network."""
    import numpy as np

    backend = importlib.import_module("companions.mpi.cuda" if device == "cuda" else "companions.mpi.model")
    network, optimizer = backend.CNN(batch=BATCH), backend.SGD(0.01, 0.9)
    x, y = np.random.default_rng(0).random((BATCH, 28, 28, 1), np.float32), np.arange(BATCH) % 10

    def step() -> None:
        network.backward(network.loss(x, y))
        optimizer.step(network)
        network.outcome  # noqa: B018

    return step


def torchs(device: str, ddp: bool = False) -> Callable[[], None]:
    """A step of the same network in PyTorch, in DDP if wanted."""
    import torch
    from torch import nn

    from hpc_utils.train.vision import mnist_cnn

    torch.set_num_threads(1)
    network = mnist_cnn(1, 10).to(device, memory_format=torch.channels_last)
    if ddp:
        network = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, 0.9)
    x, y = torch.rand(BATCH, 1, 28, 28), torch.arange(BATCH) % 10

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        loss.item()

    return step


if __name__ == "__main__":
    print(json.dumps(main(**given(sys.argv[1:]))))
