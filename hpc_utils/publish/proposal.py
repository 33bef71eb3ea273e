"""The resource table of a proposal: the cost of a study on a cluster, as Markdown or for a terminal."""

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


def resources(table: pd.DataFrame, total: Mapping[str, Any]) -> pd.DataFrame:
    """A row for each series and layout, and the total, as text. `table`, `total`: of `analyze.budget`."""
    columns: dict[str, tables.Writer] = {
        "Series": lambda row: row["series"],
        "Nodes x devices": lambda row: f"{row['nodes']} x {row['ranks_per_node']}",
        "Runs": lambda row: f"{row['runs']} ({counted(row['repeats'], 'repeat')})",
        "Hours a run": _span("hours"),
    }
    amounts = {"Node-hours": _span("node_hours"), "Device-hours": _span("device_hours")}
    amounts |= {f"Cost ({total['unit']})": _span("cost")} if total["unit"] else {}
    columns |= amounts | {"Basis": lambda row: "; ".join(filter(None, [row["basis"], row["note"]]))}
    last = {"Series": "Total", "Runs": str(total["runs"]), **{name: write(total) for name, write in amounts.items()}}
    return pd.concat([tables.table(table, columns), pd.DataFrame([last])]).fillna("")


def studies(table: pd.DataFrame, packages: Mapping[str, str]) -> pd.DataFrame:
    """A row for each study and the total (`budget.by_study`), as text; `packages`: {study: id of its package}."""

    def largest(row: tables.Row) -> str:
        return "" if row["study"] == "Total" else f"{row['nodes']} x {-(-row['devices'] // row['nodes'])}"

    columns: dict[str, tables.Writer] = {
        "Package": lambda row: packages.get(row["study"], ""),
        "Study": lambda row: row["study"],
        "Runs": lambda row: row["runs"],
        "Largest job (nodes x devices)": largest,
        "Node-hours": _span("node_hours"),
        "Device-hours": _span("device_hours"),
        "Basis": lambda row: row["basis"],
    }
    return tables.table(table, columns).astype({"Runs": int})


def notes(table: pd.DataFrame, peak: Peak | None = None) -> list[str]:
    """Notes on a table: its bases, how intervals add up, allowances, and the like device, if operations are a basis."""
    used = {name for bases in table.basis for name in bases.split(", ")}
    lines = [f"{name}: {about}." for name, about in budget.BASES.items() if name in used]
    lines += [HOW, ALLOWED.format(start=budget.START, setup=budget.SETUP, evaluation=budget.EVALUATION)]
    if peak and "operations" in used:
        lines += [ATTAINED.format(*budget.ATTAINED), f"The like device is {peak.name}: {peak.source}."]
    return lines


def markdown(table: pd.DataFrame, notes: Iterable[str], caption: str) -> str:
    """A table of text with its caption above and its notes below."""
    return "\n".join([f"*{caption}*", "", tables.markdown(table), "", *(f"- {note}" for note in notes)])


def plain(table: pd.DataFrame, notes: Iterable[str], caption: str) -> str:
    """The same in columns, for a terminal."""
    return "\n".join([caption, "", *formatting.aligned([list(table), *table.to_numpy().tolist()]), "", *notes])


def _span(name: str) -> tables.Writer:
    def write(row: tables.Row) -> str:
        ends = [row[end] for end in stats.columns([name])]
        value, low, high = (f"{end:,.0f}" if end >= 1000 else f"{end:.3g}" for end in ends)
        return f"{value} [{low}, {high}]" if pd.notna(ends[0]) else ""

    return write
