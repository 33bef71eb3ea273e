"""The cost of the monitor: steps of training on all cores while its process samples, and while it is stopped, second by second.

It samples every 50 ms, ten times as often as in the scaling studies, which makes its cost ten times as large: at their rate, a
tenth of the difference remains.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

from hpc_utils.provenance import monitor

from . import measure

SECONDS = 0.05  # between samples; the scaling studies take one every 0.5 s
BLOCK = 1.0  # s of steps on each side of a pair
STOPPED, SAMPLING = "the monitor is stopped", "a sample every 50 ms"


def run(options: measure.Options) -> Iterator[measure.Row]:
    """The time of a step with the monitor, over that without it."""
    step = _training_step(options.threads)
    times: dict[str, list[float]] = {STOPPED: [], SAMPLING: []}
    with measure.scratch() as folder:
        process = monitor.start(folder / "monitor.csv", SECONDS, ranks={"rank0": os.getpid()})
        try:
            _block(step, 3 * BLOCK)  # in which the process starts
            for _ in range(options.size(1, 30, 100)):
                for side, number in ((STOPPED, signal.SIGSTOP), (SAMPLING, signal.SIGCONT)):
                    process.send_signal(number)
                    times[side].append(1e3 * _block(step, BLOCK))
        finally:
            process.send_signal(signal.SIGCONT)
            fault = monitor.stop(process)
    if fault:
        raise measure.BenchmarkError(fault)
    yield from measure.summarise(f"a small network, {options.threads} threads", "step", "ms", times).values()


def _block(step: Callable[[], None], seconds: float) -> float:
    """The mean time of the steps that begin within so many seconds, in s."""
    steps = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        step()
        steps += 1
    return (time.perf_counter() - begun) / steps


def _training_step(threads: int) -> Callable[[], None]:
    import torch

    torch.set_num_threads(threads)
    images, labels = torch.rand(128, 1, 28, 28), torch.randint(10, (128,))
    convolution = torch.nn.Conv2d(1, 16, 3)
    model = torch.nn.Sequential(convolution, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 26**2, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step
