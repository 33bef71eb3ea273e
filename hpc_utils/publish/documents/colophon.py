"""The colophon of a document: where its numbers come from, what they cost, and how to build it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils import provenance
from hpc_utils.analyze import cost, points
from hpc_utils.plural import counted
from hpc_utils.publish import formatting
from hpc_utils.records.folder import read_json

from .sets import ResultSet

if TYPE_CHECKING:
    import pandas as pd

    from .document import Document

SOFTWARE = {"python": "Python", "torch": "PyTorch", "cuda": "CUDA", "nccl": "NCCL", "numpy": "NumPy"}


def rows(document: Document, root: Path) -> list[tuple[str, str]]:
    """(label, text) of the evidence of a document of the checkout `root`; labels below a result set's are indented."""
    name = document.name
    used = [*document.values.values(), *document.resolved.drawn]
    commit = provenance.commit(root)
    changed = " (modified)" * bool(provenance.dirty(root))
    tree = f"commit {commit[: provenance.SHORT]}{changed}" if commit else "a copy of the sources without a commit"
    lines = [("Built with", tree), ("Build again", f"hpc paper {name}"), ("Numbers", f"{name}-numbers.pdf, .csv")]
    for alias in dict.fromkeys(item.alias for item in used):
        result_set = document.sets.by_alias[alias]
        items = [item for item in used if item.alias == alias]
        runs = result_set.records.runs
        runs = runs[runs.run_id.isin({run for item in items for run in item.content.runs})]
        pages = sorted({(item.chapter, item.page["fingerprint"][: provenance.SHORT]) for item in items})
        values = ", ".join(map(" ".join, pages))
        folder = "" if result_set.folder.name == alias else f"{result_set.folder.name}, "
        count = counted(len(runs), "run") if len(runs) else "no run"
        lines.append((f"Results: {alias}", f"{folder}{count}; values by chapter and fingerprint: {values}"))
        if len(runs):
            facts = {"measured on": _hardware(runs), "with": _software(result_set, runs), "where": where(runs)}
            facts["took"] = _took(result_set, runs)
            if barred := int(points.barred(runs).sum()):
                facts["barred"] = f"{counted(barred, 'run')}, of a shared machine or with more ranks than cores"
            lines += [(f"\u00a0\u00a0\u00a0{label}", text) for label, text in facts.items()]
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


def where(runs: pd.DataFrame) -> str:
    """`Slurm jobs 16 to 38, 41, 2026-11-24`, or `directly on the machine, 2026-11-24`."""
    dates = " to ".join(sorted({str(day)[:10] for day in (runs.started.min(), runs.started.max())}))
    jobs = set(runs.job_id.dropna().astype(int))
    if not jobs:
        return f"directly on the machine, {dates}"
    direct_runs = runs.job_id.isna().sum()
    return f"Slurm jobs {ranges(jobs)}, {dates}" + (
        f"; {counted(direct_runs, 'run')} directly on the machine" if direct_runs else ""
    )


def ranges(numbers: set[int]) -> str:
    """`16 to 38, 41`."""
    starts, ends = (sorted(number for number in numbers if number + step not in numbers) for step in (-1, 1))
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in zip(starts, ends, strict=True))


def _took(result_set: ResultSet, runs: pd.DataFrame) -> str:
    total = cost.total(runs, result_set.records.epochs)
    parts = [formatting.quantity(total.device_hours, "device-hours")]
    if total.core_hours:
        parts.append(f"{formatting.quantity(total.core_hours, 'core-hours')} of processors")
    if total.counted:
        share = "" if total.counted == total.runs else f" ({total.counted} of {total.runs} runs had a counter)"
        parts.append(f"{formatting.quantity(total.energy_kwh, 'kWh')} in training{share}")
    else:
        parts.append("energy not known: no run had a counter")
    return ", ".join(parts)
