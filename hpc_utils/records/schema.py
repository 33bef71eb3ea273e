"""The record schema: every column of every table, with its unit and meaning, as `schema.toml` lists them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

VERSION = 1
BEGIN, END = "<!-- written by `make docs` from hpc_utils/records/schema.toml -->", "<!-- end -->"
# The headings of the tables in `results/README.md`.
HEADINGS = {
    "runs": "`csv/runs.csv`: one row per run (joined by `hpc collect`)",
    "epochs": "`runs/<run>/epochs.csv` and `csv/epochs.csv` (with `run_id` as first column): one row per epoch",
    "steps": "`runs/<run>/steps.csv.gz`: one row per step and rank",
    "ranks": "`runs/<run>/ranks.csv`: one row per rank",
    "monitor": "`runs/<run>/monitor/<host>.csv`, if requested: one row per device and sample",
    "foreign": "`foreign/<name>/runs.csv`: all columns of `csv/runs.csv`, followed by these",
}


class Column(NamedTuple):
    """One column; `unit` is empty for text, flags and pure numbers."""

    name: str
    unit: str
    meaning: str


def _tables() -> dict[str, tuple[Column, ...]]:
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return {
        table: tuple(Column(name, *about) for name, about in columns.items())
        for table, columns in tomllib.loads(text).items()
    }


TABLES = _tables()
RUNS, EPOCHS, STEPS, RANKS, MONITOR, FOREIGN = (TABLES[table] for table in HEADINGS)


def names(columns: tuple[Column, ...]) -> list[str]:
    """The names of `columns`."""
    return [column.name for column in columns]


def markdown() -> str:
    """The tables of `results/README.md`."""
    parts = []
    for table, heading in HEADINGS.items():
        rows = [f"| `{c.name}` | {c.unit} | {c.meaning} |" for c in TABLES[table]]
        parts.append("\n".join([f"### {heading}", "", "| column | unit | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def renew(page: str) -> str:
    """`page` (the text of `results/README.md`) with the tables between its two markers replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{markdown()}\n\n{END}{after}"
