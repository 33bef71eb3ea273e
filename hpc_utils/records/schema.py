"""The record schema: every column of every table, with its unit and meaning, as `schema.toml` lists them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

VERSION = 1


class Column(NamedTuple):
    """One column; `unit` is empty for text, flags and pure numbers."""

    name: str
    unit: str
    meaning: str


TABLES = {
    table: tuple(Column(name, *attributes) for name, attributes in columns.items())
    for table, columns in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
RUNS, EPOCHS, ROUNDS, STEPS, RANKS, MONITOR = TABLES.values()


def names(columns: tuple[Column, ...]) -> list[str]:
    """The names of `columns`."""
    return [column.name for column in columns]
