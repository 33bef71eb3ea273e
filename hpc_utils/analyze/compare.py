"""Measures of configurations over those of a base: the one comparison of scaling, precisions, ablations and companions.

Rows are those of `points.gather`: `<measure>_sample` holds a row's `Sample`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from . import stats
from .points import Sample, by_round

NONE: Mapping[str, str] = MappingProxyType({})
SIGNS = np.array([1, -1])  # of the logs in a quotient
FIELDS = [*stats.ENDS, "_repeats", "_rounds", *(f"_{field}" for field in stats.Spread._fields)]


def beside(table: pd.DataFrame, bases: pd.DataFrame, alike: Sequence[str], suffix: str = "_base") -> pd.DataFrame:
    """Each row of `table`, once for each row of `bases` that is equal in the columns `alike` (unknown equals unknown), with the
    base's columns as `<name><suffix>`; NaN where there is no base."""
    names = ["all", *alike]
    keys = [name + suffix for name in names]
    bases = bases.assign(all="").add_suffix(suffix)
    compared = table.assign(all="").merge(bases, "left", left_on=names, right_on=keys)
    return compared.drop(columns=["all", f"all{suffix}"]).copy()  # of one piece, for further columns


def compare(
    table: pd.DataFrame, bases: pd.DataFrame, alike: Sequence[str], **measures: Mapping[str, str]
) -> pd.DataFrame:
    """`ratios` of `beside`: each row of `table` over the first row of `bases` that is equal in the columns `alike`."""
    bases = bases.drop_duplicates([*alike]) if alike else bases[:1]
    return ratios(beside(table, bases, alike), **measures)


def ratios(
    compared: pd.DataFrame, *, over: Mapping[str, str] = NONE, under: Mapping[str, str] = NONE, suffix: str = "_base"
) -> pd.DataFrame:
    """The rows of `beside` with `quotient`s.

    Args:
        over: {ratio: measure}: the row's measure over its base's. under: {ratio: measure}: the base's over the row's.

    Added: each ratio with <ratio>_low and <ratio>_high (95 %), <ratio>_repeats, and of its rounds (`Quotient`) <ratio>_rounds,
    <ratio>_within and <ratio>_between. A base over itself is 1 without an interval; the ratio is NaN where one side is missing.
    """
    rows = compared.to_dict("records")
    columns = {}
    for names, ends in ((over, ("", suffix)), (under, (suffix, ""))):
        for name, measure in names.items():
            quotients = [_of_row(row, measure, ends, row["runs"] == row[f"runs{suffix}"]) for row in rows]
            values = [[*estimate, rounds, *spread] for estimate, rounds, spread in quotients]
            columns |= pd.DataFrame(values, compared.index, [name + field for field in FIELDS], float)
    return compared.assign(**columns).copy()  # of one piece, for further columns


def scaled(table: pd.DataFrame, name: str, source: str, factor: pd.Series | float = 1.0) -> pd.DataFrame:
    """`table` with `name`, `factor` times the column `source`, and its interval."""
    return table.assign(**{name + end: table[source + end] * factor for end in stats.ENDS})


def paired(
    table: pd.DataFrame, base: pd.DataFrame, measure: str = "throughput"
) -> tuple[stats.Estimate, tuple[str, ...]]:
    """Ratio of `measure` in the rounds, or else its median over the repeats, that both have, and the ids of the runs behind it; of runs,
    not of configurations."""
    columns = ["repeat", "run_id", measure]
    pairs = table[columns].merge(base[columns], on="repeat", suffixes=("", "_base")).sort_values("repeat")
    run_ids = tuple(dict.fromkeys([*pairs.run_id_base, *pairs.run_id]))
    if sessions := _in_rounds(by_round(table, measure), by_round(base, measure)):
        return stats.of_rounds(sessions)[0], run_ids
    return stats.median(pairs[measure].astype(float) / pairs[f"{measure}_base"]), run_ids


class Quotient(NamedTuple):
    """An estimate, the `rounds` behind it (0: without turns), and their spread (NaN without turns)."""

    estimate: stats.Estimate
    rounds: int = 0
    spread: stats.Spread = stats.Spread(np.nan, np.nan)


def quotient(above: Sample | float, below: Sample | float) -> Quotient:
    """`above` over `below`. A missing one is NaN.

    Where their runs took turns with each other it is the mean ratio within a round (`stats.of_rounds`), else that of the medians.
    `repeats` is the smaller number.
    """
    if not all(isinstance(sample, Sample) and sample.values for sample in (above, below)):
        return Quotient(stats.UNKNOWN)
    if sessions := _in_rounds(above.by_round, below.by_round):
        estimate, spread = stats.of_rounds(sessions)
        return Quotient(estimate, sum(map(len, sessions)), spread)
    return Quotient(stats.ratio(above.values, below.values))


def _of_row(row: Mapping[str, Any], measure: str, ends: Sequence[str], is_base: bool) -> Quotient:
    above, below = (row[f"{measure}_sample{end}"] for end in ends)
    if is_base and above.values:
        return Quotient(stats.Estimate(1.0, np.nan, np.nan, len(above.values)))
    return quotient(above, below)


def _in_rounds(*samples: Iterable[Mapping[tuple[str, int], float]]) -> list[np.ndarray]:
    """Logs of the `quotient` in the rounds of each session in which both took turns; [] where there is none, or it is too short."""
    sessions = []
    for runs in itertools.product(*(filter(None, by_run) for by_run in samples)):
        common = sorted(set.intersection(*(set(rounds) for rounds in runs)))
        if len(common) >= stats.LEAST_ROUNDS:
            sessions.append(SIGNS @ np.log([[rounds[turn] for turn in common] for rounds in runs]))
    return sessions
