"""A study's targets, judged from its measured curves: met, missed, undecided, or not measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from hpc_utils.records.study import Targets

from .compare import scaled
from .decide import Verdict, decide
from .points import number
from .scaling import LINE, curve_names, headline, relative, unique, variation
from .stats import Estimate
from .table import tabled

SHOWN = ["ranks", "layout", "unit", "value", "value_low", "value_high", "repeats"]
COLUMNS = [*LINE, "target", "required", "at_ranks", *SHOWN, "verdict", "why", "runs"]


@tabled(
    "targets",
    "The targets, and what was reached.",
    "target baseline batch precision layout value verdict why",
    measure="value",
)
def judge(table: pd.DataFrame, targets: Targets) -> pd.DataFrame:
    """One row per target, curve and layout; `table` as of `scaling.efficiency`.

    A curve is judged against one process without a group, or where that was not measured, its scheme on one rank. A target
    at a rank count that a curve does not reach is "not measured"; the row then shows the curve's largest rank count. Of
    weak scaling, the points up to the target's rank count are judged. A target without any curve has a row too; one
    without a rank count has none.

    Columns: those of `LINE`; target (in words), required, at_ranks (the target's rank count); ranks, layout, value,
    value_low, value_high (95 %), repeats: what was judged; verdict ("met", "missed", "undecided": the interval contains the target
    or is missing, "not measured"); why (in words); runs (ids, empty without a curve).
    """
    table = headline(table)
    rows = []
    if ranks := targets.strong_ranks:
        share = targets.strong_efficiency
        words = f"strong scaling: efficiency of at least {share:.0%} on {ranks} ranks"
        rows += _judged(
            _strong(table, ranks), {"kind": "strong", "target": words, "required": share, "at_ranks": ranks}
        )
    if ranks := targets.weak_ranks:
        share = targets.weak_variation
        words = f"weak scaling: a step's time varies by at most {share:.0%} up to {ranks} ranks"
        rows += _judged(_weak(table, ranks), {"kind": "weak", "target": words, "required": share, "at_ranks": ranks})
    return pd.DataFrame(rows, columns=COLUMNS)


def sentences(judged: pd.DataFrame) -> list[str]:
    """A sentence for each row of `judge`, with its curve."""
    curves = " (" + curve_names(judged[judged.runs.map(len) > 0]) + ")"
    return [
        f"{row.target}{name}: **{row.verdict}**. {row.why}"
        for row, name in zip(judged.itertuples(), curves.reindex(judged.index, fill_value=""), strict=True)
    ]


def _strong(table: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """The points on `ranks` ranks of each strong curve, or on the most that it has."""
    strong = table[(table.kind == "strong") & (table.world_size > 1)]
    world = strong.world_size
    curve = number(strong, LINE)
    reached = (world == ranks).groupby(curve).transform("any")
    points = strong[np.where(reached, world == ranks, world == world.groupby(curve).transform("max"))]
    run_ids = [unique(*ids) for ids in zip(points.runs, points.runs_base, strict=True)]
    return scaled(points, "value", "efficiency").assign(ranks=points.world_size, runs=run_ids)


def _weak(table: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """The variation of each weak curve up to the fewest ranks that are at least `ranks`."""
    weak = table[table.kind == "weak"]
    world = weak.world_size
    enough = world.where(world >= ranks).groupby(number(weak, LINE)).transform("min")
    return scaled(variation(weak[~(world > enough)]), "value", "variation")


def _judged(points: pd.DataFrame, target: dict) -> Iterator[dict]:
    kind = target["kind"]
    required = target["required"]
    ranks = target["at_ranks"]
    if points.empty:
        yield target | {
            "runs": (),
            "verdict": Verdict.NOT_MEASURED,
            "why": f"no curve of {kind} scaling, which needs runs on one rank and on several with the same batch: "
            "`hpc study run` makes them with `ranks = [1, 2]` in a series of the study's file",
        }
    for row in points.to_dict("records"):
        low = row["value_low"]
        high = row["value_high"]
        interval = "a single run" if np.isnan(low) else f"{low:.1%} to {high:.1%}"
        why = f"{row['value']:.1%} ({interval}) on {row['world_size']} ranks ({row['layout']}){relative(row['baseline'])}"
        reached = row["ranks"] == ranks
        if kind == "weak":  # more ranks cannot reduce the variation
            reached = row["ranks"] >= ranks or low > required
        bound = {"at_least" if kind == "strong" else "at_most": required}
        verdict = decide(Estimate.of(row, "value"), **bound)
        if not reached:
            verdict, why = Verdict.NOT_MEASURED, f"no point of {ranks} ranks; the nearest measurement: {why}"
        elif verdict == Verdict.UNDECIDED:
            why += ": more repeats, alone on the machine, narrow the interval"
        yield row | target | {"unit": "share", "verdict": verdict, "why": why}
