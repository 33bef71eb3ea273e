"""The performance model: a step's costs (`step`), fitted to a few small runs, asked about others with intervals.

    fitted = fit(points(runs), Work.from_profile(profile))
    fitted.predict(grid)

A prediction is seconds with their interval, their parts, and the bottleneck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.allreduce_cost import Link, Topology, evenly
from hpc_utils.records.identity import CODE, SAME

from .curves import usable
from .points import step_seconds
from .stats import CONFIDENCE, Estimate, medians
from .step import Costs, Step, step
from .work import Work

DRAWS = 300
MODELLED = ("none", "ddp")  # the kinds of parallelism whose step is known here
BUCKET_MB = 25.0  # torch's own, where a loop does not say DDP's
FLOOR = 0.02  # of a step: no measurement is trusted further
POINT = ["nodes", "ranks_per_node", "world_size", "grouped", "batch_per_device", "gbit"]

FIRST = Costs()
# How far each may be from its first guess, as the standard deviation of its log: what data cannot tell stays there.
WIDTHS = Costs(scale=0.3, group=1.5, host=1.5, reach=0.2, latency=1.0, drag=1.5)


def points(runs: pd.DataFrame, *, gbit: float = math.inf) -> pd.DataFrame:
    """One row a run, as `fit` takes them: `POINT`, seconds (a step's); run_id.

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
            "seconds": step_seconds(runs).astype(float),
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
        widths: how far each cost might have been from its first guess (`WIDTHS`).
    """

    work: Work
    costs: Costs
    covariance: np.ndarray
    residual: float
    measured: pd.DataFrame
    bucket_mb: float = BUCKET_MB
    intra_gbit: float = math.inf
    widths: Costs = WIDTHS

    def step(self, row: tuple, costs: Costs | None = None) -> Step:
        """The step at one row (`itertuples`) of a frame with the columns `POINT`."""
        return _step(self.work, costs or self.costs, row, self.bucket_mb, self.intra_gbit)

    def predict(self, grid: pd.DataFrame) -> pd.DataFrame:
        """Steps at the points of `grid` (columns `POINT`), one row each.

        Adds: seconds, low, high (the step's time; 95 % interval for the median of runs measured there), the parts of `Step` in
        seconds, algorithm, bottleneck, extrapolation (in what the point lies beyond what was measured; "" if in
        nothing).
        """
        return self._predicted(grid, self._draws(grid))

    def _predicted(self, grid: pd.DataFrame, draws: np.ndarray) -> pd.DataFrame:
        rows = list(grid.itertuples())
        steps = [self.step(row) for row in rows]
        low, high = self._interval(draws)
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
        draws = self._draws(grid)
        found = self._predicted(grid, draws)
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
        measured (median, s) with its 95 % interval in measured_low and measured_high (NaN: a single run), repeats, error
        (predicted / measured - 1), runs (their ids)."""
        groups = measured.groupby(POINT).agg(each=("seconds", list), runs=("run_id", tuple)).reset_index()
        groups[["measured", "measured_low", "measured_high", "repeats"]] = medians(groups.pop("each").tolist())
        found = self.predict(groups.astype({"repeats": int}))
        return found.assign(error=found.seconds / found.measured - 1)

    def table(self) -> pd.DataFrame:
        """The costs with 95 % intervals: cost, value, low, high, unit (s: a step or message), told (whether the data narrowed the first
        guess)."""
        spread = np.sqrt(np.diag(self.covariance))
        units = dict(zip(asdict(self.costs), ["ratio", "s", "s/B", "ratio", "s", "ratio"], strict=True))
        widths = asdict(self.widths)
        return pd.DataFrame(
            [
                {
                    "cost": name, "value": value, "low": value * math.exp(-1.96 * own),
                    "high": value * math.exp(1.96 * own), "unit": units[name], "told": own < widths[name] / 2,
                }
                for (name, value), own in zip(asdict(self.costs).items(), spread, strict=True)
            ]
        )  # fmt: skip

    def _draws(self, grid: pd.DataFrame) -> np.ndarray:
        """(draws, rows) logs of step times for costs as sure as they are, and the scatter of runs on top."""
        rows = list(grid.itertuples())
        generator = np.random.default_rng(0)
        centre = np.log(list(asdict(self.costs).values()))
        costs = np.exp(generator.multivariate_normal(centre, self.covariance, DRAWS, method="eigh"))
        seconds = np.array([[self.step(row, Costs(*one)).seconds for row in rows] for one in costs])
        return np.log(seconds) + generator.normal(0, self.residual, seconds.shape)

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
    first: Costs = FIRST,
    bucket_mb: float = BUCKET_MB,
    intra_gbit: float = math.inf,
    reach: Estimate | None = None,
) -> Fitted:
    """The costs that explain the step times of `measured` (as of `points`) best, by relative error.

    Maximum a posteriori with log-normal first guesses (`first`, `WIDTHS`), Laplace's approximation for how sure they are
    (MacKay 2003, chapter 27). A configuration counts once, by the median of its repeats: what the model misses is common
    to them. `reach`: the share of the nominal bandwidth that an all-reduce alone was measured to get (`link.reach`): as
    sure a guess as that measurement is.

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
    wide = WIDTHS
    if reach is not None:
        own = math.log(reach.high / reach.low) / (2 * 1.96) if reach.repeats > 1 else WIDTHS.reach
        first, wide = replace(first, reach=reach.value), replace(WIDTHS, reach=max(FLOOR, own))
    guess, widths = np.log(list(asdict(first).values())), np.array(list(asdict(wide).values()))

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
    return Fitted(work, Costs(*np.exp(best)), covariance, spread, measured, bucket_mb, intra_gbit, wide)


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
    link, their `bucket_mb` told; without those that had more ranks than cores, and those that do not reduce all gradients as
    they are, once for each batch, as DDP does. Those with most configurations first."""
    # Whatever settings, code and links: the model reads of the settings what its terms need.
    other = ("settings", "device", "link_gbit", *CODE, "share_period")
    keys = [*(name for name in SAME if name not in other), "bucket_mb", "share_period"]
    found = {}
    as_they_are = runs.comm_hook.fillna("none").eq("none") & runs.accumulate.fillna(1).eq(1)
    modelled = runs[runs.parallel.isin(MODELLED) & as_they_are]
    known = usable(modelled).assign(bucket_mb=lambda own: own.bucket_mb.fillna(BUCKET_MB))
    for key, own in known.groupby(keys, dropna=False):
        workload, dataset, precision, device, hardware, *_ = key
        label = f"{workload} on {dataset}, {precision}, {device} ({hardware})"
        more = f"{key[5]:g} cores, {key[6]} parameters, buckets of {key[7]:g} MiB"
        more += "" if pd.isna(key[8]) else f", a share every {1e3 * key[8]:g} ms"
        found[f"{label}, {more}" if label in found else label] = own
    return dict(sorted(found.items(), key=lambda one: -points(one[1]).groupby(POINT).ngroups))


def held_out(
    measured: pd.DataFrame, work: Work, gbits: Sequence[float] = (), *, most_ranks: float = math.inf, **options: Any
) -> tuple[Fitted, pd.DataFrame]:
    """Fit without the runs at these link rates and without those on more than `most_ranks` ranks, then predict them too:
    (the model, its `errors` with held_out)."""

    def away(rows: pd.DataFrame) -> pd.Series:
        return (rows.gbit.isin(gbits) & (rows.world_size > 1)) | (rows.world_size > most_ranks)

    fitted = fit(measured[~away(measured)], work, **options)
    errors = fitted.errors(measured)
    return fitted, errors.assign(held_out=away(errors))


def below(predicted: pd.DataFrame, efficient: float) -> pd.DataFrame:
    """From how many of the ranks asked about a curve of `Fitted.scaling` is less efficient than `efficient`, in one row.

    Columns: kind, gbit; batch (of one rank); below_at, and below_from and below_to by the interval's ends (NaN: at none); efficient_to (the
    most ranks before below_at); limited_by (there, or on the most ranks); efficiency, low, high, extrapolation (there).
    """
    many = predicted[predicted.world_size > 1]
    row = {"kind": many.kind.iloc[0], "gbit": many.gbit.iloc[0], "batch": float(predicted.batch_per_device.iloc[0])}
    for name, column in (("at", "efficiency"), ("from", "efficiency_low"), ("to", "efficiency_high")):
        row[f"below_{name}"] = many.world_size[many[column] < efficient].min()
    good = many.world_size[~(many.world_size >= row["below_at"])]
    there = many[many.world_size == row["below_at"]] if row["below_at"] == row["below_at"] else many.tail(1)
    return pd.DataFrame(
        [row | {"efficient_to": good.max() if len(good) else 1, "limited_by": there.bottleneck.iloc[0],
                "efficiency": there.efficiency.iloc[0], "low": there.efficiency_low.iloc[0], "high": there.efficiency_high.iloc[0],
                "extrapolation": there.extrapolation.iloc[0], "world_size": there.world_size.iloc[0]}]
    )  # fmt: skip


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
