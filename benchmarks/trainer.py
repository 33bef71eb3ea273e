"""Our trainer beside the plain PyTorch loop: images a second of an epoch's training part.

The small CNN on the digits (batch 128, 300 steps) and ResNet-18 on CIFAR-10 (batch 64, 8 steps), fp32, all cores as
one device, after warm-up steps; 5 rounds in alternation, each side in a fresh process. bf16 is reported only.

Attained on a quiet virtual machine with 2 cores of an AMD EPYC (no AMX, avx512_bf16), torch 2.13.0, 2026-11-21: ours in
fp32 is 2.6 (1.1 .. 3.7) times the plain loop with the CNN and 1.16 (1.07 .. 1.20) times with ResNet-18 (114 against 96
images/s); in bf16 3.7 and 2.0 times. Two threads wait for each other when a neighbour takes a core: on a shared
machine measure with `--threads 1`. The GPU's cases have not been run yet.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import datasets, provenance, records
from hpc_utils.launch.place import Place

from . import measure

PLAIN, OURS = "plain loop, 0 workers", "ours, fp32"


@dataclass(frozen=True)
class Case:
    """What both sides train: `steps` timed steps of `batch` images after `warmup` others."""

    workload: str
    dataset: str
    batch: int
    steps: int
    warmup: int

    @property
    def name(self) -> str:
        return f"{self.workload} on {self.dataset}, batch {self.batch}"


# Enough steps for a steady number: on a CPU ResNet-18 takes about half a second for each of its.
ON_CPU = (Case("cnn", "digits", 128, 300, 10), Case("resnet18", "cifar10", 64, 8, 2))
ON_GPU = (Case("cnn", "digits", 128, 1000, 50), Case("resnet18", "cifar10", 512, 97, 10))
SMOKE = (Case("cnn", "digits", 128, 20, 2),)


def run(options: measure.Options) -> Iterator[measure.Row]:
    """All cases on this machine's device, a GPU if there is one."""
    import torch

    gpu = torch.cuda.is_available()
    cases = SMOKE if options.quick else ON_GPU if gpu else ON_CPU
    # On a CPU one worker shares the cores with the computation; a GPU leaves them to the loader.
    workers = min(8, max(1, options.threads - 1)) if gpu else 1
    for case in cases:
        try:
            datasets.load(case.dataset, "train")
        except datasets.DataError as error:
            print(f"skipped {case.name}: {error} (`hpc data fetch {case.dataset}`)", file=sys.stderr)
            continue
        yield from _case(case, workers, options)


def _case(case: Case, workers: int, options: measure.Options) -> list[measure.Row]:
    plural = "worker" if workers == 1 else "workers"
    loaded = f"plain loop, {workers} {plural}"
    threads = options.threads
    sides = {
        PLAIN: lambda: _plain(case, threads, 0),
        loaded: lambda: _plain(case, threads, workers),
        OURS: lambda: _ours(case, threads, "fp32"),
    }
    if why := Place.here().refusal(1, "bf16", "auto"):
        print(f"left out: {why}", file=sys.stderr)
    else:
        sides["ours, bf16"] = lambda: _ours(case, threads, "bf16")
    values = measure.alternate(case.name, sides, options)
    rows = measure.summarise(case.name, "throughput", "images/s", values, {"ours, bf16": _bf16()})
    ratios = {name: measure.pairwise(values[OURS], values[name]) for name in (PLAIN, loaded)}
    said = ", ".join(f"{measure.middle(r):.3g} ({min(r):.3g} .. {max(r):.3g}) x {n}" for n, r in ratios.items())
    kept = min(map(measure.middle, ratios.values())) >= 1
    rows[OURS] = rows[OURS].promised(f"by the median at least as fast as the plain loop ({said})", kept)
    return list(rows.values())


def _plain(case: Case, threads: int, workers: int) -> float:
    answer = measure.last_line(
        measure.python(
            "-m",
            "benchmarks.plain_loop",
            f"workload={case.workload}",
            f"dataset={case.dataset}",
            f"batch={case.batch}",
            f"steps={case.steps}",
            f"warmup={case.warmup}",
            f"threads={threads}",
            f"workers={workers}",
        )
    )
    return json.loads(answer)["images_per_second"]


def _ours(case: Case, threads: int, precision: str) -> float:
    with measure.scratch() as results:
        path = measure.last_line(
            measure.python(
                "-m",
                "hpc_utils.train",
                "parallel=none",
                "epochs=1",
                "evaluate_every=0",
                f"workload={case.workload}",
                f"dataset={case.dataset}",
                f"global_batch={case.batch}",
                f"steps_per_epoch={case.steps}",
                f"warmup_steps={case.warmup}",
                f"threads_per_rank={threads}",
                f"precision={precision}",
            ),
            results,
        )
        return records.load_run(Path(path))["run"]["throughput"]


def _bf16() -> str:
    """What bf16 runs on: without the CPU's tile unit (AMX) it need not be faster than fp32."""
    found = provenance.hardware()
    if found["gpus"]:
        return ", ".join(sorted({gpu["name"] for gpu in found["gpus"]}))
    flags = found["cpu"].get("flags") or ()
    return ", ".join(f"{flag}: {'yes' if flag in flags else 'no'}" for flag in ("amx_bf16", "avx512_bf16"))
