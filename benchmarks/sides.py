"""One training in a fresh process: the plain loop, or our trainer on any number of ranks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import datasets, records

from . import measure


@dataclass(frozen=True)
class Case:
    """The work of both sides: `steps` timed steps of `batch` images per rank, after `warmup` steps."""

    workload: str
    dataset: str
    batch: int
    steps: int
    warmup: int

    @property
    def name(self) -> str:
        return f"{self.workload} on {self.dataset}, batch {self.batch}"


# Enough steps for a stable result; on a CPU a step of ResNet-18 takes up to a second.
ON_CPU = (Case("cnn", "digits", 128, 300, 10), Case("resnet18", "cifar10", 64, 6, 2))
ON_GPU = (Case("cnn", "digits", 128, 1000, 50), Case("resnet18", "cifar10", 512, 97, 10))
SMOKE = (Case("cnn", "digits", 128, 4, 3),)  # CUDA graphs need three warm-up steps


def cases(gpu: bool, options: measure.Options) -> Iterator[Case]:
    """The small case, and with `full` the large one, sized for this device, if the data are available."""
    sized = SMOKE if options.quick else ON_GPU if gpu else ON_CPU
    for case in sized if options.full else sized[:1]:
        try:
            datasets.load(case.dataset, "train")
        except datasets.DataError as error:
            print(f"skipped {case.name}: {error} (`hpc data fetch {case.dataset}`)", file=sys.stderr)
        else:
            yield case


@dataclass(frozen=True)
class Timing:
    """Images/s over all ranks, and percentiles of step times in s."""

    throughput: float
    p50: float
    p95: float
    p99: float


def plain(case: Case, threads: int, **changes: str | int) -> Timing:
    """Run the plain loop with `changes` (see `plain_loop`)."""
    command = measure.python("-m", "benchmarks.plain_loop", *_assigned(**vars(case), threads=threads, **changes))
    answer = json.loads(measure.last_line(command))
    return Timing(answer["images_per_second"], *(answer[f"step_{name}"] for name in ("p50", "p95", "p99")))


def ours(case: Case, threads: int, ranks: int = 1, **parameters: str | int) -> Timing:
    """Run our trainer with `parameters`, by default without a process group; several ranks run under torchrun."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}") if ranks > 1 else ()
    assignments = _assigned(
        workload=case.workload,
        dataset=case.dataset,
        batch_per_device=case.batch,
        epochs=1,
        evaluate_every=0,
        steps_per_epoch=case.steps,
        warmup_steps=case.warmup,
        threads_per_rank=threads,
        **{"parallel": "none"} | parameters,
    )
    with measure.scratch() as results:
        path = measure.last_line(measure.python(*torchrun, "-m", "hpc_utils.train", *assignments), results)
        found = records.load_run(Path(path))
    (epoch,) = found["epochs"].to_dict("records")
    return Timing(found["run"]["throughput"], *(epoch[f"step_{name}"] for name in ("p50", "p95", "p99")))


def _assigned(**values: str | int) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]
