"""Speed of computing and loading: stragglers, throttled devices, and loaders too slow for training.

A product of two n x n matrices is 2 n^3 operations. fp32 is IEEE single precision (TF32 off); bf16 with torch's own
accumulation. All ranks start together, so that shared power and cooling show.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING

from hpc_utils import provenance, records
from hpc_utils.config import RunConfig

from . import cpu, gpu
from .check import Context, Facts, Observations, Result, failed, locations, not_applicable, passed, unknown
from .storage import available

if TYPE_CHECKING:
    import torch

    from hpc_utils.train.ranks import Ranks

LOADED = 0.3  # s that a GPU computes while its clocks are read
STRAGGLER = 0.8  # of the median
EQUAL = f"every rank within {STRAGGLER:.0%} of the median"


def measure_compute(context: Context) -> Facts:
    """GFLOP/s in fp32 and bf16, and the clocks before, during and after."""
    import torch

    from hpc_utils.train.precision import matmul_precision

    ranks = context.enter()
    seconds = context.share(0.15, 1.5)
    before, bf16 = _clocks(ranks.device), None
    with matmul_precision("fp32"):
        fp32, during = _gflops(ranks, torch.float32, seconds)
        with suppress(RuntimeError):  # an old GPU may have no bf16
            bf16, _ = _gflops(ranks, torch.bfloat16, seconds)
    return {
        "device": ranks.device_name,
        "kind": ranks.device.type,
        "on": f"CPU {', '.join(map(str, ranks.cores))}" if ranks.cores else str(ranks.device),
        "gflops": {"fp32": fp32, "bf16": bf16},
        "clocks": {"before": before, "during": during, "after": _clocks(ranks.device)},
    }


def _clocks(device: torch.device) -> Facts | None:
    return gpu.clocks(device) if device.type == "cuda" else cpu.clocks()


def _gflops(ranks: Ranks, dtype: torch.dtype, seconds: float) -> tuple[float, Facts | None]:
    """Median of `seconds` of products, and a GPU's clocks while it computes."""
    import torch
    from torch.utils.benchmark import Timer

    from hpc_utils.train import precision

    size = 8192 if ranks.device.type == "cuda" else 1024
    if dtype is torch.bfloat16 and precision.emulated("bf16", ranks.device):
        size = 192  # else one product takes seconds
    a, b = (torch.randn(size, size, device=ranks.device).to(dtype) for _ in range(2))
    timer = Timer("a @ b", globals={"a": a, "b": b}, num_threads=ranks.threads)
    ranks.barrier()
    product = timer.blocked_autorange(min_run_time=seconds).median
    rate = 2 * size**3 / product / 1e9
    if ranks.device.type != "cuda":
        return rate, None
    for _ in range(int(LOADED / product) + 1):
        a @ b  # launched, and not waited for
    return rate, gpu.clocks(ranks.device)


def judge_compute(seen: Observations) -> Result:
    """All ranks' fp32 rates side by side."""
    rates = [one.facts["gflops"]["fp32"] for one in seen]
    middle = median(rates)
    bf16 = [one.facts["gflops"]["bf16"] for one in seen if one.facts["gflops"]["bf16"]]
    fast = f"{_flops(median(bf16))} in bf16" if bf16 else "no bf16"
    measured = f"{seen[0].facts['device']}: {_flops(middle)} in fp32, {fast}"
    if len(seen) == 1:
        return not_applicable(f"no other rank to compare with; {measured}")
    slow = [one for one, rate in zip(seen, rates, strict=True) if rate < STRAGGLER * middle]
    if not slow:
        return passed(f"{measured} (median of {len(seen)} ranks, slowest {min(rates) / middle:.0%})", EQUAL)
    slowest = seen[rates.index(min(rates))]
    return failed(
        f"{slowest} ({slowest.facts['on']}, {slowest.facts['device']}) computes {_flops(min(rates))} in fp32, the median is "
        f"{_flops(middle)}",
        EQUAL,
        "every step waits for the slowest: does another process use that device or core (`nvidia-smi`, `top`), is it "
        "hot or throttled (clocks, below)? If it stays so, exclude the node (`--exclude`) and contact support",
        locations(slow),
    )


def _flops(gflops: float) -> str:
    return f"{gflops / 1e3:.1f} TFLOP/s" if gflops >= 1e3 else f"{gflops:.1f} GFLOP/s"


def judge_clocks(facts: Facts) -> Result:
    """One rank's clocks, with the facts of `measure_compute`."""
    clocks = facts["clocks"]
    if facts["kind"] == "cuda":
        return gpu.judge_clocks(clocks["during"], clocks["after"])
    return cpu.judge_clocks(clocks["before"], clocks["after"])


BATCH = 128
SHARE = 0.5  # of a step
QUICK = f"loading a batch takes less than {SHARE:.0%} of a training step"


def load_batches(dataset: str, batch: int, ranks: Ranks) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of the trainer's own loader, each rank its part."""
    from hpc_utils.train.loader import Loader
    from hpc_utils.train.resolve import resolve
    from hpc_utils.train.sampler import Sampler

    config = RunConfig(workload="cnn", dataset=dataset, batch_per_device=batch)
    workload = resolve(config)
    whole = batch * ranks.world_size
    sampler = Sampler(len(workload.train), whole, rank=ranks.rank, world_size=ranks.world_size, steps=10_000)
    return Loader(workload.train, workload, config, ranks.device).batches(sampler.epoch(1), 1)


def measure_loader(context: Context) -> Facts:
    """Images per second on this rank, all ranks at once, of the first available data set."""
    ranks = context.enter()
    name = next(filter(available, ("cifar10", "digits")), None)
    if name is None:
        return {"dataset": None}
    batches = load_batches(name, BATCH, ranks)
    ranks.barrier()
    began, images, limit = time.perf_counter(), 0, context.share(0.15, 1.5)
    for inputs, _ in batches:
        images += len(inputs)
        if time.perf_counter() - began > limit:
            break
    ranks.synchronize()
    rate = images / (time.perf_counter() - began)
    return {"dataset": name, "rate": rate, "needed": trained(name) if ranks.is_main else None}


def trained(dataset: str) -> float | None:
    """The highest images per second of a rank in the runs on this hardware; None without such a run."""
    runs = records.load().runs
    alike = runs[(runs.dataset == dataset) & (runs.hardware_id == provenance.hardware_id())] if len(runs) else runs
    return None if alike.empty else float((alike.throughput / alike.world_size).max())


def judge_loader(seen: Observations) -> Result:
    """The slowest rank's loader against the fastest training."""
    slowest = min(seen, key=lambda one: one.facts["rate"] if one.facts["dataset"] else 0)
    facts, needed = slowest.facts, seen[0].facts.get("needed")
    if facts["dataset"] is None:
        return not_applicable("no data set here")
    measured = f"{facts['dataset']}: {facts['rate']:,.0f} images/s per rank"
    if needed is None:
        return unknown(
            f"{measured}; no run on this hardware to compare with", QUICK, "run a study first, then check again"
        )
    part = needed / facts["rate"]
    measured += f", training takes {needed:,.0f}: {part:.0%} of a step"
    if part > SHARE:
        fix = (
            "copy the data to a disk of the node (`storage.node_local`), or give ranks more cores (threads_per_rank)"
        )
        return failed(measured, QUICK, fix, locations([slowest]))
    return passed(measured, QUICK)
