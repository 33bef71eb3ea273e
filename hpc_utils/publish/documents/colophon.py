"""The colophon of a document: where its numbers come from, what they cost, and how to build it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils import provenance
from hpc_utils.analyze import cost
from hpc_utils.publish import formatting
from hpc_utils.publish.address import relative
from hpc_utils.records.folder import read_json

from .sets import Found, ResultSet, Sets

if TYPE_CHECKING:
    import pandas as pd

SOFTWARE = {"python": "Python", "torch": "PyTorch", "cuda": "CUDA", "nccl": "NCCL", "numpy": "NumPy"}


def rows(used: list[Found], sets: Sets, root: Path) -> list[tuple[str, str]]:
    """(label, text) of the evidence of a document of the checkout `root`; labels below a result set's are indented."""
    commit, changed = provenance.commit(root), ", with changes that are not committed" * bool(provenance.dirty(root))
    tree = f"commit {commit[: provenance.SHORT]}{changed}" if commit else "a copy of the sources without a commit"
    found = [("Built from", tree), ("Build again", "make paper")]
    for alias in dict.fromkeys(item.alias for item in used):
        one, own = sets.by_alias[alias], [item for item in used if item.alias == alias]
        runs = one.records.runs
        runs = runs[runs.run_id.isin({run for item in own for run in item.what.runs})]
        pages = sorted({(item.chapter, item.page["fingerprint"][: provenance.SHORT]) for item in own})
        values = ", ".join(map(" ".join, pages))
        folder = "" if one.folder.name == alias else f"{one.folder.name}, "
        count = f"{len(runs)} runs" if len(runs) else "no run"
        found.append((f"Results: {alias}", f"{folder}{count}; values by chapter and fingerprint: {values}"))
        if len(runs):
            facts = {"measured on": _hardware(runs), "with": _software(one, runs), "where": where(runs)}
            facts["took"] = _took(one, runs)
            found += [(f"\u00a0\u00a0\u00a0{what}", text) for what, text in facts.items()]
    return found


def _hardware(runs: pd.DataFrame) -> str:
    """`AMD EPYC (24 runs)`; a cluster's name is before the device."""
    kinds = runs.assign(device_name=runs.device_name.fillna("device not known")).groupby(
        ["hardware_id", "device_name"]
    )
    return "; ".join(
        f"{device if name in device else f'{name}: {device}'} ({count} runs)"
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
    jobs = sorted(set(runs.job_id.dropna().astype(int)))
    if not jobs:
        return f"directly on the machine, {when}"
    first, last = (sorted(job for job in jobs if job + step not in jobs) for step in (-1, 1))
    ranges = (str(low) if low == high else f"{low} to {high}" for low, high in zip(first, last, strict=True))
    alone = runs.job_id.isna().sum()
    return f"Slurm jobs {', '.join(ranges)}, {when}" + (f"; {alone} runs directly on the machine" if alone else "")


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


def numbers(values: Iterable[Found], folders: Mapping[str, Path], target: Path) -> list[dict[str, str]]:
    """A row for each value: its name and meaning, its interval, its evidence, and the executed chapter.

    `folders`: {alias: folder of the result set}; addresses are relative to `target`, the folder of the PDF.
    """
    return [
        {
            "name": one.full,
            "value": formatting.text(one.what, "interval"),
            "meaning": one.what.caption,
            "basis": _basis(one),
            "chapter": relative(folders[one.alias] / one.page["executed"], target),
        }
        for one in values
    ]


def _basis(one: Found) -> str:
    value = one.what
    parts = [one.source()]
    parts += [f"{value.repeats} repeat{'s' * (value.repeats != 1)} at least"] if value.repeats else []
    parts += [f"unit {value.unit}"] if value.unit not in ("text", "count") else []
    shown = [*value.runs[:2], *value.files[:2]]
    more = len(value.runs) + len(value.files) - len(shown)
    parts += [", ".join(shown) + (f" and {more} more" if more else "")] if shown else []
    return "; ".join(parts) + "."
