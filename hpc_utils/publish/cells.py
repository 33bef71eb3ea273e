"""A cell of an exported table, as a text cites it.

    rehearsal:scaling-efficiency.speedup[kind=strong, world_size=8, precision=fp32, baseline=none]

A citation names set (optional if only one set has the table), table, column (by default the table's measure), and keys, which must
leave one row; a value with a comma is in quotes. An unknown or ambiguous citation is an error that lists the nearest rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from hpc_utils import toml_config
from hpc_utils.analyze.value import Value
from hpc_utils.records.identity import flat_settings

from .exports import Exports, Item

_CITATION = re.compile(
    r"(?:(?P<alias>[a-z][a-z0-9-]*):)?(?P<table>[a-z0-9][a-z0-9_-]*)(?:\.(?P<column>[a-z][a-z0-9_]*))?"
    r"(?:\[(?P<keys>[^\[\]]*)\])?"
)
NONE = "none"  # in a key: a field that is empty
FEW = 4  # rows and values that an error lists


class UnknownCell(LookupError):
    """No cell, table or figure matches, or several do; the message lists the nearest."""

    exit_code = 2


@dataclass(frozen=True)
class Citation:
    """`alias`: of the set, "" by default; `column`: "" for the table's measure; `keys`: (column, value) as written."""

    alias: str
    table: str
    column: str
    keys: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        keys = ", ".join(f"{name}={key(value)}" for name, value in self.keys)
        column = f".{self.column}" if self.column else ""
        return f"{self.alias}:{self.table}{column}".removeprefix(":") + (f"[{keys}]" if keys else "")


def parse(written: str) -> Citation:
    """Raises UnknownCell if `written` does not have the form of a citation."""
    match = _CITATION.fullmatch(written.strip())
    parts = re.findall(r'(?:"[^"]*"|[^",])+', match["keys"] or "") if match else []
    pairs = [part.partition("=") for part in parts if part.strip()]
    keys = tuple((name.strip(), value.strip().strip('"')) for name, _, value in pairs)
    if match is None or not all(name and value for name, value in keys):
        raise UnknownCell(f'{written!r} cites no cell: write table.column[key=value, key="value, with commas"]')
    return Citation(match["alias"] or "", match["table"], match["column"] or "", keys)


def find_item(kind: str, name: str, sets: Mapping[str, Exports]) -> tuple[str, Item]:
    """The set that has the table or figure `name`, which may be `SET:NAME`, and the item. `kind`: "tables" or "figures".

    Raises:
        UnknownCell: no such set, no such name, or several sets have it.
    """
    alias, _, item_name = name.rpartition(":")
    word = kind[:-1]
    items_by_set = {
        set_name: getattr(exported, kind) for set_name, exported in sets.items() if alias in ("", set_name)
    }
    if not items_by_set:
        raise UnknownCell(f"no set {alias!r}: there are {', '.join(sets)}")
    having = [set_name for set_name, items in items_by_set.items() if item_name in items]
    if len(having) > 1:
        names = " or ".join(f"{set_name}:{item_name}" for set_name in having)
        raise UnknownCell(f"several sets have the {word} {item_name}: write {names}")
    if not having:
        item_names = set().union(*items_by_set.values())
        raise UnknownCell(f"no {word} {name}: {toml_config.hint(item_name, item_names)}")
    (set_name,) = having
    return set_name, items_by_set[set_name][item_name]


def cell(exported: Exports, cited: Citation) -> Value:
    """The cell of a table that `exported` has.

    Raises:
        UnknownCell: no such column or key, no or several rows, an empty field, a column of unknown unit.
    """
    item = exported.tables[cited.table]
    frame = exported.frame(cited.table)
    column = cited.column or item.measure
    if not column:
        raise UnknownCell(f"{cited}: name a column, {cited.table}.{'|'.join(list(item.units)[:FEW])}")
    _require_column(cited, column, frame, item.units)
    row = _row(frame, cited)
    has_row_unit = column == item.measure and isinstance(row.get("unit"), str)  # each row has a unit of its own
    if not (unit := row["unit"] if has_row_unit else item.units.get(column, "")):
        raise UnknownCell(f"{cited}: the unit of {column!r} is not declared (publish/quantities.toml)")
    if key(row.get("baseline")) != NONE and "baseline" not in dict(cited.keys):
        raise UnknownCell(f"{cited}: T(1) has a process group: name it with baseline={row.baseline}")
    value = row[column]
    if pd.isna(value):
        raise UnknownCell(f"{cited} is empty: it was not measured")
    interval = [float(row.get(f"{column}_{end}", math.nan)) for end in ("low", "high")]
    repeats = int(row["repeats"]) if f"{column}_low" in frame and not pd.isna(row.get("repeats")) else 0
    condition = f" Where {', '.join(f'{name} is {value}' for name, value in cited.keys)}." if cited.keys else ""
    return Value(
        str(cited), str(value) if unit == "text" else getattr(value, "item", lambda: value)(), unit,
        item.caption + condition,
        *interval, repeats=repeats, runs=_runs(row, column, item), files=(item.file, *item.evidence), span=item.span,
    )  # fmt: skip


def with_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with a column for each of `varied_settings`, as text; a key may name it."""
    return frame.join(_settings(frame)[[*varied_settings(frame)]])


def varied_settings(frame: pd.DataFrame) -> tuple[str, ...]:
    """The settings in which the rows differ, such as `width`."""
    settings = _settings(frame)
    return tuple(name for name in settings if name not in frame and settings[name].nunique(dropna=False) > 1)


def _settings(frame: pd.DataFrame) -> pd.DataFrame:
    texts = frame.settings.fillna("") if "settings" in frame else [""] * len(frame)
    return pd.DataFrame([flat_settings(text) for text in texts], frame.index)


def _row(frame: pd.DataFrame, cited: Citation) -> pd.Series:
    frame = with_settings(frame)
    for name, _ in cited.keys:
        _require_column(cited, name, frame, frame.columns)
    fits = pd.DataFrame(
        {name: frame[name].map(partial(_is, wanted=wanted)) for name, wanted in cited.keys}, frame.index
    )
    rows = frame[fits.all(axis=1)]
    if len(rows) == 1:
        return rows.iloc[0]
    names = list(fits)
    if rows.empty:
        nearest_rows = frame[fits.sum(axis=1) == fits.sum(axis=1).max()][names].map(key).drop_duplicates().head(FEW)
        listed = "; ".join(
            ", ".join(f"{name}={value}" for name, value in row.items()) for _, row in nearest_rows.iterrows()
        )
        raise UnknownCell(f"{cited}: no row; near are {listed}")
    values = {name: rows[name].map(key).unique() for name in rows if name not in names and not name.endswith("runs")}
    apart = [f"{name}={'|'.join(choices[:FEW])}" for name, choices in values.items() if 1 < len(choices) <= 2 * FEW]
    raise UnknownCell(f"{cited}: {len(rows)} rows; say which with {'; '.join(apart[:FEW]) or 'more keys'}")


def _require_column(cited: Citation, column: str, frame: pd.DataFrame, among: Any) -> None:
    if column not in frame:
        raise UnknownCell(f"{cited}: {cited.table} has no column {column!r}: {toml_config.hint(column, among)}")


def _is(value: object, wanted: str) -> bool:
    if pd.isna(value):
        return wanted == NONE
    if isinstance(value, str | bool) or str(value) in ("True", "False"):
        return str(value).lower() == wanted.lower()
    try:
        return math.isclose(float(value), float(wanted), rel_tol=1e-9)
    except ValueError:
        return False


def _runs(row: pd.Series, column: str, item: Item) -> tuple[str, ...]:
    """The ids in the row: those of the column, or of the row, or of the whole table."""
    names = [f"{column}_runs"] if f"{column}_runs" in row else [name for name in ("runs", "runs_base") if name in row]
    ids = [run for name in names if isinstance(row[name], str) for run in row[name].split()]
    return tuple(dict.fromkeys(ids)) if names else item.runs


def key(value: object) -> str:
    """A value as a citation writes it."""
    text = NONE if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value)
    return f'"{text}"' if "," in text else text
