"""What the performance model predicts for more ranks: curves of scaling, and from how many ranks on what limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from hpc_utils.allreduce_cost import evenly
from hpc_utils.analyze.model.fit import POINT, Fitted
from hpc_utils.analyze.stats import TAILS, columns
from hpc_utils.analyze.table import tabled

CITED = ["bottleneck", *columns("efficiency"), "extrapolation"]  # of a predicted point, beside its curve


def scaling(
    fitted: Fitted, kind: str, batch: float, worlds: Sequence[int], *, ranks_per_node: int = 1, gbit: float = math.inf
) -> pd.DataFrame:
    """Steps on one rank without a process group, and on `worlds` ranks, of one curve.

    `batch`: of all ranks (kind "strong", at least one sample a rank) or of each ("weak").

    Columns: `POINT`, kind; seconds, and the parts of `Step` in seconds; efficiency, efficiency_low, efficiency_high (95 %) against one
    rank; bottleneck; extrapolation as of `Fitted.predict`, or that of one rank.
    """
    strong = kind == "strong"
    worlds = np.array([1, *(world for world in worlds if 1 < world <= (batch if strong else math.inf))])
    divisor = worlds if strong else 1
    planned = pd.DataFrame([evenly(world, ranks_per_node) for world in worlds], columns=POINT[:2]).assign(
        world_size=worlds, grouped=worlds > 1, batch_per_device=batch / divisor, gbit=gbit, kind=kind
    )
    curve = planned.join(fitted.steps(planned))
    draws = fitted.draws(planned)
    low, high = np.quantile(np.exp(draws[:, :1] - draws), TAILS, axis=0) / divisor
    base = curve.extrapolation[0]
    extrapolation = curve.extrapolation.replace("", base and f"T(1): {base}")
    efficiency = curve.seconds[0] / curve.seconds / divisor
    return curve.assign(efficiency=efficiency, efficiency_low=low, efficiency_high=high, extrapolation=extrapolation)


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
