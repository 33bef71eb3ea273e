"""Compute speed: slow ranks and throttled devices.

A product of two n x n matrices is 2 n^3 operations. fp32 is IEEE single precision (TF32 off); bf16 with torch's own
accumulation. All ranks start together, so that shared power and cooling show.
"""

from __future__ import annotations

from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch.utils.benchmark import Timer

from hpc_utils import provenance

from . import cpu, gpu
from .check import Context, Facts, Observations, Result, failed, judge, locations, not_applicable, passed, unknown
from .process import LOAD, LoadMeter

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

LOADED = 0.3  # s that a GPU computes while its clocks are read
STRAGGLER = 0.8  # of the median


def measure_compute(context: Context) -> Facts:
    """GFLOP/s in fp32 and bf16, the clocks before, during and after, and the load by others meanwhile."""
    from hpc_utils.train.precision import matmul_precision

    ranks = context.enter()
    read = (lambda: gpu.clocks(ranks.device)) if ranks.device.type == "cuda" else cpu.clocks
    seconds = context.share(0.15, 1.5)
    clocks = [read()]
    meter = LoadMeter(ranks)
    bf16 = None
    with matmul_precision("fp32"):
        fp32 = _gflops(ranks, torch.float32, seconds)
        clocks.append(read())  # a GPU still computes
        with suppress(RuntimeError):  # an old GPU may have no bf16
            bf16 = _gflops(ranks, torch.bfloat16, seconds)
    return {
        "device": ranks.device_name,
        "kind": ranks.device.type,
        "on": f"CPU {', '.join(map(str, ranks.cores))}" if ranks.cores else str(ranks.device),
        "gflops": {"fp32": fp32, "bf16": bf16},
        "clocks": [*clocks, read()],
        "load": meter.load(),
    }


def _gflops(ranks: Ranks, dtype: torch.dtype, seconds: float) -> float:
    """Median of `seconds` of products; a GPU is left computing for `LOADED` seconds more."""
    size = 8192 if ranks.device.type == "cuda" else 1024
    if dtype is torch.bfloat16 and ranks.device.type == "cpu" and provenance.emulates_bf16():
        size = 192  # else one product takes seconds
    a, b = (torch.randn(size, size, device=ranks.device).to(dtype) for _ in range(2))
    timer = Timer("a @ b", globals={"a": a, "b": b}, num_threads=ranks.threads)
    ranks.barrier()
    product = timer.blocked_autorange(min_run_time=seconds).median
    if ranks.device.type == "cuda":
        for _ in range(int(LOADED / product) + 1):
            a @ b  # launched, and not waited for
    return 2 * size**3 / product / 1e9


@judge("compute", f"every rank within {STRAGGLER:.0%} of the median")
def judge_compute(observations: Observations) -> Result:
    """All ranks' fp32 rates side by side."""
    rates = [observation["gflops"]["fp32"] for observation in observations]
    middle = median(rates)
    slowest = min(observations, key=lambda observation: observation["gflops"]["fp32"])
    bf16 = [observation["gflops"]["bf16"] for observation in observations if observation["gflops"]["bf16"]]
    fast = f"{_flops(median(bf16))} in bf16" if bf16 else "no bf16"
    measured = f"{observations[0]['device']}: {_flops(middle)} in fp32, {fast}"
    if len(observations) == 1:
        return not_applicable(f"no other rank to compare with; {measured}")
    measured += f" (median of {len(observations)} ranks, slowest {min(rates) / middle:.0%})"
    slow = [observation for observation, rate in zip(observations, rates, strict=True) if rate < STRAGGLER * middle]
    if not slow:
        return passed(measured)
    fix = (
        "every step waits for the slowest: does another process use that device or core (`nvidia-smi`, `top`), is it "
        "hot or throttled (clocks, below)? If it stays so, exclude the node (`--exclude`) and contact support"
    )
    return failed(f"{measured}: {slowest} on {slowest['on']}", fix, locations(slow))


def _flops(gflops: float) -> str:
    return f"{gflops / 1e3:.1f} TFLOP/s" if gflops >= 1e3 else f"{gflops:.1f} GFLOP/s"


@judge("clocks", "clocks are not throttled under load", each=True)
def judge_clocks(facts: Facts) -> Result:
    """One rank's clocks, with the facts of `measure_compute`."""
    before, during, after = facts["clocks"]
    return gpu.judge_clocks(during, after) if facts["kind"] == "cuda" else cpu.judge_clocks(before, after)


@judge("load", f"others use at most {LOAD:.0%} of a rank's cores", each=True)
def judge_load(facts: Facts) -> Result:
    """What other processes used of one rank's cores during `measure_compute`."""
    if facts["load"] is None:
        return not_applicable("ranks without cores of their own")
    measured = f"others (processes or the hypervisor) used {facts['load']:.0%} of a rank's cores"
    if facts["load"] <= LOAD:
        return passed(measured)
    return unknown(measured, "the rates above are too low: end other programs (`top` shows them) and repeat")
