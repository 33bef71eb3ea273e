"""A cell of an exported table, as a text cites it.

    rehearsal:scaling-efficiency.speedup[kind=strong, world_size=8, precision=fp32, baseline=none]

Set (may be left out where one set alone has the table), table, column (the table's measure where it is left out), and keys, which
must leave one row. What is unknown or ambiguous is an error that names the nearest.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_utils import toml_config
from hpc_utils.analyze.value import Value

if TYPE_CHECKING:
    import pandas as pd

    from .exports import Exports, Item

_CITATION = re.compile(
    r"(?:(?P<alias>[a-z][a-z0-9-]*):)?(?P<table>[a-z0-9][a-z0-9_-]*)(?:\.(?P<column>[a-z][a-z0-9_]*))?"
    r"(?:\[(?P<keys>[^\[\]]*)\])?"
)
NONE = "none"  # in a key: a field that is empty
FEW = 4  # rows and values that an error lists


class UnknownCell(LookupError):
    """There is no such cell, or there are several; the message says what would be one."""


@dataclass(frozen=True)
class Citation:
    """`alias`: the set's, "" if none is given; `column`: "" for the table's measure; `keys`: (column, value) as written."""

    alias: str
    table: str
    column: str
    keys: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        keys = ", ".join(f"{name}={value}" for name, value in self.keys)
        column = f".{self.column}" if self.column else ""
        return f"{self.alias}:{self.table}{column}".removeprefix(":") + (f"[{keys}]" if keys else "")


def parse(written: str) -> Citation:
    """Raises UnknownCell where `written` has not the form of a citation."""
    match = _CITATION.fullmatch(written.strip())
    pairs = [part.partition("=") for part in (match["keys"] or "").split(",") if part.strip()] if match else []
    if match is None or not all(equals and name.strip() and value.strip() for name, equals, value in pairs):
        raise UnknownCell(f"{written!r} cites no cell: write table.column[key=value, ...]")
    keys = tuple((name.strip(), value.strip()) for name, _, value in pairs)
    return Citation(match["alias"] or "", match["table"], match["column"] or "", keys)


def cell(exported: Exports, cited: Citation) -> Value:
    """The cell of a table that `exported` has.

    Raises:
        UnknownCell: no such column or key, no or several rows, an empty field, a column of unknown unit.
    """
    item, frame = exported.tables[cited.table], exported.frame(cited.table)
    column = cited.column or item.measure
    if not column:
        raise UnknownCell(f"{cited}: name a column, {cited.table}.{_some(item.units)}")
    if column not in frame:
        raise UnknownCell(f"{cited}: {cited.table} has no column {column!r}: {toml_config.hint(column, item.units)}")
    row = _row(frame, cited)
    unit = item.units.get(column, "")
    if column == item.measure and isinstance(row.get("unit"), str):
        unit = row["unit"]  # a table of several quantities, each with its own
    if not unit:
        raise UnknownCell(f"{cited}: the unit of {column!r} is not declared (publish/formatting.py)")
    value = row[column]
    if _empty(value):
        raise UnknownCell(f"{cited} is empty: it was not measured")
    ends = [(row[one], row[other]) for one, other in _ends(column, item) if one in frame and other in frame]
    low, high = ends[0] if ends else (math.nan, math.nan)
    repeats = int(row["repeats"]) if ends and "repeats" in frame and not _empty(row["repeats"]) else 0
    return Value(
        str(cited), str(value) if unit == "text" else _plain(value), unit, f"{item.caption} {_keys(cited)}".strip(),
        *((math.nan, math.nan) if _empty(low) or _empty(high) else (float(low), float(high))),
        repeats=repeats, runs=_runs(row, column, item), files=(item.file("csv"), *item.evidence), span=item.span,
    )  # fmt: skip


def _row(frame: pd.DataFrame, cited: Citation) -> pd.Series:
    keep = [True] * len(frame)
    fits = [0] * len(frame)
    for name, wanted in cited.keys:
        if name not in frame:
            raise UnknownCell(
                f"{cited}: {cited.table} has no column {name!r}: {toml_config.hint(name, frame.columns)}"
            )
        same = [_is(value, wanted) for value in frame[name]]
        keep = [a and b for a, b in zip(keep, same, strict=True)]
        fits = [count + one for count, one in zip(fits, same, strict=True)]
    rows = frame[keep]
    if len(rows) == 1:
        return rows.iloc[0]
    if rows.empty:
        names = [name for name, _ in cited.keys]
        near = frame[[count == max(fits) for count in fits]][names].drop_duplicates().head(FEW)
        listed = "; ".join(", ".join(f"{name}={_said(row[name])}" for name in names) for _, row in near.iterrows())
        raise UnknownCell(f"{cited}: no row; near are {listed}")
    given = {name for name, _ in cited.keys}
    apart = {
        name: rows[name].map(_said).unique()
        for name in rows
        if name not in given and not name.endswith("runs") and 1 < rows[name].map(_said).nunique() <= 2 * FEW
    }
    choices = "; ".join(f"{name}={'|'.join(values[:FEW])}" for name, values in list(apart.items())[:FEW])
    raise UnknownCell(f"{cited}: {len(rows)} rows; say which with {choices or 'more keys'}")


def _is(value: object, wanted: str) -> bool:
    if _empty(value):
        return wanted == NONE
    if isinstance(value, str | bool) or str(value) in ("True", "False"):
        return str(value).lower() == wanted.lower()
    try:
        return math.isclose(float(value), float(wanted), rel_tol=1e-9)
    except ValueError:
        return False


def _ends(column: str, item: Item) -> list[tuple[str, str]]:
    own = [(f"{column}_low", f"{column}_high")]
    return [*own, ("low", "high")] if column == item.measure else own


def _runs(row: pd.Series, column: str, item: Item) -> tuple[str, ...]:
    names = [f"{column}_runs"] if f"{column}_runs" in row else [one for one in ("runs", "runs_one") if one in row]
    ids = [run for name in names if isinstance(row[name], str) for run in row[name].split()]
    return tuple(dict.fromkeys(ids)) if names else item.runs


def _keys(cited: Citation) -> str:
    return f"Where {', '.join(f'{name} is {value}' for name, value in cited.keys)}." if cited.keys else ""


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _plain(value: object) -> float | int:
    return value.item() if hasattr(value, "item") else value


def _said(value: object) -> str:
    return NONE if _empty(value) else f"{value:g}" if isinstance(value, float) else str(value)


def _some(names: object) -> str:
    found = list(names)
    return "|".join(found[:FEW]) + ("|..." if len(found) > FEW else "")
