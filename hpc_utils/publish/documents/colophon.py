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
    name, used = document.name, [*document.values.values(), *document.resolved.drawn]
    commit, changed = provenance.commit(root), " (modified)" * bool(provenance.dirty(root))
    tree = f"commit {commit[: provenance.SHORT]}{changed}" if commit else "a copy of the sources without a commit"
    found = [("Built with", tree), ("Build again", f"hpc paper {name}"), ("Numbers", f"{name}-numbers.pdf, .csv")]
    for alias in dict.fromkeys(item.alias for item in used):
        one, own = document.sets.by_alias[alias], [item for item in used if item.alias == alias]
        runs = one.records.runs
        runs = runs[runs.run_id.isin({run for item in own for run in item.what.runs})]
        pages = sorted({(item.chapter, item.page["fingerprint"][: provenance.SHORT]) for item in own})
        values = ", ".join(map(" ".join, pages))
        folder = "" if one.folder.name == alias else f"{one.folder.name}, "
        count = counted(len(runs), "run") if len(runs) else "no run"
        found.append((f"Results: {alias}", f"{folder}{count}; values by chapter and fingerprint: {values}"))
        if len(runs):
            facts = {"measured on": _hardware(runs), "with": _software(one, runs), "where": where(runs)}
            facts["took"] = _took(one, runs)
            if barred := int(points.barred(runs).sum()):
                facts["barred"] = f"{counted(barred, 'run')}, of a shared machine or with more ranks than cores"
            found += [(f"\u00a0\u00a0\u00a0{what}", text) for what, text in facts.items()]
    return found


def _hardware(runs: pd.DataFrame) -> str:
    """`AMD EPYC (24 runs)`; a cluster's name is before the device."""
    kinds = runs.assign(device_name=runs.device_name.fillna("device not known")).groupby(
        ["hardware_id", "device_name"]
    )
    return "; ".join(
        f"{device if name in device else f'{name}: {device}'} ({counted(count, 'run')})"
        for (name, device), count in kinds.size().items()
    )


def _software(one: ResultSet, runs: pd.DataFrame) -> str:
    records = [read_json(one.folder / "runs" / run / "provenance.json") for run in runs.run_id]
    parts = []
    for key, name in SOFTWARE.items():
        if found := {version for record in records if (version := record["versions"].get(key))}:
            parts.append(f"{name} {' and '.join(sorted(found))}")
    return ", ".join(parts)


def where(runs: pd.DataFrame) -> str:
    """`Slurm jobs 16 to 38, 41, 2026-11-24`, or `directly on the machine, 2026-11-24`."""
    when = " to ".join(sorted({str(day)[:10] for day in (runs.started.min(), runs.started.max())}))
    jobs = set(runs.job_id.dropna().astype(int))
    if not jobs:
        return f"directly on the machine, {when}"
    alone = runs.job_id.isna().sum()
    return f"Slurm jobs {ranges(jobs)}, {when}" + (
        f"; {counted(alone, 'run')} directly on the machine" if alone else ""
    )


def ranges(numbers: set[int]) -> str:
    """`16 to 38, 41`."""
    first, last = (sorted(one for one in numbers if one + step not in numbers) for step in (-1, 1))
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in zip(first, last, strict=True))


def _took(one: ResultSet, runs: pd.DataFrame) -> str:
    total = cost.total(runs, one.records.epochs)
    parts = [formatting.quantity(total.device_hours, "device-hours")]
    if total.core_hours:
        parts.append(f"{formatting.quantity(total.core_hours, 'core-hours')} of processors")
    if total.counted:
        share = "" if total.counted == total.runs else f" ({total.counted} of {total.runs} runs had a counter)"
        parts.append(f"{formatting.quantity(total.energy_kwh, 'kWh')} in training{share}")
    else:
        parts.append("energy not known: no run had a counter")
    return ", ".join(parts)
