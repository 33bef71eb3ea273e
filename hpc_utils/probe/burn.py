"""Matrix products on every rank at once: what each device computes, and whether one is slower than its peers.

A product of two n x n matrices is 2 n^3 operations. fp32 is IEEE single precision (TF32 off); bf16 with torch's own
accumulation. All ranks start together, so that shared power and cooling show.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from . import clocks
from .bench import Bench
from .check import Check, Facts, Seen, failed, not_applicable, passed, places
from .group import enter

if TYPE_CHECKING:
    import torch

WINDOWS = 5
STRAGGLER = 0.8  # of the median
EXPECTED = f"every rank within {STRAGGLER:.0%} of the median"


def look(bench: Bench) -> Facts:
    """GFLOP/s in fp32 and bf16, and the clocks before, during and after."""
    import torch

    from hpc_utils.train.precision import matmul_precision

    enter(bench)
    ranks = bench.ranks
    window = bench.share(0.03, 0.3)
    before = clocks.sample(ranks.device)
    during: list[Facts] = []
    sampler = threading.Thread(target=lambda: during.append(clocks.sample(ranks.device)), daemon=True)
    rates = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        rates[name] = None
        with (
            matmul_precision("fp32"),
            suppress(RuntimeError if name == "bf16" else ()),
        ):  # an old GPU may have no bf16
            rates[name] = _rate(bench, dtype, window, sampler if name == "fp32" else None)
    sampler.join(bench.share(0.2, 3.0))
    return {
        "ranks": bench.world,
        "device": ranks.device_name,
        "kind": ranks.device.type,
        "on": f"CPU {', '.join(map(str, ranks.cores))}" if ranks.cores else str(ranks.device),
        "gflops": rates,
        "clocks": {"before": before, "during": (during or [None])[0], "after": clocks.sample(ranks.device)},
    }


def judge(seen: Sequence[Seen]) -> Check:
    """All ranks' fp32 rates side by side."""
    rates = [one.facts["gflops"]["fp32"] for one in seen]
    middle = statistics.median(rates)
    bf16 = [one.facts["gflops"]["bf16"] for one in seen if one.facts["gflops"]["bf16"]]
    fast = f"{_flops(statistics.median(bf16))} in bf16" if bf16 else "no bf16"
    said = f"{seen[0].facts['device']}: {_flops(middle)} in fp32, {fast}"
    if len(seen) == 1:
        return not_applicable(f"no other rank to compare with; {said}")
    slow = [one for one in seen if one.facts["gflops"]["fp32"] < STRAGGLER * middle]
    if not slow:
        return passed(f"{said} (median of {len(seen)} ranks, slowest {min(rates) / middle:.0%})", EXPECTED)
    worst = min(slow, key=lambda one: one.facts["gflops"]["fp32"])
    device = f"{worst.facts['on']}, {worst.facts['device']}"
    return failed(
        f"{worst.place} ({device}) computes {_flops(worst.facts['gflops']['fp32'])} in fp32, the median is "
        f"{_flops(middle)}",
        EXPECTED,
        "every step waits for the slowest: does another process use that device or core (`nvidia-smi`, `top`), is it "
        "hot or throttled (clocks, below)? If it stays so, leave the node out (`--exclude`) and tell support",
        places(slow),
    )


def _rate(bench: Bench, dtype: torch.dtype, window: float, sampler: threading.Thread | None) -> float:
    """Median GFLOP/s of a few windows; `sampler` is started in the middle."""
    import torch

    from hpc_utils.train import precision

    ranks = bench.ranks
    size = 8192 if ranks.device.type == "cuda" else 1024
    if dtype is torch.bfloat16 and precision.emulated("bf16", ranks.device):
        size = 192  # else one product takes seconds
    a, b = (torch.randn(size, size, device=ranks.device).to(dtype) for _ in range(2))

    def seconds(times: int) -> float:
        ranks.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            torch.mm(a, b)
        ranks.synchronize()
        return time.perf_counter() - began

    ranks.barrier()
    seconds(1)  # libraries load, clocks rise
    times = max(1, int(window / seconds(1)))
    rates = []
    for number in range(WINDOWS):
        if sampler and number == WINDOWS // 2:
            sampler.start()
        rates.append(2 * size**3 * times / seconds(times) / 1e9)
    return statistics.median(rates)


def _flops(gflops: float) -> str:
    return f"{gflops / 1e3:.1f} TFLOP/s" if gflops >= 1e3 else f"{gflops:.1f} GFLOP/s"
