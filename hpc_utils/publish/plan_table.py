"""What `hpc plan` prints: the predicted cost of a study on a cluster, as a proposal's Markdown or for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from hpc_utils.analyze import budget, stats
from hpc_utils.plural import counted

from . import formatting, tables

if TYPE_CHECKING:
    from hpc_utils.analyze.profiles.peaks import Peak

HOW = (
    "Intervals add up linearly where runs rest on the same basis, above all the repeats of a configuration, and as the "
    "root of the sum of squares where they rest on different ones."
)
ALLOWED = (
    "Allowances, expected [low, high]: {start[0]:g} [{start[1]:g}, {start[2]:g}] s for the start of each job's processes; "
    "where no run was measured, {setup[0]:g} [{setup[1]:g}, {setup[2]:g}] s for data, model and first kernels, and for "
    "evaluating a sample {evaluation[0]:.2g} [{evaluation[1]:.2g}, {evaluation[2]:.2g}] of what training on it takes."
)
ATTAINED = "Of the peak rate a step is allowed {0:.0%}, between {1:.0%} and {2:.0%}: an allowance, which the first run replaces."


def resource_table(table: pd.DataFrame, total: Mapping[str, Any]) -> pd.DataFrame:
    """A row for each series and layout, and the total, as text. `table`, `total`: of `analyze.budget`."""
    columns: dict[str, tables.Writer] = {
        "Series": lambda row: row["series"],
        "Nodes x devices": lambda row: f"{row['nodes']} x {row['ranks_per_node']}",
        "Runs": lambda row: f"{row['runs']} ({counted(row['repeats'], 'repeat')})",
        "Hours a run": interval_text("hours"),
    }
    amounts = {"Node-hours": interval_text("node_hours"), "Device-hours": interval_text("device_hours")}
    amounts |= {f"Cost ({total['unit']})": interval_text("cost")} if total["unit"] else {}
    columns |= amounts | {"Basis": lambda row: "; ".join(filter(None, [row["basis"], row["note"]]))}
    total_row = {
        "Series": "Total",
        "Runs": str(total["runs"]),
        **{name: write(total) for name, write in amounts.items()},
    }
    return pd.concat([tables.text_table(table, columns), pd.DataFrame([total_row])]).fillna("")


def table_notes(table: pd.DataFrame, peak: Peak | None = None) -> list[str]:
    """Notes on a table: its bases, how intervals add up, allowances, and the like device, if operations are a basis."""
    bases = {basis for names in table.basis for basis in names.split(", ")}
    lines = [f"{basis}: {description}." for basis, description in budget.BASES.items() if basis in bases]
    lines += [HOW, ALLOWED.format(start=budget.START, setup=budget.SETUP, evaluation=budget.EVALUATION)]
    if peak and "operations" in bases:
        lines += [ATTAINED.format(*budget.ATTAINED), f"The like device is {peak.name}: {peak.source}."]
    return lines


def markdown(table: pd.DataFrame, notes: Iterable[str], caption: str) -> str:
    """A table of text with its caption above and its notes below."""
    return "\n".join([f"*{caption}*", "", tables.markdown(table), "", *(f"- {note}" for note in notes)])


def plain(table: pd.DataFrame, notes: Iterable[str], caption: str) -> str:
    """The same in columns, for a terminal."""
    return "\n".join([caption, "", *formatting.aligned([list(table), *table.to_numpy().tolist()]), "", *notes])


def interval_text(name: str) -> tables.Writer:
    """Writes the value of a column with its interval: `12.3 [5.6, 1,234]`; nothing where there is none."""

    def rounded(number: float) -> str:
        return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"

    return lambda row: formatting.bracketed(*(row[column] for column in stats.columns(name)), rounded)
