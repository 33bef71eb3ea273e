"""Measures of configurations over those of a base: the one comparison of scaling, precisions, ablations and companions.

Rows are those of `points.gather`. `<measure>_each` holds a row's values by run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from . import stats
from .points import number

NONE: Mapping[str, str] = MappingProxyType({})


def beside(table: pd.DataFrame, bases: pd.DataFrame, alike: Sequence[str], suffix: str = "_base") -> pd.DataFrame:
    """Each row of `table`, once for each row of `bases` that is equal in the columns `alike` (unknown equals unknown), with the
    base's columns as `<name><suffix>`; NaN where there is no base."""
    group = "alike"
    together = pd.concat([table[[*alike]], bases[[*alike]]])
    numbers = number(together, [*alike]) if alike else np.zeros(len(together), int)
    base_columns = bases.assign(**{group: numbers[len(table) :]}).set_index(group).add_suffix(suffix)
    compared = table.assign(**{group: numbers[: len(table)]}).join(base_columns, on=group)
    return compared.drop(columns=group).reset_index(drop=True).copy()  # of one piece, for further columns


def compare(
    table: pd.DataFrame, bases: pd.DataFrame, alike: Sequence[str], **measures: Mapping[str, str]
) -> pd.DataFrame:
    """`ratios` of `beside`: each row of `table` over the first row of `bases` that is equal in the columns `alike`."""
    bases = bases.drop_duplicates([*alike]) if alike else bases[:1]
    return ratios(beside(table, bases, alike), **measures)


def ratios(
    compared: pd.DataFrame, *, over: Mapping[str, str] = NONE, under: Mapping[str, str] = NONE, suffix: str = "_base"
) -> pd.DataFrame:
    """The rows of `beside` with ratios of medians.

    Args:
        over: {ratio: measure}: the row's measure over its base's. under: {ratio: measure}: the base's over the row's.

    Added: each ratio with <ratio>_low and <ratio>_high (95 %), and <ratio>_repeats, the fewest on either side. A base over itself
    is 1 without an interval; the ratio is NaN where one side is missing.
    """
    sides = {name: (f"{measure}_each", f"{measure}_each{suffix}") for name, measure in over.items()}
    sides |= {name: (f"{measure}_each{suffix}", f"{measure}_each") for name, measure in under.items()}
    is_base = [
        run_ids == base_ids for run_ids, base_ids in zip(compared.runs, compared[f"runs{suffix}"], strict=True)
    ]
    columns = {}
    for name, (above, below) in sides.items():
        pairs = zip(compared[above], compared[below], is_base, strict=True)
        estimates = np.array([_ratio(*pair) for pair in pairs], dtype=float).reshape(-1, 4)
        columns |= dict(zip([*stats.columns([name]), f"{name}_repeats"], estimates.T, strict=True))
    return compared.assign(**columns)


def scaled(table: pd.DataFrame, name: str, source: str, factor: pd.Series | float) -> pd.DataFrame:
    """`table` with `name`, `factor` times the column `source`, and its interval."""
    return table.assign(**{name + end: table[source + end] * factor for end in stats.ENDS})


def paired(
    table: pd.DataFrame, base: pd.DataFrame, measure: str = "throughput"
) -> tuple[stats.Estimate, tuple[str, ...]]:
    """Median ratio of `measure` over the repeats that both have, and the ids of the runs behind it; of runs, not of
    configurations."""
    above = table.set_index("repeat")
    below = base.set_index("repeat")
    repeats = above.index.intersection(below.index).sort_values()
    ratios = above[measure].astype(float)[repeats] / below[measure].astype(float)[repeats]
    run_ids = [*below.run_id[below.index.isin(repeats)], *above.run_id[above.index.isin(repeats)]]
    return stats.median(ratios), tuple(dict.fromkeys(run_ids))


def _ratio(above: np.ndarray, below: np.ndarray, is_base: bool) -> stats.Estimate:
    sides = [np.atleast_1d(side)[~np.isnan(np.atleast_1d(side))] for side in (above, below)]
    if not all(map(len, sides)):
        return stats.UNKNOWN
    if is_base:
        return stats.Estimate(1.0, np.nan, np.nan, len(sides[0]))
    return stats.ratio(*sides)
