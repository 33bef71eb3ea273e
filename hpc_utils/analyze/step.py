"""A training step, worked out: its parts in seconds for given work, costs and links.

A step is data, forward, backward, optimizer, one after another. During the backward pass DDP's buckets become ready and
travel one after another; what is not hidden behind the rest of the pass is exposed. A rank's own processor copies, adds
up and hands on one piece of a bucket while another travels, so that the slower of both counts; what it spends delays the
compute that it overlaps. All ranks wait for the slowest. Assumed: equal devices, one job on the links, gradients of 4 bytes, no congestion inside the network.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hpc_utils import allreduce_cost
from hpc_utils.allreduce_cost import Link, Topology

from .work import Work

NEGLIGIBLE = 0.1  # of a step: with less lost, computing is what limits


@dataclass(frozen=True)
class Costs:
    """What is fitted.

    Attributes:
        scale: compute time in the runs over that of `Work` (1 if its profile holds).
        group: s a step that DDP takes on one rank already.
        host: s a byte that a rank sends, of its own processor or device.
        reach: share of the nominal bandwidth between nodes that gradients get.
        latency: s a message.
        drag: how much longer gradients take while the backward pass computes: 0 not at all, 1 twice as long. A processor
            that computes on the core that serves the network leaves it little.
    """

    scale: float = 1.0
    group: float = 1e-3
    host: float = 3e-10
    reach: float = 0.9
    latency: float = 1e-4
    drag: float = 0.1


BOTTLENECKS = {
    "data": "data loading",
    "host": "communication: processor",
    "latency": "communication: latency",
    "bandwidth": "communication: bandwidth",
    "straggler": "stragglers",
}


class Step(NamedTuple):
    """A step's parts in seconds. What is lost to communication is exposed: not hidden behind the backward pass.

    Attributes:
        data: waiting for the batch. compute: forward, backward, optimizer. host: DDP's own work and the processor's on
        the bytes that travel. latency, bandwidth: of the link. straggler: waiting for the slowest rank.
        algorithm: of the all-reduce; "" without one.
    """

    data: float
    compute: float
    host: float = 0.0
    latency: float = 0.0
    bandwidth: float = 0.0
    straggler: float = 0.0
    algorithm: str = ""

    @property
    def seconds(self) -> float:
        return sum(self[:-1])

    @property
    def bottleneck(self) -> str:
        """What costs most beside computing, if that is more than a tenth of the step; else computing (`BOTTLENECKS`)."""
        worst = max(BOTTLENECKS, key=lambda name: getattr(self, name))
        return BOTTLENECKS[worst] if getattr(self, worst) > NEGLIGIBLE * self.seconds else "computing"


def step(
    work: Work, costs: Costs, topology: Topology, batch: float, *, grouped: bool = True, bucket_mb: float
) -> Step:
    """One step of `batch` samples a rank. `topology`'s bandwidths are nominal: gradients reach `costs.reach` of them."""
    data = costs.scale * work.data.seconds(batch)
    compute = costs.scale * work.seconds(batch) - data
    if not grouped:
        return Step(data, compute)
    ranks = topology.ranks
    if ranks == 1:
        return Step(data, compute, costs.group)
    sent = 2 * (ranks - 1) / ranks
    wires = [
        (bucket, *allreduce_cost.cheapest(bucket.size, _reached(topology, costs)))
        for bucket in work.buckets(bucket_mb)
    ]
    delay, exposed = _overlap(
        costs.scale * work.backward.seconds(batch),
        [(bucket.ready, wire, costs.host * sent * bucket.size) for bucket, _, wire in wires],
        1 / (1 + costs.drag),
    )
    slower = [(max(wire, own), own > wire) for bucket, _, wire in wires for own in [costs.host * sent * bucket.size]]
    of_host = exposed * sum(time for time, own in slower if own) / sum(time for time, _ in slower) if exposed else 0.0
    of_link = exposed - of_host
    unlimited = _reached(topology, costs, unlimited=True)
    total = sum(wire for *_, wire in wires)
    waiting = sum(allreduce_cost.ALGORITHMS[name](bucket.size, unlimited) for bucket, name, _ in wires)
    latency = of_link * waiting / total if total else 0.0
    return Step(
        data,
        compute,
        host=costs.group + delay + of_host,
        latency=latency,
        bandwidth=of_link - latency,
        straggler=(data + compute) * math.expm1(work.jitter * expected_maximum(ranks)),
        algorithm=wires[0][1],
    )


def _overlap(backward: float, buckets: Sequence[tuple[float, float, float]], speed: float) -> tuple[float, float]:
    """(how long the backward pass is delayed, what is exposed after it) in seconds.

    `buckets`: (share of the pass when it is ready, seconds on the wire, seconds of the processor), in order. They travel
    one after another; while the pass still computes, at `speed` (0 to 1), and the processor's part is taken from it.
    """
    delay = free = 0.0
    for ready, wire, host in buckets:
        start, whole = max(backward * ready + delay, free), max(wire, host)
        beside = min(whole, speed * max(0.0, backward + delay - start))  # of it, done while the pass computes
        free = start + beside / speed + whole - beside
        delay += host * beside / whole if whole else 0.0
    return delay, max(0.0, free - backward - delay)


def _reached(topology: Topology, costs: Costs, *, unlimited: bool = False) -> Topology:
    """The links as gradients find them; with bandwidth `unlimited`, only latency is left."""

    def link(bandwidth: float) -> Link:
        return Link(costs.latency, math.inf if unlimited else bandwidth)

    # Inside a node it is no nominal bandwidth but a measured one.
    return replace(topology, inter=link(topology.inter.bandwidth * costs.reach), intra=link(topology.intra.bandwidth))


@functools.cache
def expected_maximum(ranks: int) -> float:
    """Of `ranks` standard normal draws (Blom 1958): by how many deviations the slowest rank is expected to lag."""
    from scipy.stats import norm

    return float(norm.ppf((ranks - math.pi / 8) / (ranks - math.pi / 4 + 1))) if ranks > 1 else 0.0
