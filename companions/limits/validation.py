"""The performance model of a step, tested on held-out runs: its errors, its costs, and what follows from its predictions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.analyze.model import fit
from hpc_utils.analyze.model.fit import POINT, Fitted
from hpc_utils.analyze.model.step import Costs, Work
from hpc_utils.analyze.scaling import unique
from hpc_utils.analyze.stats import TAILS, Estimate, columns, medians
from hpc_utils.analyze.table import tabled
from hpc_utils.plural import counted
from hpc_utils.records import Records
from hpc_utils.records.identity import task

from .predictions import scaling

RESAMPLES = 4000
UNITS = Costs(scale="ratio", group="s", host="s/B", reach="ratio", latency="s")
TOO_WIDE = "the 95 % interval of every prediction is wider than its efficiency; more repeats narrow it"


class Validation(NamedTuple):
    """A model fitted to few ranks and some link rates, and its predictions of the others.

    Attributes:
        points: the family's runs, as of `fit.points`. fitted: the model without the held-out runs. full: that of all runs.
        errors: of `fitted`, as of `errors`, with points ("held out" or "fitted"); empty if nothing was held out. summary, costs: tables of `fitted`. reasons: why
        families have no model. Without a model all but these are empty or None.
    """

    reasons: Sequence[str]
    points: pd.DataFrame = pd.DataFrame(columns=[*POINT, "seconds", "run_id", "kind"])
    fitted: Fitted | None = None
    full: Fitted | None = None
    errors: pd.DataFrame = pd.DataFrame(columns=[*POINT, "samples", *columns("measured"), "seconds", "points"])
    summary: pd.DataFrame = pd.DataFrame()
    costs: pd.DataFrame = pd.DataFrame()

    @tabled(
        "reach",
        f"What the model predicts for more ranks, up to {fit.FARTHEST} times as many as were measured.",
        measure="efficiency",
    )
    def predictions(self, gbits: Sequence[float], worlds: Sequence[int]) -> pd.DataFrame:
        """Predictions of the model fitted to all runs for `worlds` ranks, as of `scaling`: weak with the largest measured
        batch, and strong with eight times that in all.

        Over links of `gbits`, with as many ranks a node as were measured. A curve ends at `Fitted.most_ranks`, or before the
        first interval that is wider than its efficiency, and is left out if that is within the measured ranks.
        """
        points = self.points
        if self.full is None:
            return points
        ranks_per_node = int(points.ranks_per_node.max())
        batch = points.batch_per_device.max()
        worlds = [world for world in worlds if world <= self.full.most_ranks]
        curves = []
        for kind, size in (("strong", 8 * batch), ("weak", batch)):
            for gbit in gbits:
                curve = scaling(self.full, kind, size, worlds, ranks_per_node=ranks_per_node, gbit=gbit)
                curve = curve[~(curve.efficiency_high - curve.efficiency_low > curve.efficiency).cummax()]
                is_beyond = curve.world_size.max() > points.world_size.max()
                curves.append(curve if is_beyond else curve[:0])
        return pd.concat(curves, ignore_index=True)


def held_out(points: pd.DataFrame, rates: Sequence[float], most_ranks: float) -> pd.Series:
    """Whether each of `points` is over links of one of these rates (Gbit/s), or on more than `most_ranks` ranks."""
    return (points.gbit.isin(rates) & (points.world_size > 1)) | (points.world_size > most_ranks)


def validate(
    records: Records, profiles: Sequence[Mapping[str, Any]], *, rates: Sequence[float], most_ranks: int,
    gbits: Mapping[str, float],
) -> Validation:  # fmt: skip
    """The model of the first family of runs that has one, fitted without the runs that are `held_out`.

    Args:
        profiles: compute probes. gbits: nominal rates of links, by hardware id.
    """
    reasons = []
    for runs in fit.families(records.runs):
        run = runs.iloc[0]
        points = fit.points(runs, gbit=gbits.get(run.hardware_id, math.inf))
        try:
            work = Work.of(runs, records.epochs, profiles)
            fitted = fit.fit(points[~held_out(points, rates, most_ranks)], work)
        except ValueError as error:
            reasons.append(str(error))
            continue
        tested = errors(fitted, points)
        is_held_out = held_out(tested, rates, most_ranks)
        tested["points"] = np.where(is_held_out, "held out", "fitted")
        tested = tested if is_held_out.any() else tested[:0]
        return Validation(
            reasons, points, fitted, fit.fit(points, work), tested, _summary(fitted, run), costs(fitted)
        )
    return Validation(reasons)


@tabled(
    "model-errors",
    "Time of a step by the model and measured.",
    "nodes world_size grouped batch_per_device gbit measured seconds error bottleneck points",
    measure="seconds",
    missing="`hpc submit links`",
)
def errors(fitted: Fitted, measured: pd.DataFrame) -> pd.DataFrame:
    """`Fitted.predict` for each configuration of `measured` (as of `fit.points`), with samples (s, of each repeat), measured
    (their median), measured_low, measured_high (NaN: a single run), repeats, runs and `with_errors`."""
    groups = measured.groupby(POINT).agg(samples=("seconds", list), runs=("run_id", tuple)).reset_index()
    groups[["measured", "measured_low", "measured_high", "repeats"]] = medians(groups.samples.tolist())
    return with_errors(fitted.predict(groups.astype({"repeats": int})))


def with_errors(steps: pd.DataFrame) -> pd.DataFrame:
    """`steps` (seconds: predicted, measured and its interval) with error (predicted / measured - 1) and its interval."""
    measured = {"error": "measured", "error_low": "measured_high", "error_high": "measured_low"}
    return steps.assign(**{error: steps.seconds / steps[name] - 1 for error, name in measured.items()})


@tabled("model-costs", "The fitted costs of the model.", measure="value")
def costs(fitted: Fitted) -> pd.DataFrame:
    """One row per cost: cost, value, value_low, value_high (95 %), unit, significant (whether the runs narrowed the prior
    interval to less than half)."""
    deviations = np.sqrt(np.diag(fitted.covariance))
    table = pd.DataFrame({"cost": Costs._fields, "value": fitted.costs})
    factors = np.exp(1.96 * deviations)
    table = table.assign(value_low=table.value / factors, value_high=table.value * factors, unit=UNITS)
    return table.assign(significant=deviations < np.array(fit.WIDTHS) / 2)


@tabled("model", "The performance model.")
def _summary(fitted: Fitted, run: pd.Series) -> pd.DataFrame:
    """One row: model, configurations and fitted_on (runs), scatter (standard deviation of the log of steps), source (of the
    compute times)."""
    device = f"{run.device_name} ({run.hardware_id}), cores a rank: {run.threads_per_rank:g}"
    row = {
        "model": f"{task(run)}, {run.precision}, {device}",
        "configurations": fitted.measured.groupby(POINT).ngroups,
        "fitted_on": len(fitted.measured),
        "scatter": fitted.residual,
        "source": fitted.work.source,
    }
    return pd.DataFrame([row])


def accuracy(errors: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per value of the column `by` of `errors` (as of `errors`).

    Columns: `by`; count (points), inside (of them in the prediction's 95 % interval); median_error and worst_error
    (absolute), each with `_low` and `_high`; repeats (the fewest); runs.

    The interval of an error is a seeded percentile bootstrap of each point's repeats (Efron 1979), widened to hold the value;
    NaN if a point has a single repeat.
    """
    rows = []
    for name, points in errors.groupby(by, sort=False):
        generator = np.random.default_rng(0)
        drawn = [generator.choice(sample, (RESAMPLES, len(sample))) for sample in points.samples]
        medians = np.column_stack([points.measured, [np.median(sample, axis=1) for sample in drawn]])
        misses = np.abs(points.seconds.to_numpy()[:, None] / medians - 1)
        fewest = points.repeats.min()
        row = {
            by: name,
            "count": len(points),
            "inside": points.measured.between(points.seconds_low, points.seconds_high).sum(),
        }
        for column, statistic in (("median_error", np.median), ("worst_error", np.max)):
            value, *resampled = statistic(misses, axis=0).tolist()
            low, high = np.quantile(resampled, TAILS) if fewest > 1 else (np.nan, np.nan)
            row |= Estimate(value, min(low, value), max(high, value), fewest).columns(column)
        rows.append(row | {"repeats": fewest, "runs": unique(*points.runs)})
    return pd.DataFrame(rows)


def conclusions(summary: pd.DataFrame, accuracy: pd.DataFrame, limits: pd.DataFrame) -> Iterator[str]:
    """Sentences on the model's predictions: `summary` as of `Validation`, `accuracy` as of `accuracy` by points, `limits` as of
    `predictions.efficiency_limits`."""
    for row in summary.itertuples():
        yield f"The model is of {row.model}; runs of other workloads, settings and machines are not in it."
    for row in accuracy.itertuples():
        if row.points == "held out":
            yield (
                f"The model predicts the time of a step of {counted(row.count, 'configuration')} that it has not seen with a median error of "
                f"{100 * row.median_error:.1f} %, at worst {100 * row.worst_error:.1f} %; {row.inside} lie in its 95 % interval."
            )
    links: dict[tuple[str, str], list[str]] = {}
    for row in limits.itertuples():
        size = f"{row.batch:g} samples {'in all' if row.kind == 'strong' else 'a rank'}"
        limit = "at least 70 % up to" if pd.isna(row.below_from) else "possibly below 70 % from"
        efficiency, low, high = (100 * value for value in (row.efficiency, row.efficiency_low, row.efficiency_high))
        outcome = (
            f"{limit} {row.world_size:,} ranks, {efficiency:.0f} % [{low:.0f}, {high:.0f}] there, "
            f"limited by {row.bottleneck}{' (extrapolation)' if row.extrapolation else ''}."
        )
        links.setdefault((f"{row.kind} scaling, {size}", outcome), []).append(f"{row.gbit:g}")
    for (curve, outcome), rates in links.items():
        yield f"{curve}, over {', '.join(rates)} Gbit/s: {outcome}"
    if len(limits) and accuracy.empty:
        yield "These predictions are not validated: no run was held out from the model."
