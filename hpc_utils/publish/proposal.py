"""The resource table of a proposal: the cost of a study on a cluster, as Markdown or for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from hpc_utils.analyze import budget

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
ATTAINED = "Of the peak rate a step is allowed {0}, between {1} and {2}: an allowance, which the first run replaces."


def cells(table: pd.DataFrame, total: Mapping[str, Any]) -> list[list[str]]:
    """Header, a row for each series and layout, and the total, all as text. `table`, `total`: of `analyze.budget`."""
    spans = {"Node-hours": "node_hours", "Device-hours": "device_hours"}
    spans |= {f"Cost ({total['unit']})": "cost"} if total["unit"] else {}
    columns: dict[str, tables.Writer] = {
        "Series": lambda row: row["series"],
        "Nodes x devices": lambda row: f"{row['nodes']} x {row['ranks_per_node']}",
        "Runs": lambda row: f"{row['runs']}" + (f" ({row['repeats']} repeats)" if row["repeats"] > 1 else ""),
        "Hours a run": _span("hours"),
        **{heading: _span(name) for heading, name in spans.items()},
        "Basis": lambda row: row["basis"],
    }
    rows = tables.table(table, columns).to_numpy().tolist()
    return [
        list(columns),
        *rows,
        ["Total", "", str(total["runs"]), "", *(_span(name)(total) for name in spans.values()), ""],
    ]


def notes(table: pd.DataFrame, impossible: Iterable[str]) -> list[str]:
    """Notes on the table: bases, how intervals add up, allowances, and what is omitted."""
    used = [name for name in budget.BASES if any(name in bases.split(", ") for bases in table.basis)]
    lines = [f"{name}: {budget.BASES[name]}." for name in used]
    for row in table[table.note != ""].itertuples():
        lines.append(f"{row.series}, {row.nodes} x {row.ranks_per_node}: {row.note}.")
    if "operations" in used:
        lines.append(ATTAINED.format(*(f"{share:.0%}" for share in budget.ATTAINED)))
    if set(used) - {"time limit"}:
        lines += [HOW, ALLOWED.format(start=budget.START, setup=budget.SETUP, evaluation=budget.EVALUATION)]
    return [*lines, *(f"{line}." for line in impossible)]


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


def reasons(table: pd.DataFrame, peak: Peak | None = None) -> list[str]:
    """Notes on `studies`: bases, the like device, how intervals add up, allowances."""
    like = [f"The like device is {peak.name}: {peak.source}."] if peak else []
    return [*notes(table.assign(note=""), []), *like]


def markdown(rows: list[list[str]], notes: Iterable[str], caption: str) -> str:
    """A table with its caption above and its notes below. `rows`: `cells`; `notes`: `notes`."""
    header, *body, total = rows
    bold = [f"**{cell}**" if cell else "" for cell in total]
    drawn = tables.markdown(pd.DataFrame([*body, bold], columns=header))
    return "\n".join([f"*{caption}*", "", drawn, "", *(f"- {note}" for note in notes)])


def plain(rows: list[list[str]], notes: Iterable[str], caption: str) -> str:
    """The same in columns, for a terminal."""
    return "\n".join([caption, "", *formatting.aligned(rows), "", *notes])


def _span(name: str) -> tables.Writer:
    def write(row: tables.Row) -> str:
        value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
        return f"{_amount(value)} [{_amount(low)}, {_amount(high)}]" if pd.notna(value) else ""

    return write


def _amount(value: float) -> str:
    """Three digits: a prediction has no more."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
