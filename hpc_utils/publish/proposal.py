"""The resource table of a proposal: what a study will take on a cluster, as Markdown or for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from hpc_utils.analyze import budget, peak_rate

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
    """Header, a row a series and layout, and the total, all as text. Both as of `analyze.budget`."""
    priced = bool(total["unit"])
    names = ["node_hours", "device_hours", *(["cost"] if priced else [])]
    header = ["Series", "Nodes x devices", "Runs", "Hours a run", "Node-hours", "Device-hours"]
    header += [f"Cost ({total['unit']})"] if priced else []
    rows = [[*header, "Basis"]]
    for row in table.to_dict("records"):
        runs = f"{row['runs']}" + (f" ({row['repeats']} repeats)" if row["repeats"] > 1 else "")
        layout = f"{row['nodes']} x {row['ranks_per_node']}"
        rows.append([row["series"], layout, runs, *(_span(row, name) for name in ["hours", *names]), row["basis"]])
    return [*rows, ["Total", "", str(total["runs"]), "", *(_span(total, name) for name in names), ""]]


def notes(table: pd.DataFrame, impossible: Iterable[str]) -> list[str]:
    """What the reader of the table must know: bases, how intervals add up, allowances, and what is not in it."""
    used = [name for name in budget.BASES if any(name in bases.split(", ") for bases in table.basis)]
    said = [f"{name}: {budget.BASES[name]}." for name in used]
    for row in table[table.note != ""].itertuples():
        said.append(f"{row.series}, {row.nodes} x {row.ranks_per_node}: {row.note}.")
    if "operations" in used:
        said.append(ATTAINED.format(*(f"{share:.0%}" for share in peak_rate.ATTAINED)))
    if set(used) - {"time limit"}:
        said.append(HOW)
        said.append(ALLOWED.format(start=budget.START, setup=budget.SETUP, evaluation=budget.EVALUATION))
    return [*said, *(f"{line}." for line in impossible)]


def studies(table: pd.DataFrame, packages: Mapping[str, str]) -> pd.DataFrame:
    """A row a study and the total (`table` as of `planned.studies`), as text; `packages`: {study: its package's id}."""
    rows = []
    for row in table.to_dict("records"):
        largest = "" if row["study"] == "Total" else f"{row['nodes']} x {-(-row['devices'] // row['nodes'])}"
        spans = {"Node-hours": "node_hours", "Device-hours": "device_hours"}
        rows.append(
            {"Package": packages.get(row["study"], ""), "Study": row["study"], "Runs": row["runs"]}
            | {"Largest job (nodes x devices)": largest}
            | {title: _span(row, name) for title, name in spans.items()}
            | {"Basis": row["basis"]}
        )
    return pd.DataFrame(rows)


def reasons(table: pd.DataFrame, peak: Peak | None = None) -> list[str]:
    """What the reader of `studies` must know: what the bases are, the like device, how intervals add up, allowances."""
    return [
        *notes(table.assign(note=""), []),
        *([f"The like device is {peak.name}: {peak.source}."] if peak else []),
    ]


def markdown(rows: list[list[str]], notes: Iterable[str], caption: str) -> str:
    """A table with its caption above and its notes below. `rows` as of `cells`, `notes` as of `notes`."""
    header, *body, total = rows
    bold = [f"**{cell}**" if cell else "" for cell in total]
    lines = [header, ["---"] * len(header), *body, bold]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([f"*{caption}*", "", drawn, "", *(f"- {note}" for note in notes)])


def plain(rows: list[list[str]], notes: Iterable[str], caption: str) -> str:
    """The same in columns, for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([caption, "", *drawn, "", *notes])


def _span(row: Mapping[str, Any], name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{_amount(value)} [{_amount(low)}, {_amount(high)}]" if pd.notna(value) else ""


def _amount(value: float) -> str:
    """Three digits: a prediction has no more."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
