"""The cost of an all-reduce: the latency-bandwidth model of ring, tree and hierarchical algorithms.

Formulas: Thakur, Rabenseifner and Gropp 2005 (IJHPCA 19:49) for ring and tree; the hierarchical one is a reduce-scatter
inside each node, a ring over the nodes, an all-gather inside each node, as NCCL and others do. A link works in both
directions at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Link(NamedTuple):
    """`latency` (s) of one message, and `bandwidth` (byte/s) in each direction."""

    latency: float
    bandwidth: float

    def seconds(self, messages: float, size: float) -> float:
        """Time of `messages` one after another that carry `size` bytes in all."""
        return messages * self.latency + size / self.bandwidth


class Topology(NamedTuple):
    """`nodes` with `ranks_per_node` on each; `inter` is a node's link to the others, shared by its ranks, `intra` the
    link between the ranks of one node."""

    nodes: int
    ranks_per_node: int
    inter: Link
    intra: Link

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def slowest(self) -> Link:
        """The link that limits a ring over all ranks, node by node: the worse of each property."""
        if self.nodes == 1:
            return self.intra
        if self.ranks_per_node == 1:
            return self.inter
        return Link(max(self.inter.latency, self.intra.latency), min(self.inter.bandwidth, self.intra.bandwidth))


def evenly(ranks: int, most_per_node: int) -> tuple[int, int]:
    """(nodes, ranks on each): the fewest nodes that hold `ranks` evenly with at most `most_per_node` on each: 12 by 8 is 2 x 6."""
    nodes = next(n for n in range(-(-ranks // most_per_node), ranks + 1) if ranks % n == 0)
    return nodes, ranks // nodes


def ring(size: float, topology: Topology) -> float:
    """Seconds of a ring all-reduce of `size` bytes over all ranks: 2(n-1) messages of size/n each."""
    return _ring(size, topology.ranks, topology.slowest)


def tree(size: float, topology: Topology) -> float:
    """Seconds of a pipelined double-tree all-reduce: 2 ceil(log2 n) messages deep, all bytes up and down once."""
    if topology.ranks == 1:
        return 0.0
    return topology.slowest.seconds(2 * math.ceil(math.log2(topology.ranks)), 2 * size)


def hierarchical(size: float, topology: Topology) -> float:
    """Seconds of a reduce-scatter in each node, a ring over nodes, an all-gather in each node."""
    return _ring(size, topology.ranks_per_node, topology.intra) + _ring(size, topology.nodes, topology.inter)


ALGORITHMS = {"ring": ring, "tree": tree, "hierarchical": hierarchical}


def cheapest(size: float, topology: Topology) -> tuple[str, float]:
    """(name, seconds) of the algorithm that takes least."""
    return min(((name, cost(size, topology)) for name, cost in ALGORITHMS.items()), key=lambda pair: pair[1])


def bandwidths(size: float, seconds: float, ranks: int) -> tuple[float, float]:
    """(algorithm, bus) bandwidth in byte/s of an all-reduce of `size` bytes, as nccl-tests defines them (doc/PERFORMANCE.md).

    Algorithm bandwidth is size / time; bus bandwidth is that times 2(n-1)/n, what each rank must send and receive,
    which compares with the link whatever the number of ranks.
    """
    algorithm = size / seconds
    return algorithm, algorithm * traffic("all-reduce", ranks)


def traffic(operation: str, ranks: int) -> float:
    """Bytes that each rank must send and receive, over those of the message, as nccl-tests defines both: the message of an
    all-gather is what each rank ends with, that of a reduce-scatter what it begins with. KeyError: another operation."""
    others = (ranks - 1) / ranks
    shares = {
        "all-reduce": 2 * others,
        "all-gather": others,
        "reduce-scatter": others,
        "broadcast": 1.0,
        "reduce": 1.0,
    }
    return shares[operation]


def _ring(size: float, members: int, link: Link) -> float:
    return link.seconds(2 * (members - 1), 2 * (members - 1) / members * size) if members > 1 else 0.0
