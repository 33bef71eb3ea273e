"""The evidence of a document: the colophon (where its numbers come from, what they cost, how to build it again), and the list of its
numbers, each with its runs, as a PDF shows it and as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hpc_utils import provenance
from hpc_utils.analyze import cost, points
from hpc_utils.plural import counted
from hpc_utils.publish import formatting
from hpc_utils.publish.address import relative
from hpc_utils.records.folder import read_json

from .sets import ResultSet, SetItem, Sets, source_line

SOFTWARE = {"python": "Python", "torch": "PyTorch", "cuda": "CUDA", "nccl": "NCCL", "numpy": "NumPy"}


def rows(name: str, used: Sequence[SetItem], sets: Sets, root: Path) -> list[tuple[str, str]]:
    """(label, text) of the evidence of the document `name` of the checkout `root`, which shows `used`; labels below a result set's are
    indented."""
    commit = provenance.commit(root)
    changed = " (modified)" * bool(provenance.dirty(root))
    tree = f"commit {commit[: provenance.SHORT]}{changed}" if commit else "a copy of the sources without a commit"
    lines = [("Built with", tree), ("Build again", f"hpc paper {name}"), ("Numbers", f"{name}-numbers.pdf, .csv")]
    for alias in dict.fromkeys(item.alias for item in used):
        result_set = sets.by_alias[alias]
        items = [item for item in used if item.alias == alias]
        runs = result_set.records.runs
        runs = runs[runs.run_id.isin({run for item in items for run in item.content.runs})]
        pages = sorted({(item.page["notebook"], item.page["fingerprint"][: provenance.SHORT]) for item in items})
        values = ", ".join(map(" ".join, pages))
        folder = "" if result_set.folder.name == alias else f"{result_set.folder.name}, "
        count = counted(len(runs), "run") if len(runs) else "no run"
        lines.append((f"Results: {alias}", f"{folder}{count}; values by chapter and fingerprint: {values}"))
        if len(runs):
            facts = {
                "measured on": _hardware(runs),
                "with": _software(result_set, runs),
                "where": formatting.where(runs),
            }
            facts["took"] = _took(result_set, runs)
            if barred := int(points.barred(runs).sum()):
                facts["barred"] = f"{counted(barred, 'run')}, of a shared machine or with more ranks than cores"
            lines += [(f"\u00a0\u00a0\u00a0{label}", text) for label, text in facts.items() if text]
    return lines


def _hardware(runs: pd.DataFrame) -> str:
    """`AMD EPYC (24 runs)`; a cluster's name is before the device."""
    kinds = runs.assign(device_name=runs.device_name.fillna("device not known")).groupby(
        ["hardware_id", "device_name"]
    )
    return "; ".join(
        f"{device if name in device else f'{name}: {device}'} ({counted(count, 'run')})"
        for (name, device), count in kinds.size().items()
    )


def _software(result_set: ResultSet, runs: pd.DataFrame) -> str:
    records = [read_json(result_set.folder / "runs" / run / "provenance.json") for run in runs.run_id]
    parts = []
    for key, name in SOFTWARE.items():
        if versions := {version for record in records if (version := record["versions"].get(key))}:
            parts.append(f"{name} {' and '.join(sorted(versions))}")
    return ", ".join(parts)


def _took(result_set: ResultSet, runs: pd.DataFrame) -> str:
    total = cost.total(runs, result_set.records.epochs)
    parts = [formatting.quantity(total["device_hours"], "device-hours")]
    if core_hours := total["core_hours"]:
        parts.append(f"{formatting.quantity(core_hours, 'core-hours')} of processors")
    if counted_runs := total["energy_counted"]:
        share = "" if counted_runs == len(runs) else f" ({counted_runs} of {len(runs)} runs had a counter)"
        parts.append(f"{formatting.quantity(total['energy_kwh'], 'kWh')} in training{share}")
    else:
        parts.append("energy not known: no run had a counter")
    return ", ".join(parts)


def numbers_table(values: Collection[SetItem], folders: Mapping[str, str]) -> pd.DataFrame:
    """A row for each number: the fields of its `Value`, with the ids of all its runs, and the folder of its result set."""
    rows = [
        dataclasses.asdict(value.content)
        | {"name": value.full, "results": folders[value.alias]}
        | {name: " ".join(getattr(value.content, name)) for name in ("runs", "files")}
        for value in values
    ]
    return pd.DataFrame(rows)


def listed(values: Collection[SetItem], sets: Sets, folders: Mapping[str, str], target: Path) -> dict[str, list[Any]]:
    """What the template `numbers` shows: `numbers`, each with its name, interval, meaning, evidence and executed
    chapter; their `runs`, set by set, numbered from `first`. `folders`: of the sets. `target`: the folder of the PDF.
    """
    places = {}
    runs = []
    for alias in sets.by_alias:
        if ids := sorted({run for value in values if value.alias == alias for run in value.content.runs}):
            runs.append({"title": f"{alias}: {folders[alias]}", "first": len(places) + 1, "ids": ids})
            places.update(((alias, run), number) for number, run in enumerate(ids, len(places) + 1))
    numbers = [
        {
            "name": value.full,
            "value": formatting.text(value.content, "interval"),
            "meaning": value.content.caption,
            "basis": _basis(value, {places[value.alias, run] for run in value.content.runs}),
            "chapter": relative(sets.by_alias[value.alias].folder / value.page["executed"], target),
        }
        for value in values
    ]
    return {"numbers": numbers, "runs": runs}


def _basis(citation: SetItem, runs: set[int]) -> str:
    value = citation.content
    parts = [source_line([citation])]
    parts += [f"{counted(value.repeats, 'repeat')} at least"] if value.repeats else []
    parts += [f"unit {value.unit}"] if value.unit not in ("text", "count") else []
    parts += [f"run{'s' * (len(runs) > 1)} {formatting.ranges(runs)}"] if runs else []
    return "; ".join([*parts, *value.files]) + "."
