"""Validates the model on held-out runs, compares it with Amdahl's and Gustafson's laws, and predicts more ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.allreduce_cost import evenly
from hpc_utils.records import Records

from ..scaling import FIXED, unique
from ..stats import TAILS, Estimate
from . import fit, links
from .fit import POINT, Fitted
from .step import Work

RESAMPLES = 4000
CURVE = ["kind", "size", "gbit"]
MODEL = "this model"


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
    whole = serial + divided
    formula = f"{whole:.3g} s ({serial / whole:.1%} serial)"
    return Law("Amdahl", formula, lambda n: serial + divided / np.asarray(n, float))


def gustafson(ranks: Sequence[float], seconds: Sequence[float]) -> Law:
    """Weak scaling with a serial share s (Gustafson 1988): a step of equal work a rank takes T(1) n / (n - s (n - 1))."""
    from scipy.optimize import minimize_scalar

    ranks, seconds = np.asarray(ranks, float), np.asarray(seconds, float)

    def shape(share: float, n: np.ndarray) -> np.ndarray:
        return n / (n - share * (n - 1))

    def first(share: float) -> float:
        return float(np.exp(np.mean(np.log(seconds / shape(share, ranks)))))

    def off(share: float) -> float:
        return float(np.sum(np.log(first(share) * shape(share, ranks) / seconds) ** 2))

    share = float(minimize_scalar(off, bounds=(0.0, 0.999), method="bounded").x)
    whole = first(share)
    formula = f"{whole:.3g} s ({share:.1%} serial)"
    return Law("Gustafson", formula, lambda n: whole * shape(share, np.asarray(n, float)))


LAWS: dict[str, tuple[Callable[..., Law], ...]] = {"strong": (amdahl,), "weak": (gustafson,)}


@dataclass(frozen=True)
class Validation:
    """A model fitted to few ranks and some link rates, and its predictions of the others; false without a model.

    Attributes:
        name: of the family of runs. runs: the family's. points: as of `fit.points`. errors: as of `fit.held_out`, empty if
        nothing was held out. options: of `fit.fit`. reasons: why families have no model, by name.
    """

    name: str = ""
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    points: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*POINT, "seconds", "run_id"]))
    fitted: Fitted | None = None
    errors: pd.DataFrame = field(default_factory=pd.DataFrame)
    options: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.fitted is not None

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the family's runs."""
        return tuple(self.points.run_id)

    @cached_property
    def whole(self) -> Fitted | None:
        """The model fitted to all runs of the family."""
        return fit.fit(self.points, self.fitted.work, **self.options) if self else None

    def summary(self) -> pd.DataFrame:
        """One row: model, configurations and fitted_on (runs), scatter (standard deviation of the log of steps), gradient_bytes,
        buckets, source (of the compute times)."""
        if not self:
            return pd.DataFrame()
        fitted, work = self.fitted, self.fitted.work
        row = {"model": self.name, "configurations": fitted.measured.groupby(POINT).ngroups}
        row |= {"fitted_on": len(fitted.measured), "scatter": fitted.residual, "gradient_bytes": work.gradient_bytes}
        return pd.DataFrame([row | {"buckets": len(work.buckets(fitted.bucket_mb)), "source": work.source}])

    def costs(self) -> pd.DataFrame:
        """The fitted costs, as of `Fitted.table`."""
        return self.fitted.table() if self else pd.DataFrame()

    def accuracy(self) -> pd.DataFrame:
        """`accuracy` by points: "held out" and "fitted"."""
        if self.errors.empty:
            return self.errors
        named = self.errors.held_out.map({True: "held out", False: "fitted"})
        return accuracy(self.errors.assign(points=named), self.points, "points")

    def ahead(self, gbits: Sequence[float], worlds: Sequence[int], strong: float = 8.0) -> pd.DataFrame:
        """Predictions of the model fitted to all runs for `worlds` ranks over links of `gbits`, as of `Fitted.scaling`: weak
        with the largest measured batch, and strong with `strong` times that in all."""
        if not self:
            return self.points.assign(kind="")
        batch, several = self.points.batch_per_device.max(), self.points[self.points.nodes > 1]
        each = int((several if len(several) else self.points).ranks_per_node.max())
        frames = [
            self.whole.scaling(kind, size, worlds, ranks_per_node=each, gbit=gbit)
            for kind, size in (("strong", strong * batch), ("weak", batch))
            for gbit in gbits
        ]
        return pd.concat(frames, ignore_index=True)


def validate(
    found: Records, profiles: Sequence[Mapping[str, Any]], measured: pd.DataFrame, *, rates: Sequence[float],
    most_ranks: int, gbits: Mapping[str, float],
) -> Validation:  # fmt: skip
    """The model of the first family of runs that has one, fitted without the link `rates` (Gbit/s) and without runs on more
    than `most_ranks` ranks.

    Args:
        profiles: compute probes. measured: links, as of `links.table`. gbits: nominal rates of links, by hardware id.
    """
    reasons: dict[str, str] = {}
    for name, own in fit.families(found.runs).items():
        hardware = own.hardware_id.iloc[0]
        points = fit.points(own, gbit=gbits.get(hardware, math.inf))
        options = {"intra_gbit": links.inside(measured, hardware), "bucket_mb": own.bucket_mb.iloc[0]}
        try:
            work, reach = Work.of(own, found.epochs, profiles), links.reach(measured, hardware, without=rates)
            fitted, errors = fit.held_out(points, work, rates, most_ranks=most_ranks, reach=reach, **options)
        except ValueError as why:
            reasons[name] = str(why)
            continue
        options["reach"] = links.reach(measured, hardware)
        return Validation(
            name, own, points, fitted, errors if errors.held_out.any() else errors[:0], options, reasons
        )
    return Validation(reasons=reasons)


def accuracy(errors: pd.DataFrame, measured: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per value of the column `by` of `errors` (as of `Fitted.errors`, of the runs `measured`).

    Columns: `by`; count (points), inside (of them in the prediction's 95 % interval), inside_share; median_error and
    worst_error (absolute, see `error`), each with `_low` and `_high`; repeats (the fewest); runs.
    """
    if errors.empty:
        return errors
    each, rows = measured.groupby(POINT).seconds.agg(list), []
    for name, own in errors.groupby(by, sort=False):
        repeats = [each[tuple(row)] for row in own[POINT].itertuples(index=False)]
        inside = int(own.measured.between(own.low, own.high).sum())
        row = {by: name, "count": len(own), "inside": inside, "inside_share": inside / len(own)}
        for column, statistic in (("median_error", np.median), ("worst_error", np.max)):
            off = error(own.seconds, repeats, statistic)
            row |= off.columns(column) | {"repeats": off.repeats}
        rows.append(row | {"runs": unique(*own.runs)})
    return pd.DataFrame(rows)


def error(predicted: Sequence[float], repeats: Sequence[Sequence[float]], statistic: Callable) -> Estimate:
    """`statistic` (with `axis`) of |predicted / median of the repeats - 1| over points, with its 95 % interval.

    The interval is a seeded percentile bootstrap of each point's repeats (Efron 1979), widened to hold the value; NaN if a
    point has a single repeat.
    """
    predicted = np.asarray(predicted, float)
    value = float(statistic(np.abs(predicted / [np.median(own) for own in repeats] - 1), axis=0))
    fewest = min(map(len, repeats))
    if fewest < 2:
        return Estimate(value, np.nan, np.nan, fewest)
    generator = np.random.default_rng(0)
    drawn = np.array([np.median(generator.choice(own, (RESAMPLES, len(own))), axis=1) for own in repeats])
    low, high = np.quantile(statistic(np.abs(predicted[:, None] / drawn - 1), axis=0), TAILS).tolist()
    return Estimate(value, min(low, value), max(high, value), fewest)


def curves(errors: pd.DataFrame) -> pd.DataFrame:
    """The configurations of `errors` (as of `fit.held_out`) in curves of at least two rank counts: one row per point.

    Adds kind ("strong", "weak") and size (its fixed batch: of all ranks, or of each). One rank without a group belongs to
    the curves of every `gbit`. Of several layouts of a rank count the one on fewest nodes is taken.
    """
    if errors.empty:
        return errors
    sized = errors.assign(global_batch=errors.batch_per_device * errors.world_size)
    sized = sized.sort_values(["grouped", "nodes"], kind="stable")
    alone, found = sized[sized.world_size == 1], [sized.assign(kind="", size=np.nan)[:0]]
    for kind, fixed in FIXED.items():
        for (size, gbit), many in sized[sized.world_size > 1].groupby([fixed, "gbit"]):
            own = pd.concat([alone[alone[fixed] == size].assign(gbit=gbit), many]).drop_duplicates("world_size")
            found.append(own.assign(kind=kind, size=size).sort_values("world_size"))
    together = pd.concat(found[1:] or found).drop(columns="global_batch")
    return together[together.groupby(CURVE).world_size.transform("nunique") > 1].reset_index(drop=True)


def between(fitted: Fitted, drawn: pd.DataFrame) -> pd.DataFrame:
    """`Fitted.predict` on every number of ranks of the curves in `drawn` (as of `curves`), with `CURVE`."""
    if drawn.empty:
        return drawn
    rows = [
        (*evenly(world, int(own.ranks_per_node.max())), world, world > 1,
         size / world if kind == "strong" else size, gbit, kind, size)
        for (kind, size, gbit), own in drawn.groupby(CURVE)
        for world in range(1, own.world_size.max() + 1)
    ]  # fmt: skip
    return fitted.predict(pd.DataFrame(rows, columns=[*POINT, "kind", "size"]))


def compare(errors: pd.DataFrame, most_ranks: float, fits: Mapping[str, Sequence[Callable]] = LAWS) -> pd.DataFrame:
    """Laws, each fitted to one curve's runs on at most `most_ranks` ranks, and the model, on the points with more ranks.

    `errors`: as of `fit.held_out`. `fits`: by kind of scaling.

    Columns: those of `curves`; law, formula; seconds (predicted), measured, error (predicted / measured - 1). Curves with
    fewer than two rank counts to fit to have none.
    """
    if errors.empty:
        return errors
    drawn = curves(errors)
    parts = [drawn.assign(law="", formula="")[:0]]
    for (kind, _, _), own in drawn.groupby(CURVE):
        small, large = own[own.world_size <= most_ranks], own[own.world_size > most_ranks]
        if len(small) >= 2 and len(large):
            laws = [one(small.world_size, small.measured) for one in fits[kind]]
            parts += [large.assign(law=o.name, formula=o.formula, seconds=o.seconds(large.world_size)) for o in laws]
            parts.append(large.assign(law=MODEL, formula=""))
    together = pd.concat(parts[1:] or parts, ignore_index=True)
    return together.assign(error=together.seconds / together.measured - 1)


def below(ahead: pd.DataFrame, efficient: float) -> pd.DataFrame:
    """One row per curve of `Validation.ahead`: the rank count from which it is less efficient than `efficient`.

    Columns: kind, gbit, batch (of one rank); below_at, and below_from and below_to by the interval's ends (NaN: at none);
    efficient_to (the most ranks before below_at); limited_by, efficiency, low, high, extrapolation and world_size (at
    below_at, or at the most ranks).
    """
    rows = []
    for (kind, gbit), own in _curves_of(ahead):
        many, row = (
            own[own.world_size > 1],
            {"kind": kind, "gbit": gbit, "batch": float(own.batch_per_device.iloc[0])},
        )
        for end, column in (("at", "efficiency"), ("from", "efficiency_low"), ("to", "efficiency_high")):
            row[f"below_{end}"] = many.world_size[many[column] < efficient].min()
        good, bad = many[~(many.world_size >= row["below_at"])], many[many.world_size == row["below_at"]]
        row |= {"efficient_to": good.world_size.max() if len(good) else 1}
        rows.append(row | _first(bad if len(bad) else many.tail(1), bottleneck="limited_by", world_size="world_size"))
    return pd.DataFrame(rows)


def bottlenecks(ahead: pd.DataFrame) -> pd.DataFrame:
    """One row per stretch of a curve of `Validation.ahead` with one bottleneck.

    Columns: kind, gbit, bottleneck, from_ranks, to_ranks; efficiency, low, high and extrapolation (at from_ranks).
    """
    rows = []
    for (kind, gbit), own in _curves_of(ahead):
        many = own[own.world_size > 1]
        for _, part in many.groupby((many.bottleneck != many.bottleneck.shift()).cumsum()):
            found = _first(part, bottleneck="bottleneck", world_size="from_ranks")
            rows.append({"kind": kind, "gbit": gbit, "to_ranks": part.world_size.max()} | found)
    names = ["kind", "gbit", "bottleneck", "from_ranks", "to_ranks", "efficiency", "low", "high", "extrapolation"]
    return pd.DataFrame(rows, columns=names)


def _curves_of(ahead: pd.DataFrame) -> Iterator[tuple[tuple, pd.DataFrame]]:
    return iter(ahead.groupby(["kind", "gbit"], sort=False) if len(ahead) else ())


def _first(rows: pd.DataFrame, **names: str) -> dict[str, Any]:
    """Efficiency, its interval, extrapolation and the columns `names`, renamed so, of the first row."""
    names = names | {"efficiency": "efficiency", "efficiency_low": "low", "efficiency_high": "high"}
    row = rows.iloc[0]
    return {new: row[old] for old, new in (names | {"extrapolation": "extrapolation"}).items()}


def conclusions(accuracy: pd.DataFrame, below: pd.DataFrame) -> Iterator[str]:
    """Sentences on the model's predictions: `accuracy` as of `Validation.accuracy`, `below` as of the function."""
    for row in accuracy.itertuples():
        if row.points == "held out":
            yield (
                f"The model predicts the time of a step of {row.count} configurations that it has not seen with a median error of "
                f"{row.median_error:.1%}, at worst {row.worst_error:.1%}; {row.inside} lie in its 95 % interval."
            )
    for row in below.itertuples():
        size = f"{row.batch:g} samples {'in all' if row.kind == 'strong' else 'a rank'}, over {row.gbit:g} Gbit/s"
        where = "at least 70 % up to" if pd.isna(row.below_at) else "first below 70 % at"
        yield (
            f"{row.kind} scaling, {size}: {where} {row.world_size:,} ranks, {row.efficiency:.0%} [{row.low:.0%}, {row.high:.0%}] there, "
            f"limited by {row.limited_by}" + (" (extrapolation)." if row.extrapolation else ".")
        )
