"""Validates the model on held-out runs, compares it with Amdahl's and Gustafson's laws, and predicts more ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.plural import counted
from hpc_utils.records import Records
from hpc_utils.records.identity import task

from ..points import on_every_link
from ..scaling import FIXED, unique
from ..stats import TAILS, Estimate, columns
from ..table import tabled
from . import fit
from .fit import POINT, Fitted
from .step import Work

RESAMPLES = 4000
CURVE = ["kind", "size", "gbit"]
CITED = ["bottleneck", *columns("efficiency"), "extrapolation"]  # of a predicted point, beside its curve
MODEL = "this model"
TOO_WIDE = "the 95 % interval of every prediction is wider than its efficiency; more repeats narrow it"


def amdahl(ranks: pd.Series, seconds: pd.Series, more_ranks: pd.Series) -> pd.Series:
    """Seconds on `more_ranks` by strong scaling with a serial share s (Amdahl 1967), T(n) = T(1) (s + (1 - s) / n), fitted by
    relative error."""
    from scipy.optimize import nnls

    terms = np.array([1 / seconds, 1 / (ranks * seconds)])
    serial, divided = nnls(terms.T, np.ones_like(seconds))[0]
    return serial + divided / more_ranks


def gustafson(ranks: pd.Series, seconds: pd.Series, more_ranks: pd.Series) -> pd.Series:
    """Seconds on `more_ranks` by weak scaling with a serial share s (Gustafson 1988): a step of equal work a rank takes
    T(1) n / (n - s (n - 1))."""
    from scipy.optimize import minimize_scalar

    def one_rank(share: float) -> pd.Series:
        """The log of T(1), as each run gives it."""
        return np.log(seconds * (1 - share * (1 - 1 / ranks)))

    share = minimize_scalar(lambda share: one_rank(share).var(), bounds=(0.0, 0.999), method="bounded").x
    return np.exp(one_rank(share).mean()) / (1 - share * (1 - 1 / more_ranks))


LAWS: Mapping[str, Mapping[str, Callable]] = {"strong": {"Amdahl": amdahl}, "weak": {"Gustafson": gustafson}}


class Validation(NamedTuple):
    """A model fitted to few ranks and some link rates, and its predictions of the others.

    Attributes:
        points: the family's runs, as of `fit.points`. fitted: the model without the held-out runs. full: that of all runs.
        errors: as of `Fitted.errors`, with points ("held out" or "fitted"); empty if nothing was held out. summary, costs: tables of `fitted`. reasons: why
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
        """Predictions of the model fitted to all runs for `worlds` ranks, as of `Fitted.scaling`: weak with the largest measured
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
                curve = self.full.scaling(kind, size, worlds, ranks_per_node=ranks_per_node, gbit=gbit)
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
        errors = fitted.errors(points)
        is_held_out = held_out(errors, rates, most_ranks)
        errors["points"] = np.where(is_held_out, "held out", "fitted")
        errors = errors if is_held_out.any() else errors[:0]
        return Validation(
            reasons, points, fitted, fit.fit(points, work), errors, _summary(fitted, run), fitted.table()
        )
    return Validation(reasons)


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
    """One row per value of the column `by` of `errors` (as of `Fitted.errors`).

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


def curves(errors: pd.DataFrame) -> pd.DataFrame:
    """The configurations of `errors` (as of `Fitted.errors`) in curves of at least two rank counts: one row per point.

    Adds kind ("strong", "weak") and size (its fixed batch: of all ranks, or of each). One rank without a group belongs to
    the curves of every `gbit`. Of several layouts of a rank count the one on fewest nodes is taken.
    """
    linked = on_every_link(errors.assign(global_batch=errors.batch_per_device * errors.world_size), "gbit")
    points = pd.concat([linked.assign(kind=kind, size=linked[fixed]) for kind, fixed in FIXED.items()])
    points = points.sort_values([*CURVE, "world_size", "grouped", "nodes"]).drop_duplicates([*CURVE, "world_size"])
    is_curve = points.groupby(CURVE).world_size.transform("nunique") > 1
    return points[is_curve]


def against_laws(
    errors: pd.DataFrame, most_ranks: float, fits: Mapping[str, Mapping[str, Callable]] = LAWS
) -> pd.DataFrame:
    """Laws, each fitted to one curve's runs on at most `most_ranks` ranks, and the model, on the points with more ranks.

    `errors`: as of `Fitted.errors`. `fits`: by kind of scaling and name, as of `LAWS`.

    Columns: those of `curves`; law; those of `fit.with_errors`. Curves with fewer than two rank counts to fit to have none.
    """
    parts = [errors[:0].assign(law="", kind="")]
    for (kind, _, _), points in curves(errors).groupby(CURVE):
        small = points[points.world_size <= most_ranks]
        large = points[points.world_size > most_ranks]
        if len(small) > 1:
            for name, law in fits[kind].items():
                seconds = law(small.world_size, small.measured, large.world_size)
                parts.append(large.assign(law=name, seconds=seconds))
            parts.append(large.assign(law=MODEL))
    return fit.with_errors(pd.concat(parts, ignore_index=True))


@tabled(
    "below",
    "From how many ranks on efficiency may be, and by the whole interval is, less than 70 % by the model.",
    "kind gbit batch below_from below_to efficiency bottleneck extrapolation",
    measure="efficiency",
)
def efficiency_limits(predictions: pd.DataFrame, efficient: float) -> pd.DataFrame:
    """One row per curve of `Validation.predictions`: the rank count from which it may be less efficient than `efficient`.

    Columns: kind, gbit, batch (of one rank); below_from and below_to by the interval's lower and upper end, below_at between
    them by the value (NaN: at none); world_size (below_from, or the most ranks), and bottleneck, efficiency, its interval and
    extrapolation there.
    """
    rows = []
    for (kind, gbit), curve in predictions.groupby(["kind", "gbit"], sort=False):
        points = curve[curve.world_size > 1]
        row = {"kind": kind, "gbit": gbit, "batch": curve.batch_per_device.iloc[0]}
        for column, end in zip(columns("efficiency"), ("at", "from", "to"), strict=True):
            row[f"below_{end}"] = points.world_size[points[column] < efficient].min()
        limit = pd.concat([points[points.efficiency_low < efficient], points.tail(1)]).iloc[0]
        rows.append(row | limit[["world_size", *CITED]].to_dict())
    return pd.DataFrame(rows)


@tabled("bottlenecks", "What limits by the model, from how many ranks on.", measure="efficiency")
def bottlenecks(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per stretch of a curve of `Validation.predictions` with one bottleneck.

    Columns: kind, gbit, from_ranks, to_ranks, bottleneck; efficiency, its interval and extrapolation (at from_ranks).
    """
    points = predictions[predictions.world_size > 1].rename(columns={"world_size": "from_ranks"})
    alike = points[["kind", "gbit", "bottleneck"]]
    stretches = points.groupby((alike != alike.shift()).any(axis=1).cumsum())
    table = stretches.first().assign(to_ranks=stretches.from_ranks.last())
    return table[["kind", "gbit", "from_ranks", "to_ranks", *CITED]]


def conclusions(summary: pd.DataFrame, accuracy: pd.DataFrame, limits: pd.DataFrame) -> Iterator[str]:
    """Sentences on the model's predictions: `summary` as of `Validation`, `accuracy` as of `accuracy` by points, `limits` as of
    `efficiency_limits`."""
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
    for (scaling, outcome), rates in links.items():
        yield f"{scaling}, over {', '.join(rates)} Gbit/s: {outcome}"
    if len(limits) and accuracy.empty:
        yield "These predictions are not validated: no run was held out from the model."
