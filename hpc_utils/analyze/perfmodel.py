"""The time of a training step from what it consists of: compute, gradients that overlap it or not, the link, stragglers.

    fitted = fit(points(runs), Work.from_profile(profile))   # a few small runs
    fitted.predict(grid)                                     # seconds with intervals, parts, the bottleneck

A step is data, forward, backward, optimizer, one after another. During the backward pass DDP's buckets become ready and
travel one after another; what is not hidden behind the rest of the pass is exposed. What a rank's own processor spends
on a byte that travels (copying, adding up, the protocol) delays the compute that it overlaps. All ranks wait for the
slowest. Assumed: equal devices, one job on the links, gradients of 4 bytes, no congestion inside the network.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from hpc_utils import collective
from hpc_utils.collective import Link, Topology, evenly

from .curves import usable
from .stats import CONFIDENCE
from .work import Work

DRAWS = 300
FLOOR = 0.02  # of a step: no measurement is trusted further
NEGLIGIBLE = 0.1  # of a step: with less lost, computing is what limits
POINT = ["nodes", "ranks_per_node", "world_size", "grouped", "batch_per_device", "gbit"]


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


# How far each may be from its first guess, as the standard deviation of its log: what data cannot tell stays there.
WIDTHS = Costs(scale=0.3, group=1.5, host=1.5, reach=0.2, latency=1.0, drag=1.5)


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
        (bucket, *collective.cheapest(bucket.size, _reached(topology, costs))) for bucket in work.buckets(bucket_mb)
    ]
    delay, exposed = _overlap(
        costs.scale * work.backward.seconds(batch),
        [(bucket.ready, wire, costs.host * sent * bucket.size) for bucket, _, wire in wires],
        1 / (1 + costs.drag),
    )
    of_host = min(exposed, costs.host * sent * work.gradient_bytes - delay)
    of_link = exposed - of_host
    unlimited = _reached(topology, costs, unlimited=True)
    total = sum(wire for *_, wire in wires)
    waiting = sum(collective.ALGORITHMS[name](bucket.size, unlimited) for bucket, name, _ in wires)
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
        start, whole = max(backward * ready + delay, free), wire + host
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


def points(runs: pd.DataFrame, *, gbit: float = math.inf) -> pd.DataFrame:
    """One row a run, as `fit` takes them: `POINT`, seconds (a step's), repeat, run_id.

    `gbit`: the nodes' links where a run does not say that they were limited; infinite if they do not matter.
    """
    return pd.DataFrame(
        {
            "nodes": runs.nodes.astype(int),
            "ranks_per_node": runs.ranks_per_node.astype(int),
            "world_size": runs.world_size.astype(int),
            "grouped": runs.parallel != "none",
            "batch_per_device": runs.batch_per_device.astype(float),
            "gbit": pd.to_numeric(runs.link_gbit).astype(float).fillna(gbit),
            "seconds": (runs.seconds / runs.samples * runs.global_batch).astype(float),
            "repeat": runs.repeat,
            "run_id": runs.run_id,
        }
    ).reset_index(drop=True)


@dataclass(frozen=True)
class Fitted:
    """A model of one workload on one kind of device, and how sure it is.

    Attributes:
        work, costs: what it consists of. covariance: of the logs of the costs, in their order.
        residual: standard deviation of log(measured / fitted), over configurations. measured: the runs it was fitted on.
        bucket_mb: DDP's bucket. intra_gbit: what ranks of one node were measured to talk over.
    """

    work: Work
    costs: Costs
    covariance: np.ndarray
    residual: float
    measured: pd.DataFrame
    bucket_mb: float = 25.0
    intra_gbit: float = math.inf

    def step(self, row: tuple, costs: Costs | None = None) -> Step:
        """The step at one row (`itertuples`) of a frame with the columns `POINT`."""
        return _step(self.work, costs or self.costs, row, self.bucket_mb, self.intra_gbit)

    def predict(self, grid: pd.DataFrame) -> pd.DataFrame:
        """Steps at the points of `grid` (columns `POINT`), one row each.

        Adds: seconds, low, high (the step's time; 95 % interval for the median of runs measured there), the parts of `Step` in
        seconds, algorithm, bottleneck, extrapolation (in what the point lies beyond what was measured; "" if in
        nothing).
        """
        rows = list(grid.itertuples())
        steps = [self.step(row) for row in rows]
        low, high = self._interval(np.log(self._draws(rows)))
        parts = pd.DataFrame([one._asdict() for one in steps], index=grid.index, columns=Step._fields)
        return grid.assign(
            seconds=[one.seconds for one in steps], low=low, high=high, **parts,
            bottleneck=[one.bottleneck for one in steps], extrapolation=[self._beyond(row) for row in rows],
        )  # fmt: skip

    def scaling(
        self, kind: str, batch: float, worlds: Sequence[int], *, ranks_per_node: int = 1, gbit: float = math.inf
    ) -> pd.DataFrame:
        """`predict` over `worlds` ranks with speedup and efficiency (efficiency_low, efficiency_high) against one rank
        without a group. `batch`: of all ranks (kind "strong": then not beyond one sample a rank) or of each ("weak").
        Every efficiency rests on T(1): where that is extrapolated, each row says so."""
        most = batch if kind == "strong" else math.inf  # a rank has a sample at least
        worlds = [1, *[world for world in worlds if 1 < world <= most]]
        layouts = [evenly(world, ranks_per_node) for world in worlds]
        grid = pd.DataFrame(
            {
                "nodes": [nodes for nodes, _ in layouts],
                "ranks_per_node": [each for _, each in layouts],
                "world_size": worlds,
                "grouped": [world > 1 for world in worlds],
                "batch_per_device": [batch / world if kind == "strong" else batch for world in worlds],
                "gbit": gbit,
            }
        )
        found = self.predict(grid)
        draws = np.log(self._draws(list(grid.itertuples())))
        share = np.array(worlds if kind == "strong" else [1] * len(worlds))
        low, high = self._interval(draws[:, :1] - draws - np.log(share))
        efficiency = found.seconds.iloc[0] / found.seconds / share
        base = found.extrapolation.iloc[0]
        return found.assign(
            kind=kind, speedup=efficiency * worlds, efficiency=efficiency, efficiency_low=low, efficiency_high=high,
            extrapolation=[one or (base and f"T(1): {base}") for one in found.extrapolation],
        )  # fmt: skip

    def errors(self, measured: pd.DataFrame) -> pd.DataFrame:
        """Predicted against measured, one row a configuration of `measured` (as of `points`): `predict`'s columns and
        measured (median, s), repeats, error (predicted / measured - 1)."""
        groups = measured.groupby(POINT)["seconds"].agg(measured="median", repeats="count").reset_index()
        found = self.predict(groups)
        return found.assign(error=found.seconds / found.measured - 1)

    def table(self) -> pd.DataFrame:
        """The costs with 95 % intervals: cost, value, low, high, unit, told (whether the data narrowed the first guess)."""
        spread = np.sqrt(np.diag(self.covariance))
        units = dict(zip(asdict(self.costs), ["", "s/step", "s/byte", "", "s/message", ""], strict=True))
        widths = asdict(WIDTHS)
        return pd.DataFrame(
            [
                {
                    "cost": name, "value": value, "low": value * math.exp(-1.96 * own),
                    "high": value * math.exp(1.96 * own), "unit": units[name], "told": own < widths[name] / 2,
                }
                for (name, value), own in zip(asdict(self.costs).items(), spread, strict=True)
            ]
        )  # fmt: skip

    def _draws(self, rows: list[tuple]) -> np.ndarray:
        """(draws, rows) step times for costs as sure as they are, and the scatter of single runs on top."""
        generator = np.random.default_rng(0)
        centre = np.log(list(asdict(self.costs).values()))
        costs = np.exp(generator.multivariate_normal(centre, self.covariance, DRAWS, method="eigh"))
        seconds = np.array([[self.step(row, Costs(*one)).seconds for row in rows] for one in costs])
        return seconds * np.exp(generator.normal(0, self.residual, seconds.shape))

    def _interval(self, logs: np.ndarray) -> np.ndarray:
        tail = (1 - CONFIDENCE) / 2
        return np.exp(np.quantile(logs, [tail, 1 - tail], axis=0))

    def _beyond(self, row: tuple) -> str:
        many = self.measured[self.measured.world_size > 1]
        looks = [
            (self.measured.world_size, row.world_size, "ranks"),
            (self.measured.nodes, row.nodes, "nodes"),
            (self.measured.ranks_per_node, row.ranks_per_node, "ranks a node"),
            (self.measured.batch_per_device, row.batch_per_device, "samples a rank"),
        ]
        looks += [(many.gbit, row.gbit, "Gbit/s")] if row.nodes > 1 and len(many) else []
        return ", ".join(filter(None, (_outside(*look) for look in looks)))


def fit(
    measured: pd.DataFrame,
    work: Work,
    *,
    first: Costs = Costs(),
    bucket_mb: float = 25.0,
    intra_gbit: float = math.inf,
) -> Fitted:
    """The costs that explain the step times of `measured` (as of `points`) best, by relative error.

    Maximum a posteriori with log-normal first guesses (`first`, `WIDTHS`), Laplace's approximation for how sure they are
    (MacKay 2003, chapter 27). A configuration counts once, by the median of its repeats: what the model misses is common
    to them. Measure the link with `hpc bench allreduce` and give its latency as first guess.

    Raises:
        ValueError: fewer than two configurations.
    """
    from scipy.optimize import least_squares

    medians = measured.groupby(POINT).seconds.median().reset_index()
    if len(medians) < 2:
        raise ValueError(
            "one configuration cannot be told apart into compute and communication: measure at least two"
        )
    rows, seconds = list(medians.itertuples()), np.log(medians.seconds.to_numpy(float))
    guess, widths = np.log(list(asdict(first).values())), np.array(list(asdict(WIDTHS).values()))

    def off(logs: np.ndarray) -> np.ndarray:
        costs = Costs(*np.exp(logs))
        return np.log([_step(work, costs, row, bucket_mb, intra_gbit).seconds for row in rows]) - seconds

    best, spread = guess, 0.05
    for _ in range(3):  # the scatter weighs data against first guesses, and is found from the fit itself
        found = least_squares(
            lambda logs, spread=spread: np.concatenate([off(logs) / spread, (logs - guess) / widths]), best
        )
        best = found.x
        spread = max(FLOOR, float(np.sqrt(np.sum(off(best) ** 2) / max(1, len(rows) - len(best)))))
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    return Fitted(work, Costs(*np.exp(best)), covariance, spread, measured, bucket_mb, intra_gbit)


def _step(work: Work, costs: Costs, row: tuple, bucket_mb: float, intra_gbit: float) -> Step:
    inter, intra = (Link(costs.latency, gbit * 1e9 / 8) for gbit in (row.gbit, intra_gbit))
    topology = Topology(int(row.nodes), int(row.ranks_per_node), inter, intra)
    return step(work, costs, topology, row.batch_per_device, grouped=row.grouped, bucket_mb=bucket_mb)


def _outside(measured: pd.Series, value: float, unit: str) -> str:
    low, high = measured.min(), measured.max()
    if low <= value <= high:
        return ""
    low, high, value = ("unlimited" if math.isinf(one) else f"{one:g}" for one in (low, high, value))
    return f"{value} {unit} ({low if low == high else f'{low} to {high}'} measured)"


def families(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The runs that one model can be fitted on, by a label: one workload on one kind of device, whatever layout, batch,
    link; without those that had more ranks than cores. Those with most configurations first."""
    keys = [
        "workload",
        "dataset",
        "precision",
        "device_name",
        "hardware_id",
        "threads_per_rank",
        "emulated",
        "parameters",
    ]
    found = {}
    for key, own in usable(runs).groupby(keys, dropna=False):
        workload, dataset, precision, device, hardware, *_ = key
        label = f"{workload} on {dataset}, {precision}, {device} ({hardware}{', emulated' if key[6] else ''})"
        found[
            label
            if label not in found
            else f"{label}, {key[5]} threads, {key[7]} parameters, buckets of {key[8]} MiB"
        ] = own
    return dict(sorted(found.items(), key=lambda one: -points(one[1]).groupby(POINT).ngroups))


def held_out(
    measured: pd.DataFrame, work: Work, gbits: Sequence[float], **options: float
) -> tuple[Fitted, pd.DataFrame]:
    """Fit without the runs at these link rates, then predict them too: (the model, its `errors` with held_out)."""
    away = measured.gbit.isin(gbits) & (measured.world_size > 1)
    fitted = fit(measured[~away], work, **options)
    errors = fitted.errors(measured)
    return fitted, errors.assign(held_out=errors.gbit.isin(gbits) & (errors.world_size > 1))


class Curve(NamedTuple):
    """Runs of one kind (strong, weak), size (its fixed batch: of all ranks, or of each) and link, as of `points`."""

    kind: str
    size: float
    gbit: float
    runs: pd.DataFrame


def curves(measured: pd.DataFrame) -> Iterator[Curve]:
    """The curves in `measured` (as of `points`) that reach three numbers of ranks, of DDP alone. One rank needs no link:
    it belongs to the curves of every link. Of several layouts of as many ranks the one on fewest nodes is taken."""
    grouped = measured[measured.grouped].assign(global_batch=lambda runs: runs.batch_per_device * runs.world_size)
    fewest = grouped.groupby(["world_size", "batch_per_device", "gbit"]).nodes.transform("min")
    grouped = grouped[grouped.nodes == fewest]
    for kind, fixed in (("strong", "global_batch"), ("weak", "batch_per_device")):
        for size, own in grouped.groupby(fixed):
            alone = own.world_size == 1
            for gbit in sorted(set(own.gbit[~alone])):
                curve = own[alone | (own.gbit == gbit)].assign(gbit=gbit)
                if curve.world_size.nunique() > 2:
                    yield Curve(kind, size, gbit, curve)


def law(
    work: Work, curve: Curve, **options: float
) -> Callable[[pd.DataFrame], Callable[[Sequence[float]], np.ndarray]]:
    """The model as a law is: fitted to runs, a function of the number of ranks alone (for `laws.compare`). All else is as
    in the largest layout of `curve`. `options`: of `fit`."""
    most = int(curve.runs.ranks_per_node.max())

    def grid(worlds: Sequence[float]) -> pd.DataFrame:
        layouts = [(world, *evenly(world, most)) for world in map(int, worlds)]
        return pd.DataFrame(
            {
                "nodes": nodes, "ranks_per_node": each, "world_size": world, "grouped": True, "gbit": curve.gbit,
                "batch_per_device": curve.size / world if curve.kind == "strong" else curve.size,
            }
            for world, nodes, each in layouts
        )  # fmt: skip

    def fitted_to(measured: pd.DataFrame) -> Callable[[Sequence[float]], np.ndarray]:
        fitted = fit(measured, work, **options)
        return lambda worlds: np.array([fitted.step(row).seconds for row in grid(worlds).itertuples()])

    return fitted_to


def bottlenecks(predicted: pd.DataFrame) -> pd.DataFrame:
    """What limits from how many ranks on: one row a stretch of `Fitted.scaling` with one bottleneck.

    Columns: kind, gbit, bottleneck, from_ranks, to_ranks; efficiency, low, high (at from_ranks), extrapolation (there).
    """
    many = predicted[predicted.world_size > 1]
    stretch = (many.bottleneck != many.bottleneck.shift()).cumsum()
    rows = [
        {
            "kind": own.kind.iloc[0], "gbit": own.gbit.iloc[0], "bottleneck": own.bottleneck.iloc[0],
            "from_ranks": own.world_size.min(), "to_ranks": own.world_size.max(), "efficiency": own.efficiency.iloc[0],
            "low": own.efficiency_low.iloc[0], "high": own.efficiency_high.iloc[0],
            "extrapolation": own.extrapolation.iloc[0],
        }
        for _, own in many.groupby(stretch)
    ]  # fmt: skip
    return pd.DataFrame(rows)
