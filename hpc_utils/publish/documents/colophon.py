"""The colophon of a document: where its numbers come from, what they cost, and how to build it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import provenance
from hpc_utils.analyze import cost
from hpc_utils.publish import formatting
from hpc_utils.publish.address import relative

from .sets import Found, ResultSet, Sets

if TYPE_CHECKING:
    import pandas as pd

SOFTWARE = {"python": "Python", "torch": "PyTorch", "cuda": "CUDA", "nccl": "NCCL", "numpy": "NumPy"}


def rows(used: list[Found], sets: Sets, root: Path) -> list[tuple[str, str]]:
    """(label, text) of the evidence of a document of the checkout `root`; labels below a result set's are indented."""
    commit, changed = provenance.commit(root), ", with changes that are not committed" * bool(provenance.dirty(root))
    tree = f"commit {commit[: provenance.SHORT]}{changed}" if commit else "a copy of the sources without a commit"
    found = [("Built from", tree), ("Build again", "make paper")]
    for alias, runs in sets.runs(used).items():
        one = sets.by_alias[alias]
        found.append((f"Results: {alias}", _set(one, [item for item in used if item.alias == alias], len(runs))))
        if len(runs):
            facts = {"measured on": _hardware(runs), "with": _software(one, runs), "where": _where(runs)}
            found += [
                (f"\u00a0\u00a0\u00a0{what}", text) for what, text in {**facts, "took": _took(one, runs)}.items()
            ]
    return found


def _set(one: ResultSet, used: list[Found], runs: int) -> str:
    pages = sorted({(found.chapter, found.page["fingerprint"][: provenance.SHORT]) for found in used})
    values = ", ".join(map(" ".join, pages))
    folder = "" if one.folder.name == one.alias else f"{one.folder.name}, "
    return f"{folder}{f'{runs} runs' if runs else 'no run'}; values by chapter and fingerprint: {values}"


def _hardware(runs: pd.DataFrame) -> str:
    kinds = runs.groupby(["hardware_id", "device_name"], dropna=False).size()
    return "; ".join(f"{_machine(name, device)} ({count} runs)" for (name, device), count in kinds.items())


def _software(one: ResultSet, runs: pd.DataFrame) -> str:
    from hpc_utils.records.folder import read_json

    records = [read_json(one.folder / "runs" / run / "provenance.json") or {} for run in runs.run_id]
    parts = []
    for key, name in SOFTWARE.items():
        found = {version for record in records if (version := (record.get("versions") or {}).get(key))}
        parts += [f"{name} {' and '.join(sorted(found))}"] if found else []
    return ", ".join(parts)


def _where(runs: pd.DataFrame) -> str:
    jobs = runs.job_id.dropna().astype(str)
    jobs = sorted({job.removesuffix(".0") for job in jobs if job}, key=lambda job: (len(job), job))
    days = sorted({str(day)[:10] for day in runs.started})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    if not jobs:
        return f"directly on the machine, {when}"
    alone = int(runs.job_id.isna().sum())
    return f"Slurm jobs {_ranges(jobs)}, {when}" + (f"; {alone} runs directly on the machine" if alone else "")


def _took(one: ResultSet, runs: pd.DataFrame) -> str:
    total = cost.total(runs, one.records().epochs)
    parts = [f"{formatting.quantity(total.device_hours, 'device-hours')}"]
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
            "meaning": one.what.says,
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


def _machine(name: Any, device: Any) -> str:
    device = device if isinstance(device, str) else "device not known"
    return f"{name}: {device}" if isinstance(name, str) and name and name not in device else device


def _ranges(jobs: list[str]) -> str:
    """`16 to 38, 41`: consecutive numbers joined; of other names, the first few."""
    if not all(job.isdigit() for job in jobs):
        return ", ".join(jobs[:6]) + (f" and {len(jobs) - 6} more" if len(jobs) > 6 else "")
    numbers = sorted(map(int, jobs))
    first = [job for job in numbers if job - 1 not in numbers]
    last = [job for job in numbers if job + 1 not in numbers]
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in zip(first, last, strict=True))
