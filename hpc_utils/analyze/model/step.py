"""The time of one training step from its parts: the work of a device, the fitted costs, and the links.

A step is data, forward, backward and optimizer, one after another. During the backward pass DDP's buckets become ready and
travel one after another; the communication that the rest of the pass does not hide is exposed. A rank's processor handles
one piece of a bucket while another travels, so the slower of both counts; the processor's part delays the overlapping
compute. All ranks wait for the slowest.

Assumptions: equal devices, one job on the links, gradients of 4 bytes, no congestion inside the network.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils import allreduce_cost
from hpc_utils.allreduce_cost import Link, Topology
from hpc_utils.plural import counted
from hpc_utils.records.compute_profile import PHASES, fits, step_seconds

from ..points import one_rank
from ..scaling import baseline_text

NEGLIGIBLE = 0.1  # share of a step; if every loss is smaller, the step is limited by computing
GRADIENTS = 20  # equal parts of the gradients, where their readiness was not measured
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
    def through(cls, batches: Sequence[float], seconds: Sequence[float]) -> Line:
        """Least squares of the relative errors, both parts at least zero. A single batch gives `fixed` = 0."""
        from scipy.optimize import nnls

        batches = np.asarray(batches, float)
        seconds = np.maximum(np.asarray(seconds, float), 1e-9)
        if len(set(batches)) == 1:
            return cls(0.0, float(np.mean(seconds / batches)))
        (fixed, per_sample), _ = nnls(np.column_stack([1 / seconds, batches / seconds]), np.ones(len(seconds)))
        return cls(float(fixed), float(per_sample))


class Bucket(NamedTuple):
    """`size` bytes of gradients that are ready when the share `ready` (0 to 1) of the backward pass is done."""

    size: float
    ready: float


@dataclass(frozen=True)
class Work:
    """One step of one device without communication.

    Attributes:
        data, forward, backward, optimizer: seconds against the batch per device.
        gradients: in order of readiness.
        jitter: standard deviation of the log of a step's time.
        source: the measurement that it comes from, in words.
    """

    data: Line
    forward: Line
    backward: Line
    optimizer: Line
    gradients: tuple[Bucket, ...]
    jitter: float = 0.0
    source: str = ""

    @property
    def gradient_bytes(self) -> float:
        return sum(gradient.size for gradient in self.gradients)

    def seconds(self, batch: float) -> float:
        """A step's time at that batch per device."""
        return sum(getattr(self, phase).seconds(batch) for phase in PHASES)

    def buckets(self, bucket_mb: float) -> tuple[Bucket, ...]:
        """DistributedDataParallel's buckets after its first step (torch's `compute_bucket_assignment_by_size`)."""
        return _packed(self.gradients, bucket_mb * 2**20)

    @classmethod
    def from_profile(cls, profile: Mapping[str, Any], jitter: float | None = None) -> Work:
        """From a record of `hpc bench compute` (`results/probes/compute`)."""
        rows = profile["batches"]
        batches = [row["batch"] for row in rows]
        lines = {phase: Line.through(batches, [float(np.median(row[phase])) for row in rows]) for phase in PHASES}
        if jitter is None:
            jitter = float(np.median([np.std(np.log(times)) for times in step_seconds(profile).values()]))
        gradients = tuple(Bucket(gradient["bytes"], gradient["fraction"]) for gradient in profile["ready"])
        return cls(**lines, gradients=gradients, jitter=jitter, source=f"compute profile {profile.get('name', '')}")

    @classmethod
    def from_runs(cls, runs: pd.DataFrame, epochs: pd.DataFrame) -> Work:
        """From the phases that runs of one family (`fit.families`) recorded without a process group.

        Records do not hold when each gradient is ready: the gradients are spread evenly over the backward pass. Where all runs
        have a process group, those on one rank take its place, with what the group costs there.

        Raises:
            ValueError: no run is on one rank.
        """
        single = one_rank(runs)
        if single.empty:
            raise ValueError("the model needs runs on one rank, or `hpc bench compute`, for its compute time")
        rows = epochs.merge(single[["run_id", "batch_per_device"]], on="run_id")
        phases = rows.groupby("batch_per_device")[[f"{phase}_seconds" for phase in PHASES]].median()
        if phases.isna().any(axis=None):
            raise ValueError("captured steps have no phases: the model needs `hpc bench compute` of the eager step")
        batches = phases.index.to_numpy(float)
        lines = {phase: Line.through(batches, phases[f"{phase}_seconds"].to_numpy(float)) for phase in PHASES}
        size = float(single.parameters.iloc[0]) * 4 / GRADIENTS  # fp32
        gradients = tuple(Bucket(size, (part + 1) / GRADIENTS) for part in range(GRADIENTS))
        source = f"phases of {counted(len(single), 'run')} of {baseline_text(single.parallel.iloc[0])}"
        return cls(**lines, gradients=gradients, jitter=_jitter(rows), source=source)

    @classmethod
    def of(cls, runs: pd.DataFrame, epochs: pd.DataFrame, profiles: Iterable[Mapping[str, Any]] = ()) -> Work:
        """The work of one family of runs (`fit.families`): from the first of `profiles` (records of `results/probes/compute`,
        newest first) that fits and has phases, else from the runs' phases.

        Raises:
            ValueError: there is no such profile, and no run on one rank.
        """
        run = runs.iloc[0]
        single = epochs[epochs.run_id.isin(one_rank(runs).run_id)]
        for profile in profiles:
            if profile["ready"] and profile["parameters"] == run.parameters and fits(profile, run):
                return cls.from_profile(profile, _jitter(single) if len(single) else None)
        return cls.from_runs(runs, epochs)


def _jitter(epochs: pd.DataFrame) -> float:
    """Standard deviation of the log of step times, from their recorded median and 95th percentile."""
    ratio = (epochs.step_p95 / epochs.step_p50).dropna()
    return float(np.log(ratio.median()) / 1.645) if len(ratio) else 0.0


@functools.cache  # a fit needs the same buckets at every step
def _packed(gradients: tuple[Bucket, ...], limit: float) -> tuple[Bucket, ...]:
    buckets = []
    size = ready = 0.0
    for gradient in gradients:
        size += gradient.size
        ready = max(ready, gradient.ready)
        if size >= limit:
            buckets.append(Bucket(size, ready))
            size = 0.0
    return tuple([*buckets, Bucket(size, ready)] if size else buckets)


class Costs(NamedTuple):
    """The fitted parameters of the model.

    Attributes:
        scale: compute time of the runs over that of `Work`.
        group: s that DDP adds to a step on one rank.
        host: s of processor or device time for each byte that a rank sends.
        reach: share of the nominal bandwidth between nodes that gradients get.
        latency: s a message.
        drag: how much longer gradients take while the backward pass computes: 0 not at all, 1 twice as long.
    """

    scale: float = 1.0
    group: float = 1e-3
    host: float = 3e-10
    reach: float = 0.9
    latency: float = 1e-4
    drag: float = 0.1


class Step(NamedTuple):
    """A step's parts in seconds; those of communication are exposed.

    Attributes:
        data: waiting for the batch. compute: forward, backward, optimizer. host: DDP's own work, and the processor's on
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
        """The largest part other than computing (of `BOTTLENECKS`), if it is more than a tenth of the step; else computing."""
        largest = max(BOTTLENECKS, key=lambda name: getattr(self, name))
        return BOTTLENECKS[largest] if getattr(self, largest) > NEGLIGIBLE * self.seconds else "computing"


def step(
    work: Work, costs: Costs, topology: Topology, batch: float, *, grouped: bool = True, bucket_mb: float
) -> Step:
    """One step of `batch` samples a rank. `topology` has nominal bandwidths: gradients get `costs.reach` of them."""
    data = costs.scale * work.data.seconds(batch)
    compute = costs.scale * work.seconds(batch) - data
    if not grouped:
        return Step(data, compute)
    ranks = topology.ranks
    if ranks == 1:
        return Step(data, compute, costs.group)
    # The bandwidth inside a node is not nominal but measured.
    inter = Link(costs.latency, costs.reach * topology.inter.bandwidth)
    reached = topology._replace(inter=inter, intra=Link(costs.latency, topology.intra.bandwidth))
    instant = Link(costs.latency, math.inf)
    unlimited = topology._replace(inter=instant, intra=instant)
    buckets = work.buckets(bucket_mb)
    algorithms, wires = zip(*(allreduce_cost.cheapest(bucket.size, reached) for bucket in buckets), strict=True)
    sent = 2 * (ranks - 1) / ranks
    hosts = [costs.host * sent * bucket.size for bucket in buckets]
    travels = list(zip([bucket.ready for bucket in buckets], wires, hosts, strict=True))
    delay, exposed = _overlap(costs.scale * work.backward.seconds(batch), travels, 1 / (1 + costs.drag))
    host_limited = sum(host for _, wire, host in travels if host > wire)
    exposed_host = exposed * host_limited / sum(map(max, wires, hosts)) if exposed else 0.0
    exposed_link = exposed - exposed_host
    latencies = sum(
        allreduce_cost.ALGORITHMS[name](bucket.size, unlimited)
        for bucket, name in zip(buckets, algorithms, strict=True)
    )
    latency = exposed_link * latencies / sum(wires) if sum(wires) else 0.0
    return Step(
        data,
        compute,
        host=costs.group + delay + exposed_host,
        latency=latency,
        bandwidth=exposed_link - latency,
        straggler=(data + compute) * math.expm1(work.jitter * expected_maximum(ranks)),
        algorithm=algorithms[0],
    )


def _overlap(backward: float, buckets: Sequence[tuple[float, float, float]], speed: float) -> tuple[float, float]:
    """(delay of the backward pass, communication exposed after it) in seconds.

    `buckets`: (share of the pass when it is ready, seconds on the wire, seconds of the processor), in order. They travel
    one after another, at `speed` (0 to 1) while the pass computes.
    """
    delay = free = 0.0
    for ready, wire, host in buckets:
        start = max(backward * ready + delay, free)
        duration = max(wire, host)
        hidden = min(duration, speed * max(0.0, backward + delay - start))  # the part done while the pass computes
        free = start + hidden / speed + duration - hidden
        delay += host * hidden / duration if duration else 0.0
    return delay, max(0.0, free - backward - delay)


@functools.cache
def expected_maximum(ranks: int) -> float:
    """Expected maximum of `ranks` standard normal draws (Blom 1958): the lag of the slowest rank in deviations."""
    from scipy.special import ndtri  # scipy.stats.norm.ppf without importing scipy.stats

    return float(ndtri((ranks - math.pi / 8) / (ranks - math.pi / 4 + 1))) if ranks > 1 else 0.0
