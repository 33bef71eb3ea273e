"""Links as an all-reduce meets them: bandwidths over message sizes, and the latency and bandwidth that explain them.

Reads the records of `hpc bench allreduce` (`records.probes`, kind `allreduce`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils import allreduce_cost
from hpc_utils.allreduce_cost import Link, Topology

from .. import stats
from ..stats import Estimate

TOLERANCE = 0.25  # the largest relative residual with which one latency and bandwidth still describe a link
FEWEST = 3  # sizes: two numbers are fitted
PART = 2 * 4  # bytes: gloo's ring sends two parts a rank, and a part holds a float32 or nothing
FLOOR = 0.05  # relative: the smallest error of a size's time that the fit assumes
OUTLIER = 2.0  # standard errors from which on a size counts less

SETTING = ["name", "hardware_id", "nodes", "ranks_per_node", "link_gbit"]
COLUMNS = [*SETTING, "group", *stats.columns(["latency", "bandwidth"]), "residual", "worst", "caveat"]

Record = Mapping[str, Any]


@dataclass(frozen=True)
class LinkFit:
    """The link that explains a group's all-reduce times as a ring.

    Attributes:
        group, ranks: of the record.
        latency: s of one message. bandwidth: byte/s in each direction. Both with their 95 % interval.
        residual: root mean square, over sizes, of modelled / measured - 1. worst: the largest absolute one, at `worst_bytes`.
        sizes: messages in bytes that were fitted to.
    """

    group: str
    ranks: int
    latency: Estimate
    bandwidth: Estimate
    residual: float
    worst: float
    worst_bytes: int
    sizes: tuple[int, ...]

    @property
    def link(self) -> Link:
        return Link(self.latency.value, self.bandwidth.value)

    @property
    def caveat(self) -> str:
        """A warning where one latency and one bandwidth do not describe every size; else ""."""
        if self.worst <= TOLERANCE:
            return ""
        errors = f"off by {self.worst:.0%} at {self.worst_bytes:,} bytes, by {self.residual:.0%} on average"
        return f"one latency and bandwidth do not describe this link: {errors}"

    def seconds(self, size: float) -> float:
        """Time of the fitted ring's all-reduce of `size` bytes."""
        return _ring(size, self.ranks, self.link)


def bandwidths(record: Record) -> pd.DataFrame:
    """One row per group and message size: median time of the slowest rank over repeats.

    Columns: group, ranks, nodes, bytes (of the message); seconds, low, high (95 %), repeats; algorithm_bandwidth and
    bus_bandwidth (byte/s, of the median).
    """
    rows = []
    for name, group in record["groups"].items():
        for sample in group["samples"]:
            seconds = stats.median(sample["seconds"])
            algorithm, bus = allreduce_cost.bandwidths(sample["bytes"], seconds.value, group["ranks"])
            row = {"group": name, "ranks": group["ranks"], "nodes": group["nodes"], "bytes": sample["bytes"]}
            row |= seconds.measure("seconds") | {"algorithm_bandwidth": algorithm, "bus_bandwidth": bus}
            rows.append(row)
    names = ["group", "ranks", "nodes", "bytes", "seconds", "low", "high", "repeats"]
    return pd.DataFrame(rows, columns=[*names, "algorithm_bandwidth", "bus_bandwidth"])


def link_table(records: Iterable[Record]) -> pd.DataFrame:
    """The fit of each group of each record.

    Columns: name (the record's), hardware_id, nodes, ranks_per_node, group, link_gbit (limit of the links, Gbit/s; NaN:
    none); latency, latency_low, latency_high (s a message), bandwidth, bandwidth_low, bandwidth_high (byte/s), with 95 %
    intervals; residual, worst; caveat: a warning, or why there is no fit (then NaN).
    """
    rows = []
    for record in records:
        for group in record["groups"]:
            row = {name: record.get(name) for name in SETTING} | {"group": group}
            try:
                link = fit(record, group)
            except ValueError as error:
                rows.append(row | {"caveat": str(error)})
                continue
            row |= link.latency.columns("latency") | link.bandwidth.columns("bandwidth")
            rows.append(row | {"residual": link.residual, "worst": link.worst, "caveat": link.caveat})
    return pd.DataFrame(rows, columns=COLUMNS).astype({"link_gbit": float})


def inside(links: pd.DataFrame, hardware_id: str) -> float:
    """Measured Gbit/s between ranks of one node of that hardware; infinite where not measured. `links` as of `link_table`."""
    is_inside = (links.group == "intra") | ((links.group == "all") & (links.nodes == 1))
    bandwidths = links.bandwidth[is_inside & (links.hardware_id == hardware_id)].dropna()
    return 8e-9 * float(bandwidths.median()) if len(bandwidths) else math.inf


def newest(records: Sequence[Record]) -> Record:
    """The newest measurement (the first) over several nodes and unlimited links, else the newest, else one without groups."""
    several = [record for record in records if record["nodes"] > 1 and not record["link_gbit"]]
    return next(iter(several or records), {"name": "", "groups": {}})


def fits(record: Record, links: pd.DataFrame) -> list[LinkFit]:
    """The fits of the record's groups that have one; `links`: as of `link_table`."""
    return [fit(record, group) for group in links.group[(links.name == record["name"]) & links.latency.notna()]]


def reach(links: pd.DataFrame, hardware_id: str, without: Sequence[float] = ()) -> Estimate | None:
    """The share of its nominal bandwidth that a limited link between nodes of that hardware gives an all-reduce, at the rate
    with the largest share (at faster rates the processor is the limit); None where not measured.

    links: as of `link_table`. without: rates (Gbit/s) to leave out.
    """
    is_same = (links.hardware_id == hardware_id) | links.hardware_id.str.startswith(f"{hardware_id}-")
    is_limited = (
        (links.nodes > 1) & (links.group != "intra") & links.link_gbit.notna() & ~links.link_gbit.isin(without)
    )
    shares = (links.bandwidth / links.link_gbit)[is_same & is_limited].dropna()
    if shares.empty:
        return None
    best = links.loc[shares.idxmax()]
    nominal = best.link_gbit * 1e9 / 8
    return Estimate(*(float(best[name]) / nominal for name in stats.columns(["bandwidth"])), 2)


def fit(record: Record, group: str) -> LinkFit:
    """Latency and bandwidth of the ring (`allreduce_cost.ring`) that comes closest to a group's times.

    Least squares of log(modelled / measured) of each size's median, weighted by the spread of its repeats, with a soft-L1
    loss, because libraries change their protocol at some sizes. The 95 % intervals are t intervals of the logs from the
    residuals over sizes. Messages of fewer than two numbers a rank are omitted.

    Raises:
        ValueError: fewer than three sizes.
    """
    from scipy.optimize import least_squares

    ranks = record["groups"][group]["ranks"]
    samples = [sample for sample in record["groups"][group]["samples"] if sample["bytes"] >= PART * ranks]
    if len(samples) < FEWEST:
        raise ValueError(
            f"{group}: {len(samples)} sizes of {PART * ranks} bytes or more, expected {FEWEST}: raise --largest"
        )
    sizes = np.array([sample["bytes"] for sample in samples], dtype=float)
    times = np.array([float(np.median(sample["seconds"])) for sample in samples])
    deviations = np.array([_standard_error(sample["seconds"]) for sample in samples])

    def errors(logs: np.ndarray) -> np.ndarray:
        link = Link(*np.exp(logs))
        return np.log([_ring(size, ranks, link) for size in sizes] / times)

    def slopes(logs: np.ndarray) -> np.ndarray:
        unlimited = Link(float(np.exp(logs[0])), math.inf)
        share = np.array([_ring(size, ranks, unlimited) for size in sizes]) / (times * np.exp(errors(logs)))
        return np.column_stack([share, share - 1])

    # Start from the ends: the smallest message is all latency, the largest all bandwidth.
    latency = times[0] / _ring(0, ranks, Link(1.0, 1.0))
    bandwidth = _ring(sizes[-1], ranks, Link(0.0, 1.0)) / times[-1]
    logs = least_squares(
        lambda logs: errors(logs) / deviations,
        np.log([latency, bandwidth]),
        lambda logs: slopes(logs) / deviations[:, None],
        loss="soft_l1",
        f_scale=OUTLIER,
    ).x
    slope = slopes(logs)
    freedom = len(sizes) - 2
    scaled = errors(logs) / deviations
    weights = 1 / (deviations**2 * np.sqrt(1 + (scaled / OUTLIER) ** 2))  # of the soft L1 loss
    variance = np.linalg.inv(slope.T @ (weights[:, None] * slope)) * (scaled**2).sum() / freedom
    half = stats.t_quantile(freedom) * np.sqrt(np.diag(variance))
    repeats = min(len(sample["seconds"]) for sample in samples)
    estimates = [Estimate(*ends, repeats) for ends in np.exp([logs, logs - half, logs + half]).T.tolist()]
    relative = np.abs(np.expm1(errors(logs)))
    worst = int(relative.argmax())
    residual = float(np.sqrt((relative**2).mean()))
    return LinkFit(
        group, ranks, *estimates, residual, float(relative[worst]), int(sizes[worst]), tuple(map(int, sizes))
    )


def _standard_error(seconds: Sequence[float]) -> float:
    """Relative standard error of a size's time."""
    spread = float(np.std(np.log(seconds), ddof=1)) / math.sqrt(len(seconds)) if len(seconds) > 1 else 0.0
    return math.hypot(FLOOR, spread)


def _ring(size: float, ranks: int, link: Link) -> float:
    return allreduce_cost.ring(size, Topology(1, ranks, link, link))
