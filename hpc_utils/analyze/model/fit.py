"""The model of a step (`step`), fitted to a few measured runs, and its predictions with intervals.

fitted = fit(points(runs), Work.from_profile(profile))
fitted.predict(grid)
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.allreduce_cost import Link, Topology, evenly
from hpc_utils.records.identity import PLANNED, SAME, task

from ..points import cores_per_rank, step_seconds
from ..scaling import usable
from ..stats import TAILS, Estimate, medians
from .step import Costs, Step, Work, step

DRAWS = 300
MODELLED = ("none", "ddp")  # the kinds of parallelism that the model knows
BUCKET_MB = 25.0  # torch's default, where a run does not record DDP's
FLOOR = 0.02  # share of a step: the smallest scatter that the fit assumes
POINT = ["nodes", "ranks_per_node", "world_size", "grouped", "batch_per_device", "gbit"]

FIRST = Costs()
# Standard deviation of the log of each cost's first guess; a cost that the data do not determine stays within it.
WIDTHS = Costs(scale=0.3, group=1.5, host=1.5, reach=0.2, latency=1.0, drag=1.5)
UNITS = ["ratio", "s", "s/B", "ratio", "s", "ratio"]  # of the costs, in their order


def points(runs: pd.DataFrame, *, gbit: float = math.inf) -> pd.DataFrame:
    """One row per run, as `fit` takes them: `POINT`, seconds (of a step), run_id.

    `gbit`: rate of the nodes' links where a run did not limit them; infinite if links do not matter.
    """
    columns = {name: runs[name].astype(int) for name in POINT[:3]} | {
        "grouped": runs.parallel != "none",
        "batch_per_device": runs.batch_per_device.astype(float),
        "gbit": pd.to_numeric(runs.link_gbit).astype(float).fillna(gbit),
        "seconds": step_seconds(runs).astype(float),
        "run_id": runs.run_id,
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def grid(kind: str, batch: float, worlds: Iterable[int], ranks_per_node: int, gbit: float) -> pd.DataFrame:
    """The `POINT` of each number of ranks in `worlds`, of one curve: `batch` samples of all ranks ("strong") or of each ("weak")."""
    rows = [
        (*evenly(world, ranks_per_node), world, world > 1, batch / world if kind == "strong" else batch, gbit)
        for world in worlds
    ]
    return pd.DataFrame(rows, columns=POINT)


@dataclass(frozen=True)
class Fitted:
    """The model of one workload on one kind of device.

    Attributes:
        work, costs: the parts of the step. covariance: of the logs of the costs, in their order.
        residual: standard deviation of log(measured / fitted) over configurations. measured: the runs that it was fitted to.
        bucket_mb: DDP's bucket. intra_gbit: measured rate between ranks of one node. widths: as of `WIDTHS`.
    """

    work: Work
    costs: Costs
    covariance: np.ndarray
    residual: float
    measured: pd.DataFrame
    bucket_mb: float = BUCKET_MB
    intra_gbit: float = math.inf
    widths: Costs = WIDTHS

    @functools.cached_property
    def baseline(self) -> str:
        """T(1) of its curves: "none", or "ddp" if it was fitted to no run without a process group and predicts none."""
        return "ddp" if self.measured.grouped.all() else "none"

    def step(self, row: tuple, costs: Costs | None = None) -> Step:
        """The step at one row (`itertuples`) of a frame with the columns `POINT`; by default with the fitted costs."""
        costs = costs or self.costs
        inter, intra = (Link(costs.latency, gbit * 1e9 / 8) for gbit in (row.gbit, self.intra_gbit))
        topology = Topology(int(row.nodes), int(row.ranks_per_node), inter, intra)
        batch = row.batch_per_device
        grouped = row.grouped or self.baseline == "ddp"
        return step(self.work, costs, topology, batch, grouped=grouped, bucket_mb=self.bucket_mb)

    def predict(self, grid: pd.DataFrame, draws: np.ndarray | None = None) -> pd.DataFrame:
        """Steps at the points of `grid` (columns `POINT`), one row each. `draws`: its `_draws`, if they are there.

        Adds: seconds, low, high (of a step; 95 % interval for the median of runs measured there), the parts of `Step` in
        seconds, algorithm, bottleneck, extrapolation (the quantities in which the point is outside the measured range).
        """
        rows = list(grid.itertuples())
        steps = [self.step(row) for row in rows]
        low, high = _interval(self._draws(grid) if draws is None else draws)
        parts = pd.DataFrame([one._asdict() for one in steps], index=grid.index, columns=Step._fields)
        return grid.assign(
            seconds=[one.seconds for one in steps], low=low, high=high, **parts,
            bottleneck=[one.bottleneck for one in steps], extrapolation=[self._beyond(row) for row in rows],
        )  # fmt: skip

    def scaling(
        self, kind: str, batch: float, worlds: Sequence[int], *, ranks_per_node: int = 1, gbit: float = math.inf
    ) -> pd.DataFrame:
        """`predict` for `worlds` ranks, with kind, baseline, speedup, efficiency, efficiency_low and efficiency_high against
        one rank as of `baseline`.

        `batch`: of all ranks (kind "strong", at least one sample a rank) or of each ("weak"). If T(1) is extrapolated, so
        is every row.
        """
        strong = kind == "strong"
        worlds = [1, *(world for world in worlds if 1 < world <= (batch if strong else math.inf))]
        points = grid(kind, batch, worlds, ranks_per_node, gbit)
        draws = self._draws(points)
        found = self.predict(points, draws)
        share = np.array(worlds if strong else [1] * len(worlds))
        low, high = _interval(draws[:, :1] - draws - np.log(share))
        efficiency = found.seconds.iloc[0] / found.seconds / share
        base = found.extrapolation.iloc[0]
        return found.assign(
            kind=kind, baseline=self.baseline, speedup=efficiency * worlds, efficiency=efficiency, efficiency_low=low, efficiency_high=high,
            extrapolation=[one or (base and f"T(1): {base}") for one in found.extrapolation],
        )  # fmt: skip

    def errors(self, measured: pd.DataFrame) -> pd.DataFrame:
        """`predict` for each configuration of `measured` (as of `points`), with measured (median, s), measured_low,
        measured_high (NaN: a single run), repeats, error (predicted / measured - 1) and runs."""
        groups = measured.groupby(POINT).agg(each=("seconds", list), runs=("run_id", tuple)).reset_index()
        groups[["measured", "measured_low", "measured_high", "repeats"]] = medians(groups.pop("each").tolist())
        found = self.predict(groups.astype({"repeats": int}))
        return found.assign(error=found.seconds / found.measured - 1)

    def table(self) -> pd.DataFrame:
        """One row per cost: cost, value, low, high (95 %), unit, significant (whether the runs narrowed the prior interval to less than half)."""
        spread, value = np.sqrt(np.diag(self.covariance)), np.array(_values(self.costs))
        columns = {"cost": list(asdict(self.costs)), "value": value, "low": value * np.exp(-1.96 * spread)}
        columns |= {"high": value * np.exp(1.96 * spread), "unit": UNITS}
        return pd.DataFrame(columns | {"significant": spread < np.array(_values(self.widths)) / 2})

    def _draws(self, grid: pd.DataFrame) -> np.ndarray:
        """(draws, rows) logs of step times, for costs drawn from their distribution, with the scatter of runs."""
        rows = list(grid.itertuples())
        generator = np.random.default_rng(0)
        costs = np.exp(
            generator.multivariate_normal(np.log(_values(self.costs)), self.covariance, DRAWS, method="eigh")
        )
        seconds = np.array([[self.step(row, Costs(*one)).seconds for row in rows] for one in costs])
        return np.log(seconds) + generator.normal(0, self.residual, seconds.shape)

    def _beyond(self, row: tuple) -> str:
        """The quantities of `row` that are outside the measured range, in words."""
        units = {"world_size": "ranks", "nodes": "nodes", "ranks_per_node": "ranks a node"}
        units |= {"batch_per_device": "samples a rank"} | ({"gbit": "Gbit/s"} if row.nodes > 1 else {})
        many, found = self.measured[self.measured.world_size > 1], []
        for name, unit in units.items():
            known, value = (many if name == "gbit" else self.measured)[name], getattr(row, name)
            if len(known) and not known.min() <= value <= known.max():
                low, high, value = (
                    "unlimited" if math.isinf(one) else f"{one:g}" for one in (known.min(), known.max(), value)
                )
                found.append(f"{value} {unit} ({low if low == high else f'{low} to {high}'} measured)")
        return ", ".join(found)


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

    Maximum a posteriori with log-normal priors (`first`, `WIDTHS`) and Laplace's approximation (MacKay 2003, chapter 27).
    A configuration counts once, by the median of its repeats, because what the model misses is common to them. `reach`: the
    measured share of the nominal bandwidth that an all-reduce alone gets (`links.reach`), as a prior of that width.

    Raises:
        ValueError: fewer than two configurations.
    """
    from scipy.optimize import least_squares

    middle = measured.groupby(POINT).seconds.median().reset_index()
    if len(middle) < 2:
        raise ValueError("one configuration does not separate compute from communication: measure at least two")
    rows, seconds = list(middle.itertuples()), np.log(middle.seconds.to_numpy(float))
    wide = WIDTHS
    if reach is not None:
        own = math.log(reach.high / reach.low) / (2 * 1.96) if reach.repeats > 1 else WIDTHS.reach
        first, wide = replace(first, reach=reach.value), replace(WIDTHS, reach=max(FLOOR, own))
    guess, widths = np.log(_values(first)), np.array(_values(wide))
    draft = Fitted(work, first, np.diag(widths**2), FLOOR, measured, bucket_mb, intra_gbit, wide)

    def off(logs: np.ndarray) -> np.ndarray:
        costs = Costs(*np.exp(logs))
        return np.log([draft.step(row, costs).seconds for row in rows]) - seconds

    best, spread = guess, 0.05
    for _ in range(3):  # the scatter weighs data against priors, and comes from the fit itself
        found = least_squares(
            lambda logs, spread=spread: np.concatenate([off(logs) / spread, (logs - guess) / widths]), best
        )
        best = found.x
        spread = max(FLOOR, float(np.sqrt(np.sum(off(best) ** 2) / max(1, len(rows) - len(best)))))
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    return replace(draft, costs=Costs(*np.exp(best)), covariance=covariance, residual=spread)


def held_out(
    measured: pd.DataFrame, work: Work, gbits: Sequence[float] = (), *, most_ranks: float = math.inf, **options: Any
) -> tuple[Fitted, pd.DataFrame]:
    """Fit without the runs at these link rates and on more than `most_ranks` ranks, and predict them too: (the model, its
    `errors` with held_out)."""

    def away(rows: pd.DataFrame) -> pd.Series:
        return (rows.gbit.isin(gbits) & (rows.world_size > 1)) | (rows.world_size > most_ranks)

    fitted = fit(measured[~away(measured)], work, **options)
    errors = fitted.errors(measured)
    return fitted, errors.assign(held_out=away(errors))


def families(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """{label: the runs that one model can be fitted to}, most configurations first.

    One workload and loop on one kind of device with one `bucket_mb`, whatever layout, batch and link. Without barred and
    profiled runs, and without those that compress or accumulate gradients.
    """
    keys = [*(name for name in SAME if name not in ("device", "link_gbit")), "bucket_mb"]
    plain = runs.comm_hook.fillna("none").eq("none") & runs.accumulate.fillna(1).eq(1)
    known = usable(runs[runs.parallel.isin(MODELLED) & plain])
    groups = [own for _, own in known.assign(bucket_mb=known.bucket_mb.fillna(BUCKET_MB)).groupby(keys, dropna=False)]
    found = {}
    for own in sorted(groups, key=lambda own: -points(own).groupby(POINT).ngroups):
        run = own.iloc[0]
        label = f"{task(run)}, {run.precision}, {run.device_name} ({run.hardware_id})"
        label += f", {run.threads_per_rank:g} of a core" if run.threads_per_rank < 1 else ""
        found[f"{label}, as {run.run_id}" if label in found else label] = own
    return found


class Answer(NamedTuple):
    """`seconds` of a step; `note`: the quantities in which it is extrapolated, "" if none."""

    seconds: Estimate
    note: str


def predictor(
    runs: pd.DataFrame, epochs: pd.DataFrame, profiles: Iterable[Mapping[str, Any]] = (), *, gbit: float = math.inf
) -> Callable[[Mapping[str, Any]], Answer | None]:
    """A function from a planned point (`PLANNED`, nodes, ranks_per_node, world_size, parallel, batch_per_device, link_gbit) to
    the time of its step; None where no model can be fitted to runs that are equal in `PLANNED`.

    Args:
        runs, epochs: as of `records.load`. profiles: records of `results/probes/compute`. gbit: rate of the nodes' links.
    """
    known = usable(runs[runs.parallel.isin(MODELLED)])
    groups = dict(list(known.assign(cores_per_rank=cores_per_rank(known)).groupby(PLANNED)))
    profiles = list(profiles)

    @functools.cache
    def fitted(key: tuple) -> Fitted | None:
        for own in families(groups[key]).values() if key in groups else ():
            with contextlib.suppress(ValueError):
                work = Work.of(own, epochs, profiles)
                return fit(points(own, gbit=gbit), work, bucket_mb=own.bucket_mb.iloc[0])
        return None

    def predict(point: Mapping[str, Any]) -> Answer | None:
        model = fitted(tuple(point[name] for name in PLANNED))
        if model is None or point["parallel"] not in MODELLED:
            return None
        more = {"grouped": point["parallel"] != "none", "gbit": point.get("link_gbit") or gbit}
        found = model.predict(pd.DataFrame([dict(point) | more])[POINT]).iloc[0]
        seconds = Estimate(found.seconds, found.low, found.high, len(model.measured))
        return Answer(seconds, found.extrapolation and f"extrapolation: {found.extrapolation}")

    return predict


def _values(costs: Costs) -> list:
    return list(asdict(costs).values())


def _interval(logs: np.ndarray) -> np.ndarray:
    return np.exp(np.quantile(logs, TAILS, axis=0))
