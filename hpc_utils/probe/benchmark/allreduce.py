"""How long an all-reduce takes, over message sizes: of all ranks, inside each node, and between nodes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpc_utils.allreduce_cost import bandwidths
from hpc_utils.config import ConfigError
from hpc_utils.probe.check import count

from .say import Say, size

if TYPE_CHECKING:
    import torch

    from hpc_utils.train.ranks import Ranks

MIB = 2**20
SMALLEST, STEP = 4, 4  # B, and the factor from one size to the next
LARGEST = 256  # MiB
MOMENT, MOST = 0.1, 1000  # s that a repeat should last at least, and calls in it at most
GROUPS = {
    "all": "all ranks",
    "intra": "the ranks of one node, each node at once",
    "inter": "one rank of each node",
}


@dataclass(frozen=True)
class Group:
    """Ranks that add up together: `members` is this rank's process group, None if it is not among them."""

    name: str
    nodes: int
    ranks_per_node: int
    members: Any

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True)
class Point:
    """A size on a group, `times` calls a repeat, and what they took: seconds a call, one a repeat."""

    group: Group
    bytes: int
    times: int
    seconds: list[float]


def measure(
    ranks: Ranks, *, repeats: int, largest: int, seconds: float, say: Say, link_gbit: float | None = None
) -> dict[str, Any]:
    """The record but for its origin: each size's time on the slowest rank, `repeats` of them, interleaved.

    Sizes are 4 B to `largest` MiB in powers of four. What would not fit into `seconds` is left out, and that is said.

    Args:
        link_gbit: what the nodes' links are limited to on purpose, Gbit/s.

    Raises:
        ConfigError: there is only one rank.
    """
    if ranks.world_size == 1:
        raise ConfigError("one rank has nothing to add up: start several, on one node or more")
    import torch

    buffer = torch.zeros(largest * MIB // 4, device=ranks.device)  # sums stay zero, however often
    began = time.perf_counter()
    groups = list(_groups(ranks))
    points = [point for group in groups for point in _plan(ranks, group, buffer, repeats, seconds / len(groups), say)]
    for repeat in range(repeats):
        for point in points:
            say.now(f"{point.group.name}, {size(point.bytes)}, repeat {repeat + 1} of {repeats}")
            point.seconds.append(_slowest(ranks, point.group, buffer[: point.bytes // 4], point.times))
        if repeat + 1 < repeats and _late(ranks, began + 2 * seconds):
            say.line(f"only {repeat + 1} of {repeats} repeats: the machine became slower meanwhile")
            break
    return {
        "backend": ranks.backend,
        "device": ranks.device_kind,
        "device_name": ranks.device_name,
        "nodes": ranks.nodes,
        "ranks_per_node": ranks.ranks_per_node,
        "world_size": ranks.world_size,
        "link_gbit": link_gbit,
        "groups": {group.name: _described(group, points) for group in groups},
    }


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """The record as nccl-tests prints its own: medians, and from the shortest to the longest repeat."""
    for name, group in record["groups"].items():
        yield f"{name}: {GROUPS[name]} ({group['ranks']} on {count(group['nodes'], 'node')}, {record['backend']})"
        yield f"  {'size':>8}  {'time (ms)':>10}  {'min .. max':>20}  {'algorithm (GB/s)':>16}  {'bus (GB/s)':>10}"
        for sample in group["samples"]:
            times = [1e3 * seconds for seconds in sample["seconds"]]
            middle = statistics.median(times)
            algorithm, bus = (rate / 1e9 for rate in bandwidths(sample["bytes"], middle / 1e3, group["ranks"]))
            spread = f"{min(times):.4g} .. {max(times):.4g}"
            yield f"  {size(sample['bytes']):>8}  {middle:10.4g}  {spread:>20}  {algorithm:16.3g}  {bus:10.3g}"


def _groups(ranks: Ranks) -> Iterator[Group]:
    """All ranks, and the two layers of the machine where it has two. Every rank makes every group, as torch wants it."""
    import torch.distributed as dist

    nodes, each = ranks.nodes, ranks.ranks_per_node
    yield Group("all", nodes, each, dist.group.WORLD)
    if nodes == 1 or each == 1:
        return
    within = [dist.new_group(range(node * each, (node + 1) * each)) for node in range(nodes)]
    yield Group("intra", 1, each, within[ranks.rank // each])
    across = dist.new_group(range(0, ranks.world_size, each))
    yield Group("inter", nodes, 1, across if ranks.local_rank == 0 else None)


def _plan(
    ranks: Ranks, group: Group, buffer: torch.Tensor, repeats: int, seconds: float, say: Say
) -> Iterator[Point]:
    """The sizes that fit into `seconds` on this group, warmed up, with the calls that a repeat makes of each."""
    left, once, bytes_ = seconds, 0.0, SMALLEST
    while bytes_ <= buffer.nbytes:
        if (repeats + 2) * STEP * once > left:
            say.line(
                f"{group.name}: {size(bytes_)} and more left out, they would take more than {seconds:.0f} s "
                f"({size(bytes_ // STEP)} took {once:.2g} s)"
            )
            return
        say.now(f"{group.name}, {size(bytes_)}, warm-up")
        part = buffer[: bytes_ // 4]
        _slowest(ranks, group, part, 1)  # connects the ranks, finds the memory
        once = _slowest(ranks, group, part, 1)
        times = max(1, min(MOST, round(MOMENT / once)))
        left -= (repeats * times + 2) * once
        yield Point(group, bytes_, times, [])
        bytes_ *= STEP


def _slowest(ranks: Ranks, group: Group, tensor: torch.Tensor, times: int) -> float:
    """Seconds of one of `times` all-reduces on the slowest rank: the same on all ranks, who so decide alike."""
    import torch
    import torch.distributed as dist

    mine = 0.0
    ranks.barrier()
    if group.members is not None:
        began = time.perf_counter()
        for _ in range(times):
            dist.all_reduce(tensor, group=group.members)
        ranks.synchronize()
        mine = (time.perf_counter() - began) / times
    return float(ranks.max(torch.tensor([mine], dtype=torch.float64)))


def _late(ranks: Ranks, end: float) -> bool:
    import torch

    return bool(ranks.max(torch.tensor([float(time.perf_counter() > end)])))


def _described(group: Group, points: list[Point]) -> dict[str, Any]:
    samples = [{"bytes": point.bytes, "seconds": point.seconds} for point in points if point.group is group]
    return {
        "ranks": group.ranks,
        "nodes": group.nodes,
        "ranks_per_node": group.ranks_per_node,
        "samples": samples,
    }
