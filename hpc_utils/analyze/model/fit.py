"""The model of a step (`step`), fitted to a few measured runs, and its predictions with intervals.

fitted = fit(points(runs), Work.from_profile(profile))
fitted.predict(grid)
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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

# Standard deviation of the log of each cost around its default; a cost that the data do not determine stays within it.
WIDTHS = Costs(scale=0.3, group=1.5, host=1.5, reach=0.2, latency=1.0, drag=1.5)
UNITS = ["ratio", "s", "s/B", "ratio", "s", "ratio"]  # of the costs, in their order
# The quantities of a point that a prediction can extrapolate, with their units.
QUANTITIES = {
    "world_size": "ranks", "nodes": "nodes", "ranks_per_node": "ranks a node", "batch_per_device": "samples a rank", "gbit": "Gbit/s",
}  # fmt: skip


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

    def predict(self, planned: pd.DataFrame, draws: np.ndarray | None = None) -> pd.DataFrame:
        """Steps at the points of `planned` (columns `POINT`), one row each. `draws`: its `_draws`, if computed already.

        Adds: seconds, low, high (of a step; 95 % interval for the median of runs measured there), the parts of `Step` in
        seconds, algorithm, bottleneck, extrapolation (the quantities in which the point is outside the measured range).
        """
        rows = list(planned.itertuples())
        steps = [self.step(row) for row in rows]
        low, high = _interval(self._draws(planned) if draws is None else draws)
        parts = pd.DataFrame(steps, index=planned.index, columns=Step._fields)
        return planned.assign(
            seconds=[step.seconds for step in steps], low=low, high=high, **parts,
            bottleneck=[step.bottleneck for step in steps], extrapolation=[self._extrapolation(row) for row in rows],
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
        planned = grid(kind, batch, worlds, ranks_per_node, gbit)
        draws = self._draws(planned)
        curve = self.predict(planned, draws)
        divisor = np.array(worlds) if strong else 1
        low, high = _interval(draws[:, :1] - draws - np.log(divisor))
        efficiency = curve.seconds.iloc[0] / curve.seconds / divisor
        base = curve.extrapolation.iloc[0]
        return curve.assign(
            kind=kind, baseline=self.baseline, speedup=efficiency * worlds,
            efficiency=efficiency, efficiency_low=low, efficiency_high=high,
            extrapolation=[words or (base and f"T(1): {base}") for words in curve.extrapolation],
        )  # fmt: skip

    def errors(self, measured: pd.DataFrame) -> pd.DataFrame:
        """`predict` for each configuration of `measured` (as of `points`), with measured (median, s), measured_low,
        measured_high (NaN: a single run), repeats, error (predicted / measured - 1) and runs."""
        groups = measured.groupby(POINT).agg(samples=("seconds", list), runs=("run_id", tuple)).reset_index()
        groups[["measured", "measured_low", "measured_high", "repeats"]] = medians(groups.pop("samples").tolist())
        predicted = self.predict(groups.astype({"repeats": int}))
        return predicted.assign(error=predicted.seconds / predicted.measured - 1)

    def table(self) -> pd.DataFrame:
        """One row per cost: cost, value, low, high (95 %), unit, significant (whether the runs narrowed the prior interval to less than half)."""
        deviations = np.sqrt(np.diag(self.covariance))
        factors = np.exp(1.96 * deviations)
        table = pd.DataFrame({"cost": Costs._fields, "value": self.costs})
        return table.assign(
            low=table.value / factors, high=table.value * factors, unit=UNITS,
            significant=deviations < np.array(self.widths) / 2,
        )  # fmt: skip

    def _draws(self, planned: pd.DataFrame) -> np.ndarray:
        """(draws, rows) logs of step times, for costs drawn from their distribution, with the scatter of runs."""
        rows = list(planned.itertuples())
        generator = np.random.default_rng(0)
        logs = generator.multivariate_normal(np.log(self.costs), self.covariance, DRAWS, method="eigh")
        seconds = np.array([[self.step(row, Costs(*costs)).seconds for row in rows] for costs in np.exp(logs)])
        return np.log(seconds) + generator.normal(0, self.residual, seconds.shape)

    def _extrapolation(self, row: tuple) -> str:
        """The quantities of `row` that are outside the measured range, in words."""
        quantities = []
        for name, unit in QUANTITIES.items():
            measured = self.measured[name]
            if name == "gbit":  # one node needs no link
                measured = measured[(self.measured.world_size > 1) & (row.nodes > 1)]
            value = getattr(row, name)
            if len(measured) and not measured.min() <= value <= measured.max():
                low, high, value = map(_amount, (measured.min(), measured.max(), value))
                quantities.append(f"{value} {unit} ({low if low == high else f'{low} to {high}'} measured)")
        return ", ".join(quantities)


def fit(
    measured: pd.DataFrame,
    work: Work,
    *,
    bucket_mb: float = BUCKET_MB,
    intra_gbit: float = math.inf,
    reach: Estimate | None = None,
) -> Fitted:
    """The costs that explain the step times of `measured` (as of `points`) best, by relative error.

    Maximum a posteriori with log-normal priors (`Costs()`, `WIDTHS`) and Laplace's approximation (MacKay 2003, chapter 27).
    A configuration counts once, by the median of its repeats, because what the model misses is common to them. `reach`: the
    measured share of the nominal bandwidth that an all-reduce alone gets (`links.reach`), as a prior of that width.

    Raises:
        ValueError: fewer than two configurations.
    """
    from scipy.optimize import least_squares

    configurations = measured.groupby(POINT).seconds.median().reset_index()
    if len(configurations) < 2:
        raise ValueError("one configuration does not separate compute from communication: measure at least two")
    rows = list(configurations.itertuples())
    log_seconds = np.log(configurations.seconds.to_numpy(float))
    first = Costs()
    widths = WIDTHS
    if reach is not None:
        first = first._replace(reach=reach.value)
        widths = WIDTHS._replace(reach=max(FLOOR, math.log(reach.high / reach.low) / (2 * 1.96)))
    prior = np.log(first)
    draft = Fitted(work, first, np.diag(np.square(widths)), FLOOR, measured, bucket_mb, intra_gbit, widths)

    def errors(logs: np.ndarray) -> np.ndarray:
        costs = Costs(*np.exp(logs))
        return np.log([draft.step(row, costs).seconds for row in rows]) - log_seconds

    logs = prior
    residual = 0.05
    for _ in range(3):  # the scatter weighs data against priors, and comes from the fit itself
        solution = least_squares(
            lambda logs, residual=residual: np.concatenate([errors(logs) / residual, (logs - prior) / widths]), logs
        )
        logs = solution.x
        residual = max(FLOOR, float(np.sqrt(np.sum(errors(logs) ** 2) / max(1, len(rows) - len(logs)))))
    covariance = np.linalg.inv(solution.jac.T @ solution.jac)
    return replace(draft, costs=Costs(*np.exp(logs)), covariance=covariance, residual=residual)


def held_out(
    measured: pd.DataFrame, work: Work, gbits: Sequence[float] = (), *, most_ranks: float = math.inf, **options: Any
) -> tuple[Fitted, pd.DataFrame]:
    """Fit without the runs at these link rates and on more than `most_ranks` ranks, and predict them too: (the model, its
    `errors` with held_out)."""

    def is_held_out(points: pd.DataFrame) -> pd.Series:
        return (points.gbit.isin(gbits) & (points.world_size > 1)) | (points.world_size > most_ranks)

    fitted = fit(measured[~is_held_out(measured)], work, **options)
    return fitted, fitted.errors(measured).assign(held_out=is_held_out)


def families(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """{label: the runs that one model can be fitted to}, most configurations first.

    One workload and loop on one kind of device with one `bucket_mb`, whatever layout, batch and link. Without barred and
    profiled runs, and without those that compress or accumulate gradients.
    """
    keys = [*(name for name in SAME if name not in ("device", "link_gbit")), "bucket_mb"]
    plain = runs.comm_hook.fillna("none").eq("none") & runs.accumulate.fillna(1).eq(1)
    runs = usable(runs[runs.parallel.isin(MODELLED) & plain])
    groups = [group for _, group in runs.fillna({"bucket_mb": BUCKET_MB}).groupby(keys, dropna=False)]
    by_label = {}
    for family in sorted(groups, key=lambda group: -points(group).groupby(POINT).ngroups):
        run = family.iloc[0]
        label = f"{task(run)}, {run.precision}, {run.device_name} ({run.hardware_id})"
        label += f", {run.threads_per_rank:g} of a core" if run.threads_per_rank < 1 else ""
        by_label[f"{label}, as {run.run_id}" if label in by_label else label] = family
    return by_label


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
    runs = usable(runs[runs.parallel.isin(MODELLED)])
    groups = dict(list(runs.assign(cores_per_rank=cores_per_rank(runs)).groupby(PLANNED)))
    profiles = list(profiles)

    @functools.cache
    def fitted(key: tuple) -> Fitted | None:
        for family in families(groups[key]).values() if key in groups else ():
            with contextlib.suppress(ValueError):
                work = Work.of(family, epochs, profiles)
                return fit(points(family, gbit=gbit), work, bucket_mb=family.bucket_mb.iloc[0])
        return None

    def predict(point: Mapping[str, Any]) -> Answer | None:
        model = fitted(tuple(point[name] for name in PLANNED))
        if model is None or point["parallel"] not in MODELLED:
            return None
        values = dict(point) | {"grouped": point["parallel"] != "none", "gbit": point.get("link_gbit") or gbit}
        row = model.predict(pd.DataFrame([values])[POINT]).iloc[0]
        seconds = Estimate(row.seconds, row.low, row.high, len(model.measured))
        return Answer(seconds, row.extrapolation and f"extrapolation: {row.extrapolation}")

    return predict


def _amount(value: float) -> str:
    return "unlimited" if math.isinf(value) else f"{value:g}"


def _interval(logs: np.ndarray) -> np.ndarray:
    return np.exp(np.quantile(logs, TAILS, axis=0))
