"""An ablation's tables and sentences: numbers with their intervals."""

from __future__ import annotations

from functools import partial

import pandas as pd

from hpc_utils.analyze import ablation, stats

from .formatting import ABSENT, bracketed
from .tables import Row, Writer, text_table

MACHINE = ["hardware_id", "digest", "load", "date"]  # columns of a bench table with one value in all rows


def factor(row: Row, name: str) -> str:
    """`1.34 [1.30, 1.38], faster`: the factor in the column `name` with its interval, and the verdict on it."""
    ends = [row[end] for end in stats.columns(name)]
    written = bracketed(*ends, "{:.2f}".format)
    return f"{written}, {ablation.verdict(*ends[1:])}" if written else ABSENT


def _more_memory(row: Row) -> str:
    return ABSENT if pd.isna(row["memory"]) else f"{100 * (row['memory'] - 1):+.1f} %"


def _later_start(row: Row) -> str:
    return ABSENT if pd.isna(row["warmup"]) else f"{row['warmup']:+.2f}"


def steps(gains: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """A row for each step: gains, costs and verdict. `gains`: `Ladder.gains`; `judged`: `Ladder.learnt`."""
    verdicts = {(row["step"], row["measure"]): row["words"] for row in judged.to_dict("records")}
    columns: dict[str, Writer] = {
        "step": lambda row: row["step"],
        "option": lambda row: row["parameters"],
        "alone": partial(factor, name="alone"),
        "after those above": partial(factor, name="marginal"),
        "all up to it": partial(factor, name="together"),
        "memory": _more_memory,
        "start (s)": _later_start,
        "accuracy": lambda row: verdicts.get((row["step"], "accuracy"), ABSENT),
        "loss": lambda row: verdicts.get((row["step"], "loss"), ABSENT),
        "not applicable": lambda row: row["why"],
    }
    return text_table(gains, columns)


def headline(best: ablation.Best, judged: pd.DataFrame) -> str:
    """The fastest configuration in a sentence, and whether it learns as well. `judged`: its rows of `Ladder.learnt`."""
    if not best.steps:
        return "No configuration was measured to be faster than the plain loop."
    learnt = "; ".join(f"{row['measure']} {row['words']}" for row in judged.to_dict("records"))
    return (
        f"**{' + '.join(best.steps)}**: throughput over the plain loop's {factor(best.gain.columns('gain'), 'gain')} "
        f"(pairs of runs: {best.gain.repeats}). Against the plain loop: {learnt or 'neither accuracy nor loss was recorded'}."
    )


def bench(rows: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """(hardware, date and code in words, all other columns that are not empty) of a table of `make bench`."""
    rows = rows.dropna(axis="columns", how="all")
    shared = [name for name in MACHINE if name in rows]
    values = (f"{name.replace('_', ' ')} {' and '.join(map(str, rows[name].dropna().unique()))}" for name in shared)
    return ", ".join(values), rows.drop(columns=shared)
