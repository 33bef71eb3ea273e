"""The performance model beside laws that know only the number of ranks: fitted on few ranks, all predict more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from hpc_utils.allreduce_cost import evenly

from . import laws
from .curves import FIXED
from .perfmodel import POINT, Fitted

Law = Callable[[Sequence[float], Sequence[float]], laws.Fit]
LAWS: dict[str, tuple[Law, ...]] = {"strong": (laws.amdahl,), "weak": (laws.gustafson,)}
MODEL = "this model"
CURVE = ["kind", "size", "gbit"]


def curves(errors: pd.DataFrame) -> pd.DataFrame:
    """The configurations of `errors` (as of `perfmodel.held_out`) in curves of at least two rank counts: a row a point.

    Adds kind ("strong", "weak") and size (its fixed batch: of all ranks, or of each). One rank needs no link and belongs to the
    curves of every `gbit`; the process without a group stands for it. Of several layouts of as many ranks the one on
    fewest nodes is taken.
    """
    sized = errors.assign(global_batch=errors.batch_per_device * errors.world_size)
    sized = sized.sort_values(["grouped", "nodes"], kind="stable")
    alone, found = sized[sized.world_size == 1], []
    for kind, fixed in FIXED.items():
        for (size, gbit), many in sized[sized.world_size > 1].groupby([fixed, "gbit"]):
            own = pd.concat([alone[alone[fixed] == size].assign(gbit=gbit), many]).drop_duplicates("world_size")
            found.append(own.assign(kind=kind, size=size).sort_values("world_size"))
    together = pd.concat(found) if found else sized.assign(kind="", size=np.nan).head(0)
    counted = together.groupby(CURVE).world_size.transform("nunique")
    return together[counted > 1].drop(columns="global_batch").reset_index(drop=True)


def between(fitted: Fitted, drawn: pd.DataFrame) -> pd.DataFrame:
    """What `fitted` predicts on every number of ranks of the curves in `drawn` (as of `curves`): `CURVE` and the columns of
    `Fitted.predict`."""
    grids = []
    for (kind, size, gbit), own in drawn.groupby(CURVE):
        worlds = np.arange(1, own.world_size.max() + 1)
        nodes, each = zip(*(evenly(int(world), int(own.ranks_per_node.max())) for world in worlds), strict=True)
        batch = size / worlds if kind == "strong" else size
        columns = [nodes, each, worlds, worlds > 1, batch, gbit]
        grids.append(pd.DataFrame(dict(zip(POINT, columns, strict=True))).assign(kind=kind, size=size))
    return fitted.predict(pd.concat(grids, ignore_index=True))


def compare(errors: pd.DataFrame, most_ranks: float, fits: dict[str, tuple[Law, ...]] | None = None) -> pd.DataFrame:
    """Laws, each fitted to one curve's runs on at most `most_ranks` ranks, and the model, on the points with more ranks.

    `errors`: as of `perfmodel.held_out`, whose model saw no more ranks either. `fits`: by kind (default: `LAWS`).

    Columns: those of `curves`; law, formula; seconds (predicted), measured, error (predicted / measured - 1). Curves of fewer
    than two rank counts to be fitted on have none.
    """
    drawn, parts = curves(errors), []
    for (kind, _, _), own in drawn.groupby(CURVE):
        small, large = own[own.world_size <= most_ranks], own[own.world_size > most_ranks]
        if len(small) < 2 or large.empty:
            continue
        found = [fit(small.world_size, small.measured) for fit in (fits or LAWS)[kind]]
        parts += [
            large.assign(law=one.name, formula=one.formula, seconds=one.seconds(large.world_size)) for one in found
        ]
        parts.append(large.assign(law=MODEL, formula=""))
    together = pd.concat(parts, ignore_index=True) if parts else drawn.assign(law="", formula="").head(0)
    return together.assign(error=together.seconds / together.measured - 1)
