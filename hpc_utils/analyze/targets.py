"""A study's targets, judged from its measured curves: met, missed, undecided, or not measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from hpc_utils.records.study import Targets

from .points import number
from .scaling import LINE, headline, unique, variation

MET, MISSED, UNDECIDED, NOT_MEASURED = "met", "missed", "undecided", "not measured"
SHOWN = ["ranks", "layout", "value", "low", "high", "repeats"]
COLUMNS = [*LINE, "target", "required", "at_ranks", *SHOWN, "verdict", "why", "runs"]


def judge(table: pd.DataFrame, targets: Targets | None = None) -> pd.DataFrame:
    """One row per target, curve and layout; `table` as of `scaling.efficiency`.

    A curve is judged against one process without a group, or where that was not measured, its scheme on one rank. A target
    at a rank count that a curve does not reach is "not measured"; the row then shows the curve's largest rank count. A
    target without any curve has a row too.

    Columns: those of `LINE`; target (in words), required, at_ranks (the target's rank count); ranks, layout, value, low,
    high (95 % interval), repeats: what was judged; verdict ("met", "missed", "undecided": the interval contains the target
    or is missing, "not measured"); why (in words); runs (ids, empty without a curve).
    """
    targets, table = targets or Targets(), headline(table)
    rows = [*_strong(table, targets), *_weak(table, targets)]
    return pd.DataFrame([_target(row, targets) | row for row in rows], columns=COLUMNS)


def _strong(table: pd.DataFrame, targets: Targets) -> Iterator[dict]:
    at = targets.strong_ranks
    strong = table[(table.kind == "strong") & (table.world_size > 1)]
    if strong.empty:
        yield _absent("strong")
    world, curve = strong.world_size, number(strong, LINE)
    reached = (world == at).groupby(curve).transform("any")
    shown = np.where(reached, world == at, world == world.groupby(curve).transform("max"))
    for point in strong[shown].to_dict("records"):
        row = {"ranks": point["world_size"], "value": point["efficiency"]}
        row |= {"runs": unique(point["runs"], point["runs_one"])}
        words = f"{_ranks(point)} run at {_percent(point, 'efficiency')} efficiency"
        lacks = "" if row["ranks"] == at else f"no point of {at} ranks"
        yield point | row | _judged(point, targets.strong_efficiency, words, lacks)


def _weak(table: pd.DataFrame, targets: Targets) -> Iterator[dict]:
    required, at = targets.weak_variation, targets.weak_ranks
    curves = variation(table)
    if curves.empty:
        yield _absent("weak")
    for curve in curves.to_dict("records"):
        varies = f"up to {curve['ranks']} ranks it varies by {_percent(curve, 'variation')}"
        # More ranks cannot reduce the variation that fewer ranks have.
        lacks = "" if curve["ranks"] >= at or curve["low"] > required else f"no point of {at} or more ranks"
        judged = _judged(curve, required, f"{varies}, the most on {_ranks(curve)}", lacks)
        yield curve | {"value": curve["variation"]} | judged


def _target(row: dict, targets: Targets) -> dict:
    if row["kind"] == "strong":
        required, at = targets.strong_efficiency, targets.strong_ranks
        words = f"strong scaling: efficiency of at least {required:.0%} on {at} ranks"
    else:
        required, at = targets.weak_variation, targets.weak_ranks
        words = f"weak scaling: a step's time varies by at most {required:.0%} up to {at} ranks"
    return {"target": words, "required": required, "at_ranks": at}


def _judged(found: dict, required: float, words: str, lacks: str) -> dict:
    low, high = found["low"], found["high"]
    if lacks:
        return {"verdict": NOT_MEASURED, "why": f"{lacks}; the nearest measurement: {words}"}
    if np.isnan(low):
        return {"verdict": UNDECIDED, "why": f"{words}: without an interval, repeat it"}
    if low < required < high:
        return {"verdict": UNDECIDED, "why": f"{words}: the interval contains the target, more repeats narrow it"}
    above = (low + high) / 2 >= required
    return {"verdict": MET if above == (found["kind"] == "strong") else MISSED, "why": words}


def _absent(kind: str) -> dict:
    return {"kind": kind, "runs": (), "verdict": NOT_MEASURED, "why": f"there is no curve of {kind} scaling"}


def _ranks(found: dict) -> str:
    return f"{found['world_size']} ranks ({found['layout']})"


def _percent(found: dict, name: str) -> str:
    if np.isnan(found["low"]):
        return f"{found[name]:.1%} (a single run)"
    return f"{found[name]:.1%} ({found['low']:.1%} to {found['high']:.1%})"
