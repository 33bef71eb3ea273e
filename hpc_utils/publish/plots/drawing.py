"""What figures of configurations share: the words that tell them apart, their order, and their intervals."""

from __future__ import annotations

import pandas as pd

from hpc_utils.analyze.points import SAME

from . import style


def apart(table: pd.DataFrame) -> list[str]:
    """What beside the precision tells the table's configurations apart: points of different ones are no curve."""
    return [
        name
        for name in ("scheme", *SAME)
        if name in table and name != "precision" and table[name].nunique(dropna=False) > 1
    ]


def more(row, names: list[str]) -> str:
    """`, torch 2.13.0, 1 Gbit/s`: the values of those columns for a label."""
    return "".join(f", {said}" for name in names if (said := _said(name, getattr(row, name))))


def _said(name: str, value) -> str:
    if name == "link_gbit":
        return "links as they are" if pd.isna(value) else f"{value:g} Gbit/s"
    if name == "threads_per_rank":
        return f"{value:g} of a core" if value < 1 else f"{value:g} core{'' if value == 1 else 's'}"
    if name == "share_period":
        return "" if pd.isna(value) else f"every {1e3 * value:g} ms"
    return f"{name.replace('_', ' ')} {str(value)[:12]}"


def bars(rows: pd.DataFrame, column: str, low: str = "low", high: str = "high"):
    """Asymmetric error bars (2, N); nothing where there was a single run."""
    # Clipped: of equal repeats rounding may put an end on the wrong side.
    return [(rows[column] - rows[low]).fillna(0).clip(lower=0), (rows[high] - rows[column]).fillna(0).clip(lower=0)]


def interval(table: pd.DataFrame) -> str:
    """What the bars mean."""
    repeats = sorted(set(table.repeats))
    if repeats == [1]:
        return "single runs"
    return (
        f"median and 95 % interval of {'-'.join(str(r) for r in (repeats[0], repeats[-1])[: len(repeats)])} repeats"
    )


def ordered(precisions: pd.Series) -> list[str]:
    """As in every figure."""
    return [name for name in style.COLOURS if name in set(precisions)]
