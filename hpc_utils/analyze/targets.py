"""A study's targets, judged from its measured curves: met, missed, undecided, or not measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from hpc_utils.records.study import Targets

from .decide import Verdict, decide
from .points import number
from .scaling import LINE, headline, relative, unique, variation
from .stats import Estimate

SHOWN = ["ranks", "layout", "value", "low", "high", "repeats"]
COLUMNS = [*LINE, "target", "required", "at_ranks", *SHOWN, "verdict", "why", "runs"]


def judge(table: pd.DataFrame, targets: Targets | None = None) -> pd.DataFrame:
    """One row per target, curve and layout; `table` as of `scaling.efficiency`.

    A curve is judged against one process without a group, or where that was not measured, its scheme on one rank. A target
    at a rank count that a curve does not reach is "not measured"; the row then shows the curve's largest rank count. Of
    weak scaling, the points up to the target's rank count are judged. A target without any curve has a row too; one
    without a rank count has none.

    Columns: those of `LINE`; target (in words), required, at_ranks (the target's rank count); ranks, layout, value, low,
    high (95 % interval), repeats: what was judged; verdict ("met", "missed", "undecided": the interval contains the target
    or is missing, "not measured"); why (in words); runs (ids, empty without a curve).
    """
    targets, table = targets or Targets(), headline(table)
    share, at = targets.strong_efficiency, targets.strong_ranks
    words = f"strong scaling: efficiency of at least {share:.0%} on {at} ranks"
    rows = [*_judged(_strong(table, at), "strong", {"target": words, "required": share, "at_ranks": at})]
    share, at = targets.weak_variation, targets.weak_ranks
    words = f"weak scaling: a step's time varies by at most {share:.0%} up to {at} ranks"
    weak = variation(_up_to(table, at)).rename(columns={"variation": "value"})
    rows += _judged(weak, "weak", {"target": words, "required": share, "at_ranks": at})
    return pd.DataFrame(rows, columns=COLUMNS)


def _strong(table: pd.DataFrame, at: int) -> pd.DataFrame:
    """The points on `at` ranks of each strong curve, or on the most that it has."""
    strong = table[(table.kind == "strong") & (table.world_size > 1)]
    world, curve = strong.world_size, number(strong, LINE)
    reached = (world == at).groupby(curve).transform("any")
    shown = strong[np.where(reached, world == at, world == world.groupby(curve).transform("max"))]
    behind = [unique(*both) for both in zip(shown.runs, shown.runs_one, strict=True)]
    return shown.assign(ranks=shown.world_size, value=shown.efficiency, runs=behind)


def _up_to(table: pd.DataFrame, at: int | None) -> pd.DataFrame:
    """The points of each weak curve up to the fewest ranks that reach `at`."""
    weak = table[table.kind == "weak"]
    world = weak.world_size
    enough = world.where(world >= (at or 1)).groupby(number(weak, LINE)).transform("min")
    return weak[~(world > enough)]


def _judged(found: pd.DataFrame, kind: str, target: dict) -> Iterator[dict]:
    required, at = target["required"], target["at_ranks"]
    if at is None:
        return
    if found.empty:
        yield target | {
            "kind": kind,
            "runs": (),
            "verdict": Verdict.NOT_MEASURED,
            "why": f"no curve of {kind} scaling, which needs runs on one rank and on several with the same batch: "
            "`hpc study run` makes them with `ranks = [1, 2]` in a series of the study's file",
        }
    for row in found.to_dict("records"):
        low, high = row["low"], row["high"]
        interval = "a single run" if np.isnan(low) else f"{low:.1%} to {high:.1%}"
        why = f"{row['value']:.1%} ({interval}) on {row['world_size']} ranks ({row['layout']}){relative(row['baseline'])}"
        reached = row["ranks"] == at
        if kind == "weak":  # more ranks cannot reduce the variation
            reached = row["ranks"] >= at or low > required
        bound = {"at_least" if kind == "strong" else "at_most": required}
        verdict = decide(Estimate(row["value"], low, high, row["repeats"]), **bound)
        if not reached:
            verdict, why = Verdict.NOT_MEASURED, f"no point of {at} ranks; the nearest measurement: {why}"
        elif verdict == Verdict.UNDECIDED:
            why += ": more repeats, alone on the machine, narrow the interval"
        yield row | target | {"verdict": verdict, "why": why}
