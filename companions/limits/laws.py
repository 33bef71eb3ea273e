"""Laws that know only the number of ranks (Amdahl's and Gustafson's), beside the performance model on the same points."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from hpc_utils.analyze.points import on_every_link
from hpc_utils.analyze.scaling import FIXED

from .validation import with_errors

CURVE = ["kind", "size", "gbit"]
MODEL = "this model"


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


def curves(errors: pd.DataFrame) -> pd.DataFrame:
    """The configurations of `errors` (as of `validation.errors`) in curves of at least two rank counts: one row per point.

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

    `errors`: as of `validation.errors`. `fits`: by kind of scaling and name, as of `LAWS`.

    Columns: those of `curves`; law; those of `validation.with_errors`. Curves with fewer than two rank counts to fit to have none.
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
    return with_errors(pd.concat(parts, ignore_index=True))
