"""The time of the collectives that DDP, ZeRO and FSDP are made of; `hpc bench collectives` runs it on every rank."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from hpc_utils.doctor.bench.allreduce import size
from hpc_utils.doctor.process import Console, repeats_within, slowest_seconds

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

SIZES = (2**12, 2**16, 2**20, 2**24)  # bytes of the whole message
MOMENT, MOST = 0.05, 500  # s that a repeat should last at least, and calls in it at most

# Of a whole message, and of this rank's part of it
OPERATIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "all-reduce": lambda whole, part: dist.all_reduce(whole),
    "broadcast": lambda whole, part: dist.broadcast(whole, 0),
    "reduce": lambda whole, part: dist.reduce(whole, 0),
    "all-gather": lambda whole, part: dist.all_gather_into_tensor(whole, part),
    "reduce-scatter": lambda whole, part: dist.reduce_scatter_tensor(part, whole),
}


def measure(ranks: Ranks, *, repeats: int, seconds: float, console: Console, **_: Any) -> dict[str, Any]:
    """The record without its origin: `repeats` times of each operation and size on the slowest rank, interleaved."""
    warnings.filterwarnings("ignore", ".*deprecated", FutureWarning)  # newer names are not in older releases of torch
    plan = []
    for name, operation in OPERATIONS.items():
        for length in SIZES:
            part = torch.zeros(length // 4 // ranks.world_size, device=ranks.device)  # sums stay zero, however often
            whole = part.repeat(ranks.world_size)

            def call(operation=operation, whole=whole, part=part) -> None:
                operation(whole, part)

            call()  # connects the ranks
            first = slowest_seconds(ranks, call, 1)
            times = max(1, min(MOST, round(MOMENT / first)))
            plan.append((call, times, {"operation": name, "bytes": whole.nbytes, "seconds": []}))
    for repeat in repeats_within(ranks, repeats, seconds, console):
        console.progress(f"repeat {repeat} of {repeats}")
        for call, times, sample in plan:
            sample["seconds"].append(slowest_seconds(ranks, call, times))
    names = ("backend", "device_name", "nodes", "ranks_per_node", "world_size")
    return {name: getattr(ranks, name) for name in names} | {"samples": [sample for _, _, sample in plan]}


def rows(record: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Of each operation and size: median, shortest and longest time in ms, and the message over the median time."""
    for sample in record["samples"]:
        middle = median(sample["seconds"])
        times = (f"{1e3 * seconds:.3g}" for seconds in (middle, min(sample["seconds"]), max(sample["seconds"])))
        yield sample["operation"], size(sample["bytes"]), *times, f"{sample['bytes'] / middle / 1e9:.3g}"


HEADER = ("collective", "message", "time (ms)", "shortest", "longest", "GB/s")


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """The record as lines for a terminal."""
    for row in (HEADER, *rows(record)):
        yield "".join(f"{cell:>15}" for cell in row)
