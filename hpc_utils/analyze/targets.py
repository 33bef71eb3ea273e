"""A study's targets, judged from its measured curves: met, missed, undecided, or not measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from hpc_utils.records.study import Targets

from .curves import CURVE
from .points import SAME, number
from .scaling import LINE, unique, variation

MET, MISSED, UNDECIDED, NOT_MEASURED = "met", "missed", "undecided", "not measured"
COLUMNS = [
    *LINE, "target", "required", "at_ranks", "ranks", "layout", "value", "low", "high", "repeats", "verdict", "why",
    "runs",
]  # fmt: skip


def judge(table: pd.DataFrame, targets: Targets | None = None) -> pd.DataFrame:
    """One row a target, curve and layout; `table` as of `scaling.efficiency`.

    A curve is judged against one process without a group, or where that was not measured, its scheme on one rank. Of a curve
    that does not reach a target's rank count that target is "not measured": the row shows the largest rank count that
    there is, which is not the target itself. A target without any curve has a row too.

    Columns: those of `SAME`; kind, batch, steps_per_epoch, scheme, baseline; target (in words), required, at_ranks (the
    target's rank count); ranks, layout, value, low, high (95 % interval), repeats: what was judged; verdict ("met",
    "missed", "undecided": the interval straddles it or is missing, "not measured"); why (in words); runs (ids, empty without a curve).
    """
    targets, table = targets or Targets(), headline(table)
    return pd.DataFrame([*_strong(table, targets), *_weak(table, targets)], columns=COLUMNS)


def headline(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `scaling.efficiency` against each curve's first baseline: without a group, else its scheme on one rank."""
    without = (table.baseline == "none").groupby(number(table, [*SAME, *CURVE])).transform("any")
    return table[(table.baseline == "none") | ~without]


def _strong(table: pd.DataFrame, targets: Targets) -> Iterator[dict]:
    required, at = targets.strong_efficiency, targets.strong_ranks
    target = {"kind": "strong", "required": required, "at_ranks": at}
    target["target"] = f"strong scaling: efficiency of at least {required:.0%} on {at} ranks"
    strong = table[(table.kind == "strong") & (table.world_size > 1)]
    if strong.empty:
        yield _absent(target)
    world, curve = strong.world_size, number(strong, LINE)
    reached = (world == at).groupby(curve).transform("any")
    shown = np.where(reached, world == at, world == world.groupby(curve).transform("max"))
    for point in strong[shown].to_dict("records"):
        found = {name: point[name] for name in (*LINE, "layout", "low", "high", "repeats")} | target
        found |= {"ranks": point["world_size"], "value": point["efficiency"]}
        found["runs"] = unique(point["runs"], point["runs_one"])
        words = f"{_ranks(found)} run at {_percent(found)} efficiency"
        yield found | _judged(found, words, lacks=None if found["ranks"] == at else f"no point of {at} ranks")


def _weak(table: pd.DataFrame, targets: Targets) -> Iterator[dict]:
    required, at = targets.weak_variation, targets.weak_ranks
    target = {"kind": "weak", "required": required, "at_ranks": at}
    target["target"] = f"weak scaling: a step's time varies by at most {required:.0%} up to {at} ranks"
    curves = variation(table)
    if curves.empty:
        yield _absent(target)
    for curve in curves.to_dict("records"):
        found = {name: curve[name] for name in (*LINE, "ranks", "layout", "low", "high", "repeats", "runs")} | target
        found["value"] = curve["variation"]
        where = f"the most on {_ranks({'ranks': curve['world_size'], 'layout': curve['layout']})}"
        words = f"up to {curve['ranks']} ranks it varies by {_percent(found)}, {where}"
        # More ranks cannot take back what few of them strayed already.
        enough = curve["ranks"] >= at or found["low"] > required
        yield found | _judged(found, words, lacks=None if enough else f"no point of {at} or more ranks")


def _judged(found: dict, words: str, *, lacks: str | None) -> dict:
    low, high, required = found["low"], found["high"], found["required"]
    if lacks:
        return {"verdict": NOT_MEASURED, "why": f"{lacks}; instead, and not the target itself: {words}"}
    if np.isnan(low):
        return {"verdict": UNDECIDED, "why": f"{words}: nobody knows how sure that is, repeat it"}
    if low < required < high:
        return {"verdict": UNDECIDED, "why": f"{words}: the interval straddles the target, more repeats narrow it"}
    above = (low + high) / 2 >= required
    return {"verdict": MET if above == (found["kind"] == "strong") else MISSED, "why": words}


def _absent(target: dict) -> dict:
    return target | {"runs": (), "verdict": NOT_MEASURED, "why": f"there is no curve of {target['kind']} scaling"}


def _ranks(found: dict) -> str:
    return f"{found['ranks']} ranks ({found['layout']})"


def _percent(found: dict) -> str:
    if np.isnan(found["low"]):
        return f"{found['value']:.1%} (a single run)"
    return f"{found['value']:.1%} ({found['low']:.1%} to {found['high']:.1%})"
