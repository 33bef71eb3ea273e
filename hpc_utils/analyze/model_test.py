"""The performance model of a result set: fitted to few ranks and some link rates, it predicts the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from hpc_utils.records import Records

from . import link, perfmodel, work
from .perfmodel import POINT, Fitted
from .work import Work


@dataclass(frozen=True)
class ModelTest:
    """A fitted model and what it predicts; false where no family of runs has one.

    Attributes:
        name: of the family of runs. runs: the family's. points: as of `perfmodel.points`. errors: as of `perfmodel.held_out`, empty where
        nothing was held out. reasons: why a family has no model, by its name. options: of `perfmodel.fit`.
    """

    name: str = ""
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    work: Work | None = None
    fitted: Fitted | None = None
    errors: pd.DataFrame = field(default_factory=pd.DataFrame)
    options: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.fitted is not None

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the runs that it is compared with."""
        return tuple(self.points.run_id) if self else ()

    def summary(self) -> pd.DataFrame:
        """One row: model, configurations and fitted_on (runs), scatter (standard deviation of the log of steps), gradient_bytes, buckets,
        source (of the computing times)."""
        if not self:
            return pd.DataFrame()
        fitted = self.fitted
        return pd.DataFrame(
            [
                {
                    "model": self.name, "configurations": fitted.measured.groupby(POINT).ngroups, "fitted_on": len(fitted.measured),
                    "scatter": fitted.residual, "gradient_bytes": self.work.gradient_bytes,
                    "buckets": len(self.work.buckets(fitted.bucket_mb)), "source": self.work.source,
                }
            ]
        )  # fmt: skip

    def costs(self) -> pd.DataFrame:
        """The fitted costs, as of `Fitted.table`."""
        return self.fitted.table() if self else pd.DataFrame()

    def ahead(self, gbits: Sequence[float], worlds: Sequence[int], strong: float = 8.0) -> pd.DataFrame:
        """What the model, fitted to all runs, predicts for `worlds` ranks over links of `gbits`: rows of `Fitted.scaling`, weak with the
        largest batch measured, and strong with `strong` times that in all."""
        if not self:
            return pd.DataFrame()
        whole, batch = self.whole(), self.points.batch_per_device.max()
        several = self.points[self.points.nodes > 1]
        each = int((several if len(several) else self.points).ranks_per_node.max())
        sizes = (("strong", strong * batch), ("weak", batch))
        frames = [
            whole.scaling(kind, size, worlds, ranks_per_node=each, gbit=gbit)
            for kind, size in sizes
            for gbit in gbits
        ]
        return pd.concat(frames, ignore_index=True)

    def whole(self) -> Fitted:
        """The model fitted to all runs, none held out."""
        return perfmodel.fit(self.points, self.work, **self.options)


def fit(
    found: Records, profiles: Sequence[Mapping[str, Any]], links: pd.DataFrame, *, rates: Sequence[float], most_ranks: int,
    gbits: Mapping[str, float],
) -> ModelTest:  # fmt: skip
    """The model of the first family of runs that has one, fitted without the link `rates` (Gbit/s) and without more than
    `most_ranks` ranks.

    Args:
        profiles: compute probes. links: as of `link.table`. gbits: of the links as they are, by hardware id.
    """
    reasons: dict[str, str] = {}
    for name, own in perfmodel.families(found.runs).items():
        hardware = own.hardware_id.iloc[0]
        points = perfmodel.points(own, gbit=gbits.get(hardware, math.inf))
        options = {"intra_gbit": link.inside(links, hardware), "bucket_mb": own.bucket_mb.iloc[0]}
        try:
            alone = work.of(own, found.epochs, profiles)
            reach = link.reach(links, hardware, without=rates)
            fitted, errors = perfmodel.held_out(points, alone, rates, most_ranks=most_ranks, reach=reach, **options)
        except ValueError as why:
            reasons[name] = str(why)
            continue
        options["reach"] = link.reach(links, hardware)
        errors = errors if errors.held_out.any() else errors.head(0)
        return ModelTest(name, own, points, alone, fitted, errors, options, reasons)
    return ModelTest(reasons=reasons)


def conclusions(accuracy: pd.DataFrame, below: pd.DataFrame) -> Iterator[str]:
    """Sentences on what the model predicts: `accuracy` as of `misfit.table` by "points", `below` as of `perfmodel.below`, a row a curve."""
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
