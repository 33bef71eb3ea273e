"""The performance model as an answer to one question: how long will a step of this configuration take?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from hpc_utils.records.identity import PLANNED

from . import perfmodel, work
from .curves import usable
from .points import cores_per_rank
from .stats import Estimate


class Answer(NamedTuple):
    """`seconds` of a step with its 95 % interval; `note`: in what it extrapolates, "" if in nothing."""

    seconds: Estimate
    note: str


def predictor(
    runs: pd.DataFrame, epochs: pd.DataFrame, profiles: Iterable[Mapping[str, Any]] = (), *, gbit: float = math.inf
) -> Callable[[Mapping[str, Any]], Answer | None]:
    """A function of a planned point (`PLANNED`, nodes, ranks_per_node, world_size, parallel, batch_per_device, link_gbit): the
    time of its step, or None for another strategy than DDP, and where nothing equal in `PLANNED` was measured in at least two configurations.

    Args:
        runs, epochs: as of `records.load`; oversubscribed and profiled ones predict nothing.
        profiles: records of `results/probes/compute`. gbit: the nodes' links.
    """
    honest = usable(runs[runs.parallel.isin(perfmodel.MODELLED)])
    honest = honest.assign(cores_per_rank=cores_per_rank(honest))
    known = {key: own for key, own in honest.groupby(PLANNED)}
    profiles = list(profiles)
    fitted: dict[tuple, perfmodel.Fitted | None] = {}

    def predict(point: Mapping[str, Any]) -> Answer | None:
        if point["parallel"] not in perfmodel.MODELLED:
            return None
        key = tuple(point[name] for name in PLANNED)
        if key not in fitted:
            fitted[key] = _fit(known[key], epochs, profiles, gbit) if key in known else None
        if fitted[key] is None:
            return None
        layout = {name: point[name] for name in ("nodes", "ranks_per_node", "world_size", "batch_per_device")}
        grid = pd.DataFrame(
            [layout | {"grouped": point["parallel"] != "none", "gbit": point.get("link_gbit") or gbit}]
        )
        found = fitted[key].predict(grid).iloc[0]
        seconds = Estimate(found.seconds, found.low, found.high, len(fitted[key].measured))
        return Answer(seconds, f"extrapolation: {found.extrapolation}" if found.extrapolation else "")

    return predict


def _fit(runs: pd.DataFrame, epochs: pd.DataFrame, profiles: list, gbit: float) -> perfmodel.Fitted | None:
    largest = next(iter(perfmodel.families(runs).values()), None)  # of several (models of other sizes) the best known
    if largest is None:
        return None
    try:
        points, alone = perfmodel.points(largest, gbit=gbit), work.of(largest, epochs, profiles)
        return perfmodel.fit(points, alone, bucket_mb=largest.bucket_mb.iloc[0])
    except ValueError:
        return None
