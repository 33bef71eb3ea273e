"""Our framework and PyTorch beside ShallowSpeed, a public framework over MPI in NumPy, on its own multi-layer perceptron.

    git clone https://github.com/siboehm/ShallowSpeed      # measured at d638359; it stays outside of the project
    SHALLOWSPEED=ShallowSpeed python -m benchmarks shallowspeed

Its training to the letter: MNIST, layers of 784, 128, 127, ... 123, 10, squared error of a softmax, batch 128 in its order, SGD 0.006, a rank
a core. Its script splits a rank's batch into four micro-batches, which only a pipeline needs; without them it is faster, so that both
are measured. All start from its weights, and must end with the same loss.

Attained on two cores of an AMD EPYC (AVX2), 3 rounds, 2026-11-26, over ShallowSpeed with four micro-batches: a step on one rank 0.38
(0.32 .. 0.40) of its time, torch 0.44 (0.44 .. 0.47); on two ranks 0.62 (0.42 .. 0.67), torch's DDP over gloo 1.61 (0.84 .. 1.65).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.plain_loop import given
from companions.mpi.launcher import Mpi
from hpc_utils import datasets, provenance

SIZES = (784, 128, 127, 126, 125, 124, 123, 10)
BATCH, LR = 128, 0.006
VARIANTS = {"ShallowSpeed, 4 micro-batches": 4, "ShallowSpeed, 1 micro-batch": 1, "torch, DDP": 0, "ours": 0}
Step = Callable[[int], None]  # trains on the rank's batch of this number
Parameters = list[np.ndarray]  # weight (inputs, outputs) and bias of each layer in turn
Side = tuple[Step, Callable[[], Parameters]]


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Time of a step on 1 to all cores."""
    if not (source := os.environ.get("SHALLOWSPEED")) or not (Path(source) / "shallowspeed").is_dir():
        raise measure.BenchmarkError("SHALLOWSPEED must name a clone of https://github.com/siboehm/ShallowSpeed")
    for ranks in range(1, options.threads + 1):
        if BATCH % ranks == 0:
            yield from _compared(ranks, options)


def _compared(ranks: int, options: measure.Options) -> Iterator[measure.Row]:
    losses: dict[str, float] = {}

    def measured(name: str, micro: int) -> float:
        with measure.scratch() as folder:
            command = measure.python(
                "-m", "companions.mpi.benchmarks.shallowspeed", f"kind={name.split(',')[0]}", f"micro={micro}"
            )
            command += [f"steps={options.size(20, 400, 2000)}", f"meet={folder / 'meet'}"]
            found = json.loads(measure.last_line([*Mpi().command(ranks), *command]))
        losses[name] = found["loss"]
        return found["step"]

    case = f"MLP, batch {BATCH}, {ranks} rank{'s' * (ranks > 1)}"
    variants = {name: lambda name=name, micro=micro: measured(name, micro) for name, micro in VARIANTS.items()}
    rows = measure.compare(case, "step_time", "s", variants, options)
    if not np.allclose([*losses.values()], losses["ours"], rtol=1e-4):
        raise measure.BenchmarkError(f"{case}: the losses differ, so that not the same was trained: {losses}")
    yield from rows.values()


def main(kind: str, micro: int, steps: int, meet: str) -> dict[str, float] | None:
    """{"step": median time of a step in s, "loss": of the first batches afterwards} on rank 0."""
    from companions.mpi.communication import MPI

    world = MPI.COMM_WORLD
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, provenance.core_groups()[world.rank])
    split = datasets.load("mnist", "train")
    inputs = split.images.reshape(len(split.images), -1)[: BATCH * 400].astype(np.float32) / 255
    inputs -= inputs.mean()
    targets = np.eye(SIZES[-1], dtype=np.float32)[split.labels[: len(inputs)]]
    own = slice(world.rank, None, world.size)
    sides = {"ShallowSpeed": partial(_theirs, micro), "torch": partial(_torchs, meet), "ours": _ours}
    step, parameters = sides[kind](world, inputs[own].copy(), targets[own].copy())
    times = []
    for number in range(steps):
        world.Barrier()
        begun = time.perf_counter()
        step(number * BATCH % len(inputs) // BATCH)
        times.append(time.perf_counter() - begun)
    final = _loss(parameters(), inputs[: 8 * BATCH], targets[: 8 * BATCH])
    world.Barrier()
    return None if world.rank else {"step": statistics.median(times[steps // 10 :]), "loss": final}


def _theirs(micro: int, world: Any, inputs: np.ndarray, targets: np.ndarray) -> Side:
    sys.path.insert(0, os.environ["SHALLOWSPEED"])
    from shallowspeed.dataset import Dataset
    from shallowspeed.layers import MLP
    from shallowspeed.optimizer import SGD
    from shallowspeed.pipe import NaiveParallelSchedule, Worker
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")
    with contextlib.redirect_stdout(sys.stderr):  # it prints its layers
        model = MLP([*SIZES], stage_idx=0, n_stages=1, batch_size=BATCH)
    model.train()
    local_batch = BATCH // world.size
    data = Dataset(Path(), BATCH, local_batch // micro)
    data.local_batch_size, data.input_X, data.target_y = local_batch, inputs, targets
    worker = Worker(world, world.Split(world.rank), model, data, SGD(model.parameters(), lr=LR))

    def step(number: int) -> None:
        worker.execute(NaiveParallelSchedule(micro, num_stages=1, stage_id=0), number)

    return step, lambda: [parameter.data.T.squeeze() for parameter in model.parameters()]


def _ours(world: Any, inputs: np.ndarray, targets: np.ndarray) -> Side:
    from companions.mpi import model
    from companions.mpi.communication import Allreduce

    batch = BATCH // world.size
    shapes = itertools.pairwise(SIZES)
    network = model.Network([model.Dense((a, b), (b,), (a,)) for a, b in shapes], batch=batch)
    network.parameters = np.concatenate([value.ravel() for value in _initial()])
    allreduce = Allreduce(world, network.gradients, bucket_bytes=2**20, overlap=False)
    optimizer = model.SGD(LR)

    def step(number: int) -> None:
        part = slice(number * batch, (number + 1) * batch)
        outputs = _softmax(network.forward(inputs[part]))
        gradient = (outputs - targets[part]) * (2 / BATCH) * outputs
        gradient -= outputs * gradient.sum(axis=1, keepdims=True)
        network.backward(gradient, allreduce.ready)
        allreduce.finish()
        optimizer.step(network)

    return step, lambda: [value for layer in network.layers for value in layer.views(network.parameters)]


def _torchs(meet: str, world: Any, inputs: np.ndarray, targets: np.ndarray) -> Side:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meet}", rank=world.rank, world_size=world.size)
    layers = [layer for a, b in itertools.pairwise(SIZES) for layer in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    for own, value in zip(model.parameters(), _initial(), strict=True):
        own.data[:] = torch.from_numpy(value.T)
    wrapped = nn.parallel.DistributedDataParallel(model) if world.size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), LR)
    x, y, batch = torch.from_numpy(inputs), torch.from_numpy(targets), BATCH // world.size

    def step(number: int) -> None:
        part = slice(number * batch, (number + 1) * batch)
        optimizer.zero_grad()
        loss = (wrapped(x[part]).softmax(1) - y[part]).square().sum() / batch  # DDP divides by the ranks
        loss.backward()
        optimizer.step()

    return step, lambda: [parameter.detach().numpy().T for parameter in model.parameters()]


def _initial() -> Parameters:
    """ShallowSpeed's initial weights, which depend on the sizes alone."""
    values = []
    for a, b in itertools.pairwise(SIZES):
        draw = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(a + b * 1337)))
        weight = draw.normal(0.0, 1.0, (b, a)).astype(np.float32) / np.sqrt(a)
        values += [weight.T.astype(np.float32), np.zeros(b, np.float32)]
    return values


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _loss(parameters: Parameters, inputs: np.ndarray, targets: np.ndarray) -> float:
    *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
    for own, shift in hidden:
        inputs = np.maximum(inputs @ own + shift, 0)
    return float(np.square(_softmax(inputs @ weight + bias) - targets).sum(axis=1).mean())


if __name__ == "__main__":
    found = main(**given(sys.argv[1:]))
    if found:
        print(json.dumps(found))
    from companions.mpi.communication import MPI

    MPI.Finalize()
