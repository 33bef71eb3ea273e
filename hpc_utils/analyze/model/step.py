"""The time of one training step from its parts: the work of a device, the fitted costs, and the links.

A step is data, forward, backward and optimizer, one after another. During the backward pass DDP's buckets become ready and
travel one after another; the communication that the rest of the pass does not hide is exposed. A rank's processor handles
one piece of a bucket while another travels, so the slower of both counts; the processor's part also delays the pass. All
ranks wait for the slowest.

Assumptions: equal devices, one job on the links, gradients of 4 bytes, no congestion inside the network; between ranks of
one node the processor is the limit, not the link.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils import allreduce_cost
from hpc_utils.allreduce_cost import Link, Topology
from hpc_utils.plural import counted
from hpc_utils.records.compute_profile import PHASES, fits

from ..points import one_rank

NEGLIGIBLE = 0.1  # share of a step; if every loss is smaller, the step is limited by computing
GRADIENTS = 20  # equal parts of the gradients, where their readiness was not measured
DEVIATIONS_TO_P95 = 1.645  # of a normal distribution, from its median to its 95th percentile
BOTTLENECKS = {
    "data": "data loading",
    "host": "communication: processor",
    "latency": "communication: latency",
    "bandwidth": "communication: bandwidth",
    "straggler": "stragglers",
}


class Line(NamedTuple):
    """Seconds against the batch: `fixed` + `per_sample` x batch."""

    fixed: float
    per_sample: float

    def seconds(self, batch: float) -> float:
        return self.fixed + self.per_sample * batch

    @classmethod
    def through(cls, batches: np.ndarray, seconds: np.ndarray) -> Line:
        """Least squares of the relative errors, both parts at least zero. Of a single batch all is taken to be per sample."""
        from scipy.optimize import nnls

        seconds = np.maximum(seconds, 1e-9)
        (per_sample, fixed), _ = nnls(np.column_stack([batches / seconds, 1 / seconds]), np.ones(len(seconds)))
        return cls(float(fixed), float(per_sample))


class Bucket(NamedTuple):
    """`size` bytes of gradients that are ready when the share `ready` (0 to 1) of the backward pass is done."""

    size: float
    ready: float


class Work(NamedTuple):
    """One step of one device without communication.

    Attributes:
        data, forward, backward, optimizer: seconds against the batch per device.
        buckets: of DistributedDataParallel, in order of readiness.
        jitter: standard deviation of the log of a step's time.
        source: the measurement that it comes from, in words.
    """

    data: Line
    forward: Line
    backward: Line
    optimizer: Line
    buckets: tuple[Bucket, ...]
    jitter: float = 0.0
    source: str = ""

    @classmethod
    def of(cls, runs: pd.DataFrame, epochs: pd.DataFrame, profiles: Iterable[Mapping[str, Any]] = ()) -> Work:
        """The work of one family of runs (`fit.families`).

        From the first of `profiles` (records of `results/probes/compute`, newest first) that fits and has phases, else from
        the phases of the runs on one rank. Those do not record when each gradient is ready: the gradients are spread evenly
        over the backward pass. The jitter is that of the runs on one rank.

        Raises:
            ValueError: there is no such profile, and no run on one rank with phases and its number of parameters.
        """
        run = runs.iloc[0]
        single = one_rank(runs)
        steps = epochs.merge(single[["run_id", "batch_per_device"]], on="run_id")
        jitter = np.log((steps.step_p95 / steps.step_p50).median()) / DEVIATIONS_TO_P95
        fitting = (
            profile
            for profile in profiles
            if profile["ready"] and profile["parameters"] == run.parameters and fits(profile, run)
        )
        if profile := next(fitting, None):
            gradients = [Bucket(gradient["bytes"], gradient["fraction"]) for gradient in profile["ready"]]
            phases = pd.DataFrame(profile["batches"]).set_index("batch")[[*PHASES]].map(np.median)
            source = f"compute profile {profile['name']}"
        elif pd.isna(run.parameters):
            raise ValueError("the model needs the number of parameters, which own loops do not record")
        else:
            size = run.parameters * 4 / GRADIENTS  # fp32
            gradients = [Bucket(size, (part + 1) / GRADIENTS) for part in range(GRADIENTS)]
            phases = steps.groupby("batch_per_device")[[f"{phase}_seconds" for phase in PHASES]].median()
            phases.columns = PHASES
            if phases.empty or phases.isna().any(axis=None):  # captured steps have no phases
                raise ValueError("the model needs `hpc bench compute`, or runs on one rank with the phases of a step")
            source = f"phases of {counted(len(single), 'run')} on one rank ({single.parallel.iloc[0]})"
        lines = {phase: Line.through(phases.index.to_numpy(), phases[phase].to_numpy()) for phase in PHASES}
        return cls(
            **lines, buckets=packed(gradients, run.bucket_mb), jitter=float(np.nan_to_num(jitter)), source=source
        )


def packed(gradients: Iterable[Bucket], bucket_mb: float) -> tuple[Bucket, ...]:
    """DistributedDataParallel's buckets after its first step (torch's `compute_bucket_assignment_by_size`)."""
    buckets = []
    size = 0.0
    for gradient in gradients:
        size += gradient.size
        if size >= bucket_mb * 2**20:
            buckets.append(Bucket(size, gradient.ready))
            size = 0.0
    return tuple([*buckets, Bucket(size, gradient.ready)] if size else buckets)


class Costs(NamedTuple):
    """The fitted parameters of the model.

    Attributes:
        scale: compute time of the runs over that of `Work`.
        group: s that DDP adds to a step on one rank.
        host: s of processor or device time for each byte that a rank sends.
        reach: share of the nominal bandwidth between nodes that gradients get.
        latency: s a message.
    """

    scale: float
    group: float
    host: float
    reach: float
    latency: float


class Step(NamedTuple):
    """A step's parts in seconds.

    Attributes:
        data: waiting for the batch. compute: forward, backward, optimizer. bandwidth: exposed communication over links without
        latency. latency, host: what the links' latency, and the processor's work on the bytes and DDP's own, add to that.
        straggler: waiting for the slowest rank.
    """

    data: float
    compute: float
    host: float = 0.0
    latency: float = 0.0
    bandwidth: float = 0.0
    straggler: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self)

    @property
    def bottleneck(self) -> str:
        """The largest part other than computing (of `BOTTLENECKS`), if it is more than a tenth of the step; else computing."""
        largest = max(BOTTLENECKS, key=lambda name: getattr(self, name))
        return BOTTLENECKS[largest] if getattr(self, largest) > NEGLIGIBLE * self.seconds else "computing"


def step(work: Work, costs: Costs, point: Any) -> Step:
    """One step at `point`: nodes, ranks_per_node, world_size, grouped, batch_per_device, and gbit (nominal rate of a node's link)."""
    data, forward, backward, optimizer = (
        costs.scale * getattr(work, phase).seconds(point.batch_per_device) for phase in PHASES
    )
    compute = forward + backward + optimizer
    if not point.grouped:
        return Step(data, compute)
    if point.world_size == 1:
        return Step(data, compute, costs.group)
    sent = allreduce_cost.traffic("all-reduce", point.world_size)
    hosts = [costs.host * sent * bucket.size for bucket in work.buckets]

    def added(hosts: Sequence[float], latency: float) -> float:
        """Seconds that communication adds to the step."""
        inter = Link(latency, costs.reach * point.gbit * 1e9 / 8)
        topology = Topology(point.nodes, point.ranks_per_node, inter, Link(latency, math.inf))
        delay = end = 0.0
        for bucket, host in zip(work.buckets, hosts, strict=True):
            wire = allreduce_cost.cheapest(bucket.size, topology)[1]
            end = max(backward * bucket.ready + delay, end) + max(wire, host)
            delay += host
        return max(end - backward, delay)

    idle = [0.0] * len(hosts)
    wires = added(idle, costs.latency)
    bandwidth = added(idle, 0.0)
    return Step(
        data,
        compute,
        host=costs.group + added(hosts, costs.latency) - wires,
        latency=wires - bandwidth,
        bandwidth=bandwidth,
        straggler=(data + compute) * math.expm1(work.jitter * expected_maximum(point.world_size)),
    )


def expected_maximum(ranks: int) -> float:
    """Expected maximum of `ranks` standard normal draws (Blom 1958): the lag of the slowest rank in deviations."""
    from scipy.special import ndtri  # scipy.stats.norm.ppf without importing scipy.stats

    return float(ndtri((ranks - math.pi / 8) / (ranks - math.pi / 4 + 1)))
