"""The model of a step (`step`), fitted to a few measured runs, and its predictions with intervals.

fit(points(runs), Work.of(runs, epochs, profiles)).predict(planned)
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records.identity import PLANNED, SAME

from ..points import cores_per_rank, step_seconds
from ..scaling import usable
from ..stats import TAILS, Estimate
from .step import Costs, Step, Work, step

DRAWS = 300
MODELLED = ("none", "ddp")  # the kinds of parallelism that the model knows
BUCKET_MB = 25.0  # torch's default, where a run does not record DDP's
FARTHEST = 16  # times the most ranks that were measured: no prediction is for more
FLOOR = 0.02  # share of a step: the smallest scatter that the fit assumes
PASSES = 4  # of the fit; the scatter has converged after three
PRECISE = {"jac": "3-point", "xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12}  # scipy's defaults stop early
POINT = ["nodes", "ranks_per_node", "world_size", "grouped", "batch_per_device", "gbit"]

# Each cost's first guess, and the standard deviation of its log around that; what the data do not tell stays within it.
GUESS = Costs(scale=1.0, group=1e-3, host=3e-10, reach=0.9, latency=1e-4)
WIDTHS = Costs(scale=0.3, group=1.5, host=1.5, reach=0.2, latency=1.0)
# In widths from the guess. The misfit can have two minima: slow links, or a slow processor.
STARTS = (Costs(0, 0, 0, 0, 0), Costs(0, 0, 2, 0, 0))
# The quantities of a point that a prediction can extrapolate, with their units.
QUANTITIES = {
    "world_size": "ranks", "nodes": "nodes", "ranks_per_node": "ranks a node", "batch_per_device": "samples a rank", "gbit": "Gbit/s",
}  # fmt: skip


def points(runs: pd.DataFrame, *, gbit: float = math.inf) -> pd.DataFrame:
    """One row per run, as `fit` takes them: `POINT`, seconds (of a step), run_id.

    `gbit`: rate of the nodes' links where a run did not limit them; infinite if links do not matter.
    """
    link = pd.to_numeric(runs.link_gbit).fillna(gbit)
    rows = runs.assign(grouped=runs.parallel != "none", gbit=link, seconds=step_seconds(runs))
    types = dict.fromkeys(POINT[:3], int) | dict.fromkeys(["batch_per_device", "gbit", "seconds"], float)
    return rows[[*POINT, "seconds", "run_id"]].astype(types)


class Fitted(NamedTuple):
    """The model of one workload on one kind of device.

    Attributes:
        work, costs: the parts of the step. covariance: of the logs of the costs, in their order.
        residual: standard deviation of log(measured / fitted) over configurations, with its degrees of freedom.
        measured: the runs that it was fitted to.
    """

    work: Work
    costs: Costs
    covariance: np.ndarray
    residual: float
    freedom: float
    measured: pd.DataFrame

    @property
    def most_ranks(self) -> int:
        """That a prediction may have."""
        return FARTHEST * self.measured.world_size.max()

    def predict(self, planned: pd.DataFrame) -> pd.DataFrame:
        """Steps at the points of `planned` (columns `POINT`), one row each.

        Adds: seconds, seconds_low, seconds_high (of a step; 95 % interval for the median of runs measured there), bottleneck, extrapolation
        (the quantities in which the point is outside the measured range).
        """
        low, high = np.exp(np.quantile(self.draws(planned), TAILS, axis=0))
        columns = self.steps(planned)[["seconds", "bottleneck", "extrapolation"]]
        return planned.assign(**columns, seconds_low=low, seconds_high=high)

    def steps(self, planned: pd.DataFrame) -> pd.DataFrame:
        """The parts of `Step`, seconds, bottleneck and extrapolation at the points of `planned`."""
        rows = list(planned.itertuples())
        steps = [step(self.work, self.costs, row) for row in rows]
        return pd.DataFrame(steps, planned.index, Step._fields).assign(
            seconds=[step.seconds for step in steps],
            bottleneck=[step.bottleneck for step in steps],
            extrapolation=[self._extrapolation(row) for row in rows],
        )

    def draws(self, planned: pd.DataFrame) -> np.ndarray:
        """(draws, rows) logs of step times, for costs drawn from their distribution, with the scatter of runs, which few
        configurations do not tell exactly: a t distribution."""
        rows = list(planned.itertuples())
        generator = np.random.default_rng(0)
        logs = generator.multivariate_normal(np.log(self.costs), self.covariance, DRAWS, method="cholesky")
        seconds = [[step(self.work, Costs(*costs), row).seconds for row in rows] for costs in np.exp(logs)]
        return np.log(seconds) + self.residual * generator.standard_t(self.freedom, (DRAWS, len(rows)))

    def _extrapolation(self, row: Any) -> str:
        """The quantities of `row` that are outside the measured range, in words."""
        quantities = []
        for name, unit in QUANTITIES.items():
            measured = self.measured[name]
            if name == "gbit":  # one node needs no link
                measured = measured[(self.measured.nodes > 1) & (row.nodes > 1)]
            value, low, high = getattr(row, name), measured.min(), measured.max()
            if value < low or value > high:
                quantities.append(f"{value:g} {unit} ({low:g} to {high:g} measured)")
        return ", ".join(quantities)


def fit(measured: pd.DataFrame, work: Work) -> Fitted:
    """The costs that explain the step times of `measured` (as of `points`) best, by relative error.

    Maximum a posteriori with log-normal priors (`GUESS`, `WIDTHS`) and Laplace's approximation (MacKay 2003, chapter 27).
    The scatter, which weighs data against priors, comes from the fit itself: the costs count in it as far as the data
    determine them (MacKay 1992, Neural Computation 4:415).
    A configuration counts once, by the median of its repeats, because what the model misses is common to them.

    Raises:
        ValueError: fewer than two configurations.
    """
    from scipy.optimize import least_squares

    configurations = measured.groupby(POINT).seconds.median().reset_index()
    if len(configurations) < 2:
        raise ValueError("one configuration does not separate compute from communication: measure at least two")
    rows = list(configurations.itertuples())
    log_seconds = np.log(configurations.seconds)

    def costs(deviations: Sequence[float]) -> Costs:
        """The costs that are so many widths away from the guess, which gives all of them the same scale."""
        return Costs(*np.exp(np.log(GUESS) + np.multiply(deviations, WIDTHS)))

    def misfit(deviations: np.ndarray, residual: float) -> np.ndarray:
        fitted = costs(deviations)
        errors = np.log([step(work, fitted, row).seconds for row in rows]) - log_seconds
        return np.concatenate([errors / residual, deviations])

    residual = 0.05
    for _ in range(PASSES):
        solutions = [least_squares(misfit, start, args=(residual,), **PRECISE) for start in STARTS]
        best = min(solutions, key=lambda solution: solution.cost)
        covariance = np.linalg.inv(best.jac.T @ best.jac)
        undetermined = np.trace(covariance)  # costs, in number: each from 0 to 1 as the data leave it to its prior
        freedom = max(1, len(rows) - len(GUESS) + undetermined)
        residual = max(FLOOR, residual * math.sqrt(np.sum(best.fun[: len(rows)] ** 2) / freedom))
    return Fitted(work, costs(best.x), covariance * np.outer(WIDTHS, WIDTHS), residual, freedom, measured)


def families(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs that one model can be fitted to, for each model; that with most configurations first.

    One workload and loop on one kind of device with one `bucket_mb`, whatever layout, batch and link. Without barred and
    profiled runs, and without those that compress or accumulate gradients.
    """
    keys = [*(name for name in SAME if name != "link_gbit"), "bucket_mb"]
    plain = runs.comm_hook.fillna("none").eq("none") & runs.accumulate.fillna(1).eq(1)
    runs = usable(runs[runs.parallel.isin(MODELLED) & plain]).fillna({"bucket_mb": BUCKET_MB})
    groups = [group for _, group in runs.groupby(keys, dropna=False)]
    return sorted(groups, key=lambda group: points(group).groupby(POINT).ngroups, reverse=True)


class Answer(NamedTuple):
    """`seconds` of a step; `note`: the quantities in which it is extrapolated, "" if none."""

    seconds: Estimate
    note: str


def predictor(
    runs: pd.DataFrame, epochs: pd.DataFrame, profiles: Iterable[Mapping[str, Any]] = (), *, gbit: float = math.inf
) -> Callable[[Mapping[str, Any]], Answer | None]:
    """A function from a planned point (`PLANNED`, nodes, ranks_per_node, world_size, parallel, batch_per_device, link_gbit) to
    the time of its step; None where no model can be fitted to runs that are equal in `PLANNED`, and beyond `FARTHEST`.

    Args:
        runs, epochs: as of `records.load`. profiles: records of `results/probes/compute`. gbit: rate of the nodes' links.
    """
    profiles = list(profiles)
    planned_families = families(runs.assign(cores_per_rank=cores_per_rank(runs)))

    @functools.cache
    def fitted(plan: tuple) -> Fitted | None:
        for family in planned_families:
            if tuple(family[PLANNED].iloc[0]) == plan:
                with contextlib.suppress(ValueError):
                    return fit(points(family, gbit=gbit), Work.of(family, epochs, profiles))
        return None

    def predict(point: Mapping[str, Any]) -> Answer | None:
        model = fitted(tuple(point[name] for name in PLANNED))
        if model is None or point["parallel"] not in MODELLED or point["world_size"] > model.most_ranks:
            return None
        values = dict(point) | {"grouped": point["parallel"] != "none", "gbit": point.get("link_gbit") or gbit}
        row = model.predict(pd.DataFrame([values])[POINT]).iloc[0]
        seconds = Estimate(row.seconds, row.seconds_low, row.seconds_high, len(model.measured))
        return Answer(seconds, row.extrapolation and f"extrapolation: {row.extrapolation}")

    return predict
