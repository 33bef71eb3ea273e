"""Validates the model on held-out runs, compares it with Amdahl's and Gustafson's laws, and predicts more ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.plural import counted
from hpc_utils.records import Records

from ..points import on_every_link
from ..scaling import FIXED, relative, unique
from ..stats import TAILS, Estimate
from . import fit, links
from .fit import POINT, Fitted
from .step import Work

RESAMPLES = 4000
CURVE = ["kind", "size", "gbit"]
SHOWN = ["baseline", "efficiency", "low", "high", "extrapolation"]
MODEL = "this model"
TOO_WIDE = "the 95 % interval of every prediction is wider than its efficiency; more repeats narrow it"


class Law(NamedTuple):
    """A fitted law: `seconds(ranks)`, and the formula in words."""

    name: str
    formula: str
    seconds: Callable[[Sequence[float]], np.ndarray]


def amdahl(ranks: Sequence[float], seconds: Sequence[float]) -> Law:
    """Strong scaling with a serial share s (Amdahl 1967): T(n) = T(1) (s + (1 - s) / n), by relative error."""
    from scipy.optimize import nnls

    ranks, seconds = np.asarray(ranks, float), np.asarray(seconds, float)
    terms = np.column_stack([np.ones_like(ranks), 1 / ranks]) / seconds[:, None]
    serial, divided = nnls(terms, np.ones(len(seconds)))[0]
    one_rank = serial + divided
    formula = f"{one_rank:.3g} s ({serial / one_rank:.1%} serial)"
    return Law("Amdahl", formula, lambda n: serial + divided / np.asarray(n, float))


def gustafson(ranks: Sequence[float], seconds: Sequence[float]) -> Law:
    """Weak scaling with a serial share s (Gustafson 1988): a step of equal work a rank takes T(1) n / (n - s (n - 1))."""
    from scipy.optimize import minimize_scalar

    ranks, seconds = np.asarray(ranks, float), np.asarray(seconds, float)

    def shape(share: float, n: np.ndarray) -> np.ndarray:
        return n / (n - share * (n - 1))

    def logs(share: float) -> np.ndarray:
        """Of T(1), as each run gives it."""
        return np.log(seconds / shape(share, ranks))

    share = float(minimize_scalar(lambda share: logs(share).var(), bounds=(0.0, 0.999), method="bounded").x)
    one_rank = float(np.exp(logs(share).mean()))
    formula = f"{one_rank:.3g} s ({share:.1%} serial)"
    return Law("Gustafson", formula, lambda n: one_rank * shape(share, np.asarray(n, float)))


LAWS: dict[str, tuple[Callable[..., Law], ...]] = {"strong": (amdahl,), "weak": (gustafson,)}


@dataclass(frozen=True)
class Validation:
    """A model fitted to few ranks and some link rates, and its predictions of the others.

    Attributes:
        name: of the family of runs. points: its runs, as of `fit.points`. fitted, errors: as of `fit.held_out`, errors
        empty if nothing was held out. full: the model fitted to all runs. reasons: why families have no model, by name.
        Without a model all are empty or None.
    """

    name: str = ""
    points: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*POINT, "seconds", "run_id"]))
    fitted: Fitted | None = None
    full: Fitted | None = None
    errors: pd.DataFrame = field(default_factory=pd.DataFrame)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the family's runs."""
        return tuple(self.points.run_id)

    def summary(self) -> pd.DataFrame:
        """One row: model, configurations and fitted_on (runs), scatter (standard deviation of the log of steps), gradient_bytes,
        buckets, source (of the compute times)."""
        if self.fitted is None:
            return pd.DataFrame()
        fitted = self.fitted
        work = fitted.work
        row = {"model": self.name, "configurations": fitted.measured.groupby(POINT).ngroups}
        row |= {"fitted_on": len(fitted.measured), "scatter": fitted.residual, "gradient_bytes": work.gradient_bytes}
        return pd.DataFrame([row | {"buckets": len(work.buckets(fitted.bucket_mb)), "source": work.source}])

    def costs(self) -> pd.DataFrame:
        """The fitted costs, as of `Fitted.table`."""
        return pd.DataFrame() if self.fitted is None else self.fitted.table()

    def accuracy(self) -> pd.DataFrame:
        """`accuracy` by points: "held out" and "fitted"."""
        if self.errors.empty:
            return self.errors
        points = self.errors.held_out.map({True: "held out", False: "fitted"})
        return accuracy(self.errors.assign(points=points), self.points, "points")

    def predictions(self, gbits: Sequence[float], worlds: Sequence[int]) -> pd.DataFrame:
        """Predictions of the model fitted to all runs for `worlds` ranks, as of `Fitted.scaling`.

        Runs on several nodes: over links of `gbits`, weak with the largest measured batch, and strong with eight times that in
        all. Runs on one node: of each kind the measured curve of most ranks, continued on one node. A curve ends before the
        first interval that is wider than its efficiency, and is left out if that is within the measured ranks.
        """
        points = self.points
        linked = points[points.nodes > 1]
        sizes: dict[str, float] = {}
        if len(linked):
            batch = points.batch_per_device.max()
            sizes = {"strong": 8 * batch, "weak": batch}
            ranks_per_node = int(linked.ranks_per_node.max())
        elif self.full:
            largest = curves(points).sort_values(["kind", "world_size", "size"]).drop_duplicates("kind", keep="last")
            sizes = dict(zip(largest.kind, largest["size"], strict=True))
            ranks_per_node = max(worlds)
            gbits = [math.inf]
        frames = []
        for (kind, size), gbit in itertools.product(sizes.items(), gbits):
            curve = self.full.scaling(kind, size, worlds, ranks_per_node=ranks_per_node, gbit=gbit)
            curve = curve[~(curve.efficiency_high - curve.efficiency_low > curve.efficiency).cummax()]
            if curve.world_size.max() > points.world_size.max():
                frames.append(curve)
        return pd.concat(frames or [points[:0].assign(kind="")], ignore_index=True)


def validate(
    records: Records, profiles: Sequence[Mapping[str, Any]], measured: pd.DataFrame, *, rates: Sequence[float],
    most_ranks: int, gbits: Mapping[str, float],
) -> Validation:  # fmt: skip
    """The model of the first family of runs that has one, fitted without the link `rates` (Gbit/s) and without runs on more
    than `most_ranks` ranks.

    Args:
        profiles: compute probes. measured: links, as of `links.link_table`. gbits: nominal rates of links, by hardware id.
    """
    reasons: dict[str, str] = {}
    for name, runs in fit.families(records.runs).items():
        hardware = runs.hardware_id.iloc[0]
        points = fit.points(runs, gbit=gbits.get(hardware, math.inf))
        options = {"intra_gbit": links.inside(measured, hardware), "bucket_mb": runs.bucket_mb.iloc[0]}
        reach = links.reach(measured, hardware, without=rates)
        try:
            work = Work.of(runs, records.epochs, profiles)
            fitted, errors = fit.held_out(points, work, rates, most_ranks=most_ranks, reach=reach, **options)
        except ValueError as error:
            reasons[name] = str(error)
            continue
        full = fit.fit(points, work, reach=links.reach(measured, hardware), **options)
        errors = errors if errors.held_out.any() else errors[:0]
        return Validation(name, points, fitted, full, errors, reasons)
    return Validation(reasons=reasons)


def accuracy(errors: pd.DataFrame, measured: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per value of the column `by` of `errors` (as of `Fitted.errors`, of the runs `measured`).

    Columns: `by`; count (points), inside (of them in the prediction's 95 % interval), inside_share; median_error and
    worst_error (absolute, see `error`), each with `_low` and `_high`; repeats (the fewest); runs.
    """
    if errors.empty:
        return errors
    samples = measured.groupby(POINT).seconds.agg(list)
    rows = []
    for name, points in errors.groupby(by, sort=False):
        repeats = [samples[point] for point in points[POINT].itertuples(index=False, name=None)]
        inside = int(points.measured.between(points.low, points.high).sum())
        row = {by: name, "count": len(points), "inside": inside, "inside_share": inside / len(points)}
        for column, statistic in (("median_error", np.median), ("worst_error", np.max)):
            estimate = error(points.seconds, repeats, statistic)
            row |= estimate.columns(column) | {"repeats": estimate.repeats}
        rows.append(row | {"runs": unique(*points.runs)})
    return pd.DataFrame(rows)


def error(predicted: Sequence[float], repeats: Sequence[Sequence[float]], statistic: Callable) -> Estimate:
    """`statistic` (with `axis`) of |predicted / median of the repeats - 1| over points, with its 95 % interval.

    The interval is a seeded percentile bootstrap of each point's repeats (Efron 1979), widened to hold the value; NaN if a
    point has a single repeat.
    """
    predicted = np.asarray(predicted, float)
    value = float(statistic(np.abs(predicted / [np.median(sample) for sample in repeats] - 1), axis=0))
    fewest = min(map(len, repeats))
    if fewest < 2:
        return Estimate(value, np.nan, np.nan, fewest)
    generator = np.random.default_rng(0)
    drawn = np.array([np.median(generator.choice(sample, (RESAMPLES, len(sample))), axis=1) for sample in repeats])
    low, high = np.quantile(statistic(np.abs(predicted[:, None] / drawn - 1), axis=0), TAILS).tolist()
    return Estimate(value, min(low, value), max(high, value), fewest)


def curves(errors: pd.DataFrame) -> pd.DataFrame:
    """The configurations of `errors` (as of `fit.held_out`) in curves of at least two rank counts: one row per point.

    Adds kind ("strong", "weak") and size (its fixed batch: of all ranks, or of each). One rank without a group belongs to
    the curves of every `gbit`. Of several layouts of a rank count the one on fewest nodes is taken.
    """
    if errors.empty:
        return errors
    linked = on_every_link(errors.assign(global_batch=errors.batch_per_device * errors.world_size), "gbit")
    points = pd.concat([linked.assign(kind=kind, size=linked[fixed]) for kind, fixed in FIXED.items()])
    points = points.sort_values([*CURVE, "world_size", "grouped", "nodes"]).drop_duplicates([*CURVE, "world_size"])
    is_curve = points.groupby(CURVE).world_size.transform("nunique") > 1
    return points[is_curve].drop(columns="global_batch").reset_index(drop=True)


def fitted_curves(fitted: Fitted, measured: pd.DataFrame) -> pd.DataFrame:
    """`Fitted.predict` on every number of ranks of the curves in `measured` (as of `curves`), with `CURVE`."""
    if measured.empty:
        return measured
    grids = []
    for (kind, size, gbit), points in measured.groupby(CURVE):
        worlds = range(1, points.world_size.max() + 1)
        grid = fit.grid(kind, size, worlds, int(points.ranks_per_node.max()), gbit)
        grids.append(grid.assign(kind=kind, size=size))
    return fitted.predict(pd.concat(grids, ignore_index=True))


def compare(errors: pd.DataFrame, most_ranks: float, fits: Mapping[str, Sequence[Callable]] = LAWS) -> pd.DataFrame:
    """Laws, each fitted to one curve's runs on at most `most_ranks` ranks, and the model, on the points with more ranks.

    `errors`: as of `fit.held_out`. `fits`: by kind of scaling.

    Columns: those of `curves`; law, formula; seconds (predicted), measured, error (predicted / measured - 1). Curves with
    fewer than two rank counts to fit to have none.
    """
    if errors.empty:
        return errors
    parts = []
    for (kind, _, _), points in curves(errors).groupby(CURVE):
        small = points[points.world_size <= most_ranks]
        large = points[points.world_size > most_ranks]
        if len(small) > 1:
            for fit_law in fits[kind]:
                law = fit_law(small.world_size, small.measured)
                parts.append(large.assign(law=law.name, formula=law.formula, seconds=law.seconds(large.world_size)))
            parts.append(large.assign(law=MODEL, formula=""))
    compared = pd.concat(parts or [errors[:0].assign(law="", kind="")], ignore_index=True)
    return compared.assign(error=compared.seconds / compared.measured - 1)


def efficiency_limits(predictions: pd.DataFrame, efficient: float) -> pd.DataFrame:
    """One row per curve of `Validation.predictions`: the rank count from which it is less efficient than `efficient`.

    Columns: kind, gbit, batch (of one rank); below_at, and below_from and below_to by the interval's ends (NaN: at none);
    limited_by, baseline, efficiency, low, high, extrapolation and world_size (at below_at, or at the most ranks).
    """
    rows = []
    for curve, points in _predicted_curves(predictions):
        row = curve | {"batch": float(points.batch_per_device.iloc[0])}
        points = points[points.world_size > 1]
        for end, column in (("at", "efficiency"), ("from", "low"), ("to", "high")):
            row[f"below_{end}"] = points.world_size[points[column] < efficient].min()
        limit = points[points.world_size == row["below_at"]] if row["below_at"] > 0 else points.tail(1)
        rows.append(row | limit[[*SHOWN, "world_size", "bottleneck"]].iloc[0].to_dict())
    return pd.DataFrame(rows).rename(columns={"bottleneck": "limited_by"})


def bottlenecks(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per stretch of a curve of `Validation.predictions` with one bottleneck.

    Columns: kind, gbit, bottleneck, from_ranks, to_ranks; baseline, efficiency, low, high and extrapolation (at from_ranks).
    """
    rows = []
    for curve, points in _predicted_curves(predictions):
        points = points[points.world_size > 1]
        for _, stretch in points.groupby((points.bottleneck != points.bottleneck.shift()).cumsum()):
            row = curve | {"from_ranks": stretch.world_size.min(), "to_ranks": stretch.world_size.max()}
            rows.append(row | stretch[["bottleneck", *SHOWN]].iloc[0].to_dict())
    return pd.DataFrame(rows)


def _predicted_curves(predictions: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """({kind, gbit}, its rows) of each curve, the ends of efficiency named low and high."""
    ends = {"efficiency_low": "low", "efficiency_high": "high"}
    points = predictions.drop(columns=["low", "high"], errors="ignore").rename(columns=ends)
    for (kind, gbit), curve in points.groupby(["kind", "gbit"], sort=False):
        yield {"kind": kind, "gbit": gbit}, curve


def conclusions(accuracy: pd.DataFrame, limits: pd.DataFrame) -> Iterator[str]:
    """Sentences on the model's predictions: `accuracy` as of `Validation.accuracy`, `limits` as of `efficiency_limits`."""
    for row in accuracy.itertuples():
        if row.points == "held out":
            yield (
                f"The model predicts the time of a step of {counted(row.count, 'configuration')} that it has not seen with a median error of "
                f"{row.median_error:.1%}, at worst {row.worst_error:.1%}; {row.inside} lie in its 95 % interval."
            )
    for row in limits.itertuples():
        size = f"{row.batch:g} samples {'in all' if row.kind == 'strong' else 'a rank'}"
        link = "on one node" if math.isinf(row.gbit) else f"over {row.gbit:g} Gbit/s"
        limit = "at least 70 % up to" if pd.isna(row.below_at) else "first below 70 % at"
        yield (
            f"{row.kind} scaling, {size}, {link}: {limit} {row.world_size:,} ranks, {row.efficiency:.0%} [{row.low:.0%}, {row.high:.0%}] there"
            f"{relative(row.baseline)}, limited by {row.limited_by}"
            + (" (extrapolation)." if row.extrapolation else ".")
        )
    if len(limits) and "held out" not in set(accuracy.get("points", ())):
        yield "These predictions are not validated: no run was held out from the model."
