"""The list of a document's numbers, each with its runs: as a PDF shows it, and as a table."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd

from hpc_utils.plural import counted
from hpc_utils.publish import formatting
from hpc_utils.publish.address import relative

from .colophon import ranges
from .context import BuildContext
from .document import Document
from .number_lint import CLASSES
from .sets import SetItem


def numbers_table(document: Document, context: BuildContext) -> pd.DataFrame:
    """A row for each number: the fields of its `Value`, with the ids of all its runs, and the folder of its result set."""
    rows = [
        dataclasses.asdict(value.content)
        | {"name": value.full, "results": context.project.sets[value.alias]}
        | {name: " ".join(getattr(value.content, name)) for name in ("runs", "files")}
        for value in document.values.values()
    ]
    return pd.DataFrame(rows)


def listed(document: Document, context: BuildContext) -> dict[str, list[Any]]:
    """What the template `numbers` shows: `numbers`, each with its name, interval, meaning, evidence and executed
    chapter; their `runs`, set by set, numbered from `first`; `allowed`: numbers that are no results.
    """
    values = document.values.values()
    places = {}
    runs = []
    for alias in document.sets.by_alias:
        if ids := sorted({run for value in values if value.alias == alias for run in value.content.runs}):
            runs.append({"title": f"{alias}: {context.project.sets[alias]}", "first": len(places) + 1, "ids": ids})
            places.update(((alias, run), number) for number, run in enumerate(ids, len(places) + 1))
    lines: dict[tuple[str, str], set[int]] = {}
    for passage, kind, line in document.allowed:
        lines.setdefault((passage, kind), set()).add(line)
    file = context.shown(document.entry.source)
    return {
        "numbers": [
            {
                "name": value.full,
                "value": formatting.text(value.content, "interval"),
                "meaning": value.content.caption,
                "basis": _basis(value, {places[value.alias, run] for run in value.content.runs}),
                "chapter": relative(
                    document.sets.by_alias[value.alias].folder / value.page["executed"], context.target
                ),
            }
            for value in values
        ],
        "runs": runs,
        "allowed": [
            (passage, f"{CLASSES[kind]}; {file}:{', '.join(map(str, sorted(line_numbers)))}")
            for (passage, kind), line_numbers in sorted(lines.items())
        ],
    }


def _basis(citation: SetItem, runs: set[int]) -> str:
    value = citation.content
    parts = [citation.source()]
    parts += [f"{counted(value.repeats, 'repeat')} at least"] if value.repeats else []
    parts += [f"unit {value.unit}"] if value.unit not in ("text", "count") else []
    parts += [f"run{'s' * (len(runs) > 1)} {ranges(runs)}"] if runs else []
    return "; ".join([*parts, *value.files]) + "."
