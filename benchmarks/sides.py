"""One training in a fresh process: the plain loop's, or ours on any number of ranks."""

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
    """What both sides train: `steps` timed steps of `batch` images a rank, after `warmup` others."""

    workload: str
    dataset: str
    batch: int
    steps: int
    warmup: int

    @property
    def name(self) -> str:
        return f"{self.workload} on {self.dataset}, batch {self.batch}"


# Enough steps for a steady number: on a CPU ResNet-18 takes up to a second for each of its.
ON_CPU = (Case("cnn", "digits", 128, 300, 10), Case("resnet18", "cifar10", 64, 6, 2))
ON_GPU = (Case("cnn", "digits", 128, 1000, 50), Case("resnet18", "cifar10", 512, 97, 10))
SMOKE = (Case("cnn", "digits", 128, 4, 3),)  # with fewer to warm up, CUDA graphs would not be there yet


def cases(gpu: bool, options: measure.Options) -> Iterator[Case]:
    """A small one, and with `full` a real one, of a size for this device, as far as their data are here."""
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
    """What one training took: images/s over all ranks, percentiles of its steps in s."""

    throughput: float
    p50: float
    p95: float
    p99: float


def plain(case: Case, threads: int, **changes: str | int) -> Timing:
    """The plain loop with the `changes` that `plain_loop` describes."""
    command = measure.python("-m", "benchmarks.plain_loop", *_assigned(**vars(case), threads=threads, **changes))
    answer = json.loads(measure.last_line(command))
    return Timing(answer["images_per_second"], *(answer[f"step_{name}"] for name in ("p50", "p95", "p99")))


def ours(case: Case, threads: int, ranks: int = 1, **knobs: str | int) -> Timing:
    """Our trainer with these `knobs`, by default without a process group; several ranks under torchrun."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}") if ranks > 1 else ()
    asked = _assigned(
        workload=case.workload,
        dataset=case.dataset,
        batch_per_device=case.batch,
        epochs=1,
        evaluate_every=0,
        steps_per_epoch=case.steps,
        warmup_steps=case.warmup,
        threads_per_rank=threads,
        **{"parallel": "none"} | knobs,
    )
    with measure.scratch() as results:
        path = measure.last_line(measure.python(*torchrun, "-m", "hpc_utils.train", *asked), results)
        found = records.load_run(Path(path))
    (epoch,) = found["epochs"].to_dict("records")
    return Timing(found["run"]["throughput"], *(epoch[f"step_{name}"] for name in ("p50", "p95", "p99")))


def _assigned(**values: str | int) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]
