"""What a link is: bandwidths over message sizes, and the latency and bandwidth that explain the times.

Reads the record of `hpc bench allreduce` (`records.probes`, kind `allreduce`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.allreduce_cost import Link, Topology, ring
from hpc_utils.allreduce_cost import bandwidths as rates

from . import stats
from .stats import Estimate

TOLERANCE = 0.25  # the worst relative residual with which one latency and bandwidth still describe a link
FEWEST = 3  # sizes: two numbers are fitted
PART = 2 * 4  # bytes: gloo's ring sends two parts a rank, and a part holds a float32 or nothing
FLOOR = 0.05  # relative: no size is known better than the model is true
OUTLIER = 2.0  # standard errors from which on a size counts less

Record = Mapping[str, Any]


@dataclass(frozen=True)
class LinkFit:
    """The link that a ring over one group's ranks was measured to use.

    Attributes:
        group, ranks: of the record.
        latency: s of one message. bandwidth: byte/s in each direction. Both with their 95 % interval.
        residual: root mean square, over sizes, of modelled / measured - 1; worst: the largest, without its sign, at
            `worst_bytes`, where the longest repeat took `worst_spread` times the shortest.
        sizes: messages in bytes that were fitted to.
    """

    group: str
    ranks: int
    latency: Estimate
    bandwidth: Estimate
    residual: float
    worst: float
    worst_bytes: int
    worst_spread: float
    sizes: tuple[int, ...]

    @property
    def link(self) -> Link:
        return Link(self.latency.value, self.bandwidth.value)

    @property
    def describes(self) -> bool:
        """Whether one latency and one bandwidth describe every size."""
        return self.worst <= TOLERANCE

    @property
    def caveat(self) -> str:
        """What the fit does not say; "" if nothing."""
        if self.describes:
            return ""
        return (
            f"one latency and bandwidth do not describe this link: off by {self.worst:.0%} at {self.worst_bytes:,} "
            f"bytes (where repeats differ by a factor of {self.worst_spread:.2g}), by {self.residual:.0%} on the whole"
        )

    def seconds(self, size: float) -> float:
        """The fitted ring's all-reduce of `size` bytes."""
        return _ring(size, self.ranks, self.link)


def bandwidths(record: Record) -> pd.DataFrame:
    """One row a group and message size: median over repeats, of the slowest rank, with its 95 % interval.

    Columns: group, ranks, nodes, bytes (of the message); seconds, low, high, repeats; algorithm_bandwidth and
    bus_bandwidth (byte/s, of the median).
    """
    rows = []
    for name, group in record["groups"].items():
        for sample in group["samples"]:
            estimate = stats.median(sample["seconds"])
            algorithm, bus = rates(sample["bytes"], estimate.value, group["ranks"])
            rows.append(
                {"group": name, "ranks": group["ranks"], "nodes": group["nodes"], "bytes": sample["bytes"]}
                | {"seconds": estimate.value, "low": estimate.low, "high": estimate.high}
                | {"repeats": estimate.repeats, "algorithm_bandwidth": algorithm, "bus_bandwidth": bus}
            )
    columns = ["group", "ranks", "nodes", "bytes", "seconds", "low", "high", "repeats"]
    return pd.DataFrame(rows, columns=[*columns, "algorithm_bandwidth", "bus_bandwidth"])


def table(records: Iterable[Record]) -> pd.DataFrame:
    """What each group of each record was fitted to.

    Columns: name (the record's), hardware_id, nodes, ranks_per_node, group, link_gbit (what the links were limited to,
    Gbit/s; NaN: as they are); latency, latency_low, latency_high (s a message), bandwidth, bandwidth_low, bandwidth_high
    (byte/s), with 95 % intervals; residual, worst; caveat: in words, or why there is no fit (then NaN).
    """
    rows = []
    for record in records:
        for group in record["groups"]:
            row = {name: record.get(name) for name in ("name", "hardware_id", "nodes", "ranks_per_node", "link_gbit")}
            try:
                found = fit(record, group)
            except ValueError as why:
                rows.append(row | {"group": group, "caveat": str(why)})
                continue
            for name in ("latency", "bandwidth"):
                estimate = getattr(found, name)
                row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            rows.append(
                row | {"group": group, "residual": found.residual, "worst": found.worst, "caveat": found.caveat}
            )
    columns = [
        "name", "hardware_id", "nodes", "ranks_per_node", "group", "link_gbit", "latency", "latency_low", "latency_high",
        "bandwidth", "bandwidth_low", "bandwidth_high", "residual", "worst", "caveat",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).astype({"link_gbit": float})


def inside(links: pd.DataFrame, hardware_id: str) -> float:
    """Gbit/s that ranks of one node of that hardware were measured to talk over; infinite where nobody did. `links` as of
    `table`."""
    here = links[links.hardware_id == hardware_id]
    within = here[(here.group == "intra") | ((here.group == "all") & (here.nodes == 1))].bandwidth.dropna()
    return 8e-9 * float(within.median()) if len(within) else math.inf


def newest(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The newest of the measurements (the first) over several nodes and unlimited links, else the newest."""
    several = [record for record in records if record["nodes"] > 1 and not record["link_gbit"]]
    return next(iter(several or records), None)


def fits(record: Mapping[str, Any], links: pd.DataFrame) -> list[LinkFit]:
    """The fits of the record's groups that have one; `links`: as of `table`."""
    return [fit(record, group) for group in links.group[(links.name == record["name"]) & links.latency.notna()]]


def reach(links: pd.DataFrame, hardware_id: str, without: Sequence[float] = ()) -> Estimate | None:
    """The share of their nominal bandwidth that an all-reduce got over limited links between nodes of that hardware, at
    the rate with the largest share: at faster ones processors are what limits. None where nobody measured.

    links: as of `table`. without: Gbit/s: rates to leave out.
    """
    own = links[(links.hardware_id == hardware_id) | links.hardware_id.str.startswith(f"{hardware_id}-")]
    own = own[(own.nodes > 1) & (own.group != "intra") & own.bandwidth.notna() & own.link_gbit.notna()]
    own = own[~own.link_gbit.isin(without)]
    if own.empty:
        return None
    best = own.loc[(own.bandwidth / own.link_gbit).idxmax()]
    nominal = best.link_gbit * 1e9 / 8
    return Estimate(*(float(best[name]) / nominal for name in ("bandwidth", "bandwidth_low", "bandwidth_high")), 2)


def fit(record: Record, group: str) -> LinkFit:
    """Latency and bandwidth of the ring (`allreduce_cost.ring`) that comes closest to a group's times.

    Least squares on log(modelled / measured) of each size's median, so that relative errors count whatever the size,
    weighted by the spread of its repeats, with a soft-L1 loss, so that sizes at which the library changes its protocol
    do not bend the rest. The 95 % intervals are t intervals of the logs from the residuals over sizes, and so hold
    noise and misfit: what the model misses at a size is common to its repeats. Messages of fewer than two numbers a rank are left out: of those a ring's parts are empty.

    Raises:
        ValueError: no such group, or fewer than three sizes.
    """
    from scipy.optimize import least_squares
    from scipy.stats import t

    if group not in record["groups"]:
        raise ValueError(f"no group {group!r} in this record; it has {', '.join(record['groups'])}")
    ranks = record["groups"][group]["ranks"]
    measured = [sample for sample in record["groups"][group]["samples"] if sample["bytes"] >= PART * ranks]
    if len(measured) < FEWEST:
        raise ValueError(
            f"{group}: {len(measured)} sizes of {PART * ranks} bytes or more, expected {FEWEST}: raise --largest"
        )
    sizes = np.array([sample["bytes"] for sample in measured], dtype=float)
    times = np.array([float(np.median(sample["seconds"])) for sample in measured])
    errors = np.array([_error(sample["seconds"]) for sample in measured])
    repeats = min(len(sample["seconds"]) for sample in measured)

    def misses(logs: np.ndarray) -> np.ndarray:
        link = Link(*np.exp(logs))
        return np.log([_ring(size, ranks, link) / time for size, time in zip(sizes, times, strict=True)])

    def slopes(logs: np.ndarray) -> np.ndarray:
        waiting = Link(float(np.exp(logs[0])), math.inf)
        share = np.array([_ring(size, ranks, waiting) for size in sizes]) / (times * np.exp(misses(logs)))
        return np.column_stack([share, share - 1])

    # From the ends: the smallest message is all latency, the largest all bandwidth.
    alone, whole = _ring(0, ranks, Link(1.0, 1.0)), _ring(sizes[-1], ranks, Link(0.0, 1.0))
    found = least_squares(
        lambda logs: misses(logs) / errors,
        np.log([times[0] / alone, whole / times[-1]]),
        lambda logs: slopes(logs) / errors[:, None],
        loss="soft_l1",
        f_scale=OUTLIER,
    )
    missed, slope, freedom = misses(found.x), slopes(found.x), len(sizes) - 2
    weights = 1 / (errors**2 * np.sqrt(1 + (missed / errors / OUTLIER) ** 2))  # soft L1's
    variance = np.linalg.inv(slope.T @ (weights[:, None] * slope)) * ((missed / errors) ** 2).sum() / freedom
    half = t.ppf((1 + stats.CONFIDENCE) / 2, freedom) * np.sqrt(np.diag(variance))
    latency, bandwidth = (
        Estimate(*map(float, np.exp([middle, middle - wide, middle + wide])), repeats)
        for middle, wide in zip(found.x, half, strict=True)
    )
    relative = np.abs(np.expm1(missed))
    worst = int(relative.argmax())
    there = measured[worst]["seconds"]
    return LinkFit(
        group,
        ranks,
        latency,
        bandwidth,
        residual=float(np.sqrt((relative**2).mean())),
        worst=float(relative[worst]),
        worst_bytes=int(sizes[worst]),
        worst_spread=max(there) / min(there),
        sizes=tuple(map(int, sizes)),
    )


def _error(seconds: Sequence[float]) -> float:
    """Relative standard error of a size's time."""
    spread = float(np.std(np.log(seconds), ddof=1)) / math.sqrt(len(seconds)) if len(seconds) > 1 else 0.0
    return math.hypot(FLOOR, spread)


def _ring(size: float, ranks: int, link: Link) -> float:
    return ring(size, Topology(1, ranks, link, link))
