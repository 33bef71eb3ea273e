"""The performance model beside laws that know only the number of ranks: all predict the largest runs from the smaller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.collective import evenly

from . import laws, perfmodel, stats
from .curves import FIXED
from .work import Work


class Curve(NamedTuple):
    """Runs of one kind (strong, weak), size (its fixed batch: of all ranks, or of each) and link, as of `perfmodel.points`."""

    kind: str
    size: float
    gbit: float
    runs: pd.DataFrame


def curves(measured: pd.DataFrame) -> Iterator[Curve]:
    """The curves in `measured` (as of `perfmodel.points`) that reach three numbers of ranks, of DDP alone. One rank needs no link:
    it belongs to the curves of every link. Of several layouts of as many ranks the one on fewest nodes is taken."""
    grouped = measured[measured.grouped].assign(global_batch=lambda runs: runs.batch_per_device * runs.world_size)
    fewest = grouped.groupby(["world_size", "batch_per_device", "gbit"]).nodes.transform("min")
    grouped = grouped[grouped.nodes == fewest]
    for kind, fixed in FIXED.items():
        for size, own in grouped.groupby(fixed):
            alone = own.world_size == 1
            for gbit in sorted(set(own.gbit[~alone])):
                curve = own[alone | (own.gbit == gbit)].assign(gbit=gbit)
                if curve.world_size.nunique() > 2:
                    yield Curve(kind, size, gbit, curve)


class Comparison(NamedTuple):
    """Laws side by side.

    Attributes:
        measured: world_size, held_out, seconds (median), low, high. curves: law -> world_size, seconds.
        table: one row a law: formula, predicted and measured (s) on `ranks`, error. missing: why a law is not there.
    """

    measured: pd.DataFrame
    curves: dict[str, pd.DataFrame]
    table: pd.DataFrame
    missing: str


def compare(curve: Curve, work: Work, **options: Any) -> Comparison:
    """Fit each law to all but the largest number of ranks of one curve, and have it predict that: Amdahl's (strong) or
    Gustafson's (weak), what Extra-P finds, and the performance model of `work` (`options`: of `perfmodel.fit`).

    Raises:
        ValueError: fewer than three numbers of ranks.
    """
    measured = curve.runs
    largest = measured.world_size.max()
    small = measured[measured.world_size < largest]
    if small.world_size.nunique() < 2:
        raise ValueError("a law needs two numbers of ranks to be fitted on and a third to predict")
    fits = [(laws.gustafson if curve.kind == "weak" else laws.amdahl)(small.world_size, small.seconds)]
    missing = ""
    try:
        fits.append(laws.extrap(small))
    except (laws.NoExtraP, ValueError) as why:
        missing = str(why)
    fits.append(laws.Fit("this model", "as above", _law(small, curve, work, **options)))
    many = np.arange(1, largest + 1)
    rows = [
        {"world_size": world, "held_out": world == largest}
        | dict(zip(("seconds", "low", "high"), stats.median(own.seconds.tolist()), strict=False))
        for world, own in measured.groupby("world_size")
    ]
    true = rows[-1]["seconds"]
    told = {fit.name: float(fit.seconds([largest])[0]) for fit in fits}
    table = pd.DataFrame(
        {"formula": {fit.name: fit.formula for fit in fits}, "predicted": told, "measured": true, "ranks": largest}
    )
    drawn = {fit.name: pd.DataFrame({"world_size": many, "seconds": fit.seconds(many)}) for fit in fits}
    return Comparison(pd.DataFrame(rows), drawn, table.assign(error=table.predicted / true - 1), missing)


def _law(measured: pd.DataFrame, curve: Curve, work: Work, **options: float) -> laws.Law:
    """The model as a law is: fitted to runs, a function of the number of ranks alone. All else is as in the curve's
    largest layout."""
    fitted, most = perfmodel.fit(measured, work, **options), int(curve.runs.ranks_per_node.max())

    def grid(worlds: Sequence[float]) -> pd.DataFrame:
        layouts = [(world, *evenly(world, most)) for world in map(int, worlds)]
        return pd.DataFrame(
            {
                "nodes": nodes, "ranks_per_node": each, "world_size": world, "grouped": True, "gbit": curve.gbit,
                "batch_per_device": curve.size / world if curve.kind == "strong" else curve.size,
            }
            for world, nodes, each in layouts
        )  # fmt: skip

    return lambda worlds: np.array([fitted.step(row).seconds for row in grid(worlds).itertuples()])
