"""Time of an all-reduce over message sizes: of all ranks, inside each node, and between nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hpc_utils import provenance
from hpc_utils.allreduce_cost import bandwidths
from hpc_utils.config import ConfigError
from hpc_utils.doctor.process import Console, repeats_within, slowest_seconds

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

STEP = 4  # factor from one size to the next
MOMENT, MOST = 0.1, 1000  # s that a repeat should last at least, and calls in it at most
GROUPS = {
    "all": "all ranks",
    "intra": "the ranks of one node, each node at once",
    "inter": "one rank of each node",
}


def measure(
    ranks: Ranks,
    *,
    repeats: int,
    largest: int,
    seconds: float,
    console: Console,
    smallest: int = 4,
    parts: bool = True,
    **_: Any,
) -> dict[str, Any]:
    """The record without its origin: `repeats` times of each size on the slowest rank, interleaved.

    Sizes are `smallest` bytes to `largest` MiB in powers of four. Those that do not fit into `seconds` are skipped with a
    message.

    Args:
        parts: also measure within and between nodes.

    Raises:
        ConfigError: there is only one rank.
    """
    if ranks.world_size == 1:
        raise ConfigError("an all-reduce needs at least two ranks, on one node or more")

    buffer = torch.zeros(largest * 2**20 // 4, device=ranks.device)  # sums stay zero, however often
    groups = list(_groups(ranks, parts))
    records = {}
    plan = []
    for group in groups:
        samples = []
        for bytes_, times in _sizes(ranks, group, buffer, smallest, repeats, seconds / len(groups), console):
            samples.append({"bytes": bytes_, "seconds": []})
            plan.append((group, samples[-1], times))
        records[group.name] = {
            "ranks": group.nodes * group.ranks_per_node,
            "nodes": group.nodes,
            "ranks_per_node": group.ranks_per_node,
            "samples": samples,
        }
    for repeat in repeats_within(ranks, repeats, 2 * seconds, console):
        for group, sample, times in plan:
            console.progress(f"{group.name}, {size(sample['bytes'])}, repeat {repeat} of {repeats}")
            message = buffer[: sample["bytes"] // 4]
            sample["seconds"].append(all_reduce_seconds(ranks, message, times, group.processes))
    return {
        "backend": ranks.backend,
        "device": ranks.device_kind,
        "device_name": ranks.device_name,
        "nodes": ranks.nodes,
        "ranks_per_node": ranks.ranks_per_node,
        "world_size": ranks.world_size,
        "link_gbit": provenance.HardwareId.parse(provenance.hardware_id()).link_gbit,  # the limit on purpose
        "groups": records,
    }


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """The record in the form of nccl-tests: medians, shortest and longest repeat."""
    for name, group in record["groups"].items():
        yield f"{name}: {GROUPS[name]} ({group['ranks']} on {group['nodes']} node(s), {record['backend']})"
        yield f"  {'size':>8}  {'time (ms)':>10}  {'min .. max':>20}  {'algorithm (GB/s)':>16}  {'bus (GB/s)':>10}"
        for sample in group["samples"]:
            times = [1e3 * seconds for seconds in sample["seconds"]]
            middle = median(times)
            algorithm, bus = (rate / 1e9 for rate in bandwidths(sample["bytes"], middle / 1e3, group["ranks"]))
            spread = f"{min(times):.4g} .. {max(times):.4g}"
            yield f"  {size(sample['bytes']):>8}  {middle:10.4g}  {spread:>20}  {algorithm:16.3g}  {bus:10.3g}"


class Group(NamedTuple):
    """Ranks that reduce together; `processes` is their group (`Ranks.everyone`, `Ranks.split`), None on a rank that is not a member."""

    name: str
    nodes: int
    ranks_per_node: int
    processes: Any


def _groups(ranks: Ranks, parts: bool) -> Iterator[Group]:
    """All ranks, and inside and between nodes where there are both. Every rank makes every group, as torch requires."""
    nodes = ranks.nodes
    ranks_per_node = ranks.ranks_per_node
    yield Group("all", nodes, ranks_per_node, ranks.everyone)
    if not parts or nodes == 1 or ranks_per_node == 1:
        return
    node, leaders = ranks.split()
    yield Group("intra", 1, ranks_per_node, node)
    yield Group("inter", nodes, 1, leaders)


def _sizes(
    ranks: Ranks, group: Group, buffer: torch.Tensor, smallest: int, repeats: int, seconds: float, console: Console
) -> Iterator[tuple[int, int]]:
    """(bytes, calls in a repeat) of the sizes that fit into `seconds` on this group, warmed up."""
    remaining = seconds
    call_seconds = 0.0
    bytes_ = smallest
    while bytes_ <= buffer.nbytes:
        if (repeats + 2) * STEP * call_seconds > remaining:
            console.line(
                f"{group.name}: {size(bytes_)} and more skipped: they would take more than {seconds:.0f} s "
                f"({size(bytes_ // STEP)} took {call_seconds:.2g} s)"
            )
            return
        console.progress(f"{group.name}, {size(bytes_)}, warm-up")
        for _ in range(2):  # the first connects the ranks and allocates memory
            call_seconds = all_reduce_seconds(ranks, buffer[: bytes_ // 4], 1, group.processes)
        times = max(1, min(MOST, round(MOMENT / call_seconds)))
        remaining -= (repeats * times + 2) * call_seconds
        yield bytes_, times
        bytes_ *= STEP


def all_reduce_seconds(ranks: Ranks, tensor: torch.Tensor, times: int, group: Any) -> float:
    """Seconds of one of `times` all-reduces of `group` on the slowest rank. None: this rank is not a member."""
    return slowest_seconds(ranks, lambda: group is not None and ranks.all_reduce(tensor, group), times)


def size(number: float) -> str:
    """`4 B`, `256 KiB`, `1 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:g} {unit}"
        number /= 1024
    return f"{number:g} GiB"
