"""Two profiles compared: time per unit of work by part, kernel and phase, and what changed in a sentence.

The unit is a step where both programs marked theirs, else a call of the kernel that takes longest in both. Parts add up to the
devices' spans: compute by the classes of its kernels, exposed communication, memory operations with nothing beside, gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from . import kernels, phases
from .devices import MATRIX, Devices
from .readers import COUNTS, WORK, Reports
from .timeline import ProfileError
from .verdict import LIKE, NEGLIGIBLE


def compare(before: Reports, after: Reports) -> tuple[pd.DataFrame, list[str]]:
    """(rows by `of` (part, kernel or phase) and `name` with ms a unit `before`, `after` and `change`, the largest first; sentences:
    what changed, and whether the work did).

    Raises:
        ProfileError: no device's work, or neither steps in both nor a kernel in common to count the work by.
    """
    devices = [Devices(side) for side in (before, after)]
    tables = [kernels.kernel_table(side.timelines) for side in devices]
    computing = [table[table.kind != kernels.COLLECTIVE] for table in tables]
    calls = _beside(table.groupby("name")["count"].sum() for table in computing)
    spent = _beside(table.groupby("name").total_ns.sum() for table in computing)[(calls > 0).all(axis=1)]
    if all(side.marked_steps for side in devices):
        counted = unit = "step"
        units = pd.Series({name: sum(map(len, side.steps)) for name, side in zip(calls, devices, strict=True)})
    elif spent.empty:
        raise ProfileError(
            "different work: the two profiles have no kernel in common, and do not both mark their steps"
        )
    else:
        kernel = spent.min(axis=1).idxmax()
        counted = "call"
        unit = f"call of {kernel}"
        units = calls.loc[kernel]
    parts = _beside(pd.Series(_parts(side)) for side in devices)
    times = {
        "part": parts,
        "kernel": _beside(table.groupby("name").total_ns.sum() for table in tables),
        "phase": _beside(phases.phase_table(side.timelines).groupby("phase").host_ns.sum() for side in devices),
    }
    rows = pd.concat(times, names=["of", "name"]).astype(float) / units / 1e6
    rows["change"] = rows.after - rows.before
    rows = rows.sort_values("change", key=abs, ascending=False)
    spans = parts.sum() / units / 1e6
    idle = parts.T.get("gaps", 0.0) / parts.sum()
    changes = rows.loc["part"].change
    changes = changes[changes.abs() > NEGLIGIBLE * spans.before].head(3)
    largest = ", ".join(f"{part} {ms:+.3g} ms" for part, ms in changes.items())
    sentences = [
        f"{spans.before:.4g} and {spans.after:.4g} ms a {unit}, "
        f"{units.before:.0f} and {units.after:.0f} {counted}s of all ranks: "
        f"{spans.before / spans.after:.3g} times as fast; idle {idle.before:.0%} and {idle.after:.0%}; "
        + (f"mostly {largest}" if largest else "no part changed")
    ]
    matrices = _beside(table[table.kind.isin(MATRIX)].groupby("kind")["count"].sum() for table in tables) / units
    different = matrices[matrices.min(axis=1) < (1 - LIKE) * matrices.max(axis=1)]
    for kind, count in different.iterrows():
        sentences.append(f"different work: {count.before:.4g} and {count.after:.4g} {kind} kernels a {unit}")
    if before.work and after.work and (unlike := ", ".join(_unlike(before.work, after.work))):
        sentences.append(f"different work or options by the runs' records: {unlike}")
    return rows, sentences


def _unlike(*works: Mapping[str, Any]) -> list[str]:
    """What differs, as `width 8 and 16`: the options of an own workload only where the operations are not counted in both."""
    counts = [name for name in COUNTS if all(work.get(name) for work in works)]
    options = [{} if "flops_per_sample" in counts else work.get("workload_args") or {} for work in works]
    sides = [
        option | {name: value for name, value in work.items() if name in (*WORK, *counts)}
        for option, work in zip(options, works, strict=True)
    ]
    pairs = {name: [side.get(name) for side in sides] for side in sides for name in side}
    return [f"{name} {first} and {second}" for name, (first, second) in pairs.items() if first != second]


def _parts(devices: Devices) -> dict[str, float]:
    """ns of all devices, by part."""
    shares = devices.shares
    parts = {f"{kind} kernels": shares["computing"] * devices.class_share([kind]) for kind in kernels.KernelClass}
    parts |= {
        "exposed communication": shares["exposed"] or 0.0,
        "memory operations": shares["copies"] + shares["moves"],
        "gaps": 1 - shares["busy"],
    }
    return {part: share * devices.span for part, share in parts.items() if share}


def _beside(columns: Iterable[pd.Series]) -> pd.DataFrame:
    return pd.concat(list(columns), axis=1, keys=["before", "after"]).fillna(0)
