"""Reads a table of kernels that another program printed."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd

from hpc_utils.analyze.profiles.kernels import KernelClass, classify
from hpc_utils.analyze.profiles.timeline import ProfileError

ROUNDED = 0.02  # of the whole: what printed shares may lack or exceed


def read_kernels(path: Path) -> pd.DataFrame:
    """`kernel_table` of a CSV with a column of kernels, or of their kinds, and one of times or shares, as `nsys stats` writes it. What
    shares leave to 100 % is of the class "other".

    Raises:
        ProfileError: it has no such columns, a row has more fields, a kind is unknown, a value is no positive number, or shares exceed 100 %.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = [row for row in csv.reader(file) if row] or [[]]
    names = [name for name in header if name.strip().lower() in ("kernel", "kernel name", "name", "kind")]
    times = [name for name in header if "time" in name.lower() and "%" not in name]
    times += [name for name in header if "%" in name or "share" in name.lower()]
    if not names or not times:
        raise ProfileError(
            f"{path}: needs a column `kernel` (or `kind`) and one of times or shares, with commas, not {header}"
        )
    if several := next((row for row in rows if len(row) != len(header)), None):
        raise ProfileError(
            f"{path}: {','.join(several)!r} has {len(several)} fields, the header {len(header)}: quote what holds a comma"
        )
    table = pd.DataFrame(rows, columns=header)
    values = pd.to_numeric(table[times[0]], errors="coerce")
    if len(wrong := table[times[0]][~(values >= 0)]):
        raise ProfileError(f"{path}: {times[0]} is {wrong.iloc[0]!r}: expected a number of at least 0")
    kernels = pd.DataFrame({"name": table[names[0]], "total_ns": values})
    unknown = [kind for kind in kernels.name if kind not in set(KernelClass)]
    if unknown and names[0].strip().lower() == "kind":
        raise ProfileError(f"{path}: the kind {unknown[0]!r} is none of {', '.join(KernelClass)}")
    if "%" in times[0] or "share" in times[0].lower():
        whole = 100.0 if values.sum() > 1 + ROUNDED else 1.0
        left = whole - values.sum()
        if left < -ROUNDED * whole:
            raise ProfileError(f"{path}: {times[0]} adds up to {values.sum():g}: expected at most {whole:g}")
        if left > ROUNDED * whole:
            kernels.loc[len(kernels)] = ["not listed", left]
    kernels["kind"] = [name if name in set(KernelClass) else classify(name) for name in kernels.name]
    kernels["share"] = kernels.total_ns / kernels.total_ns.sum()
    return kernels.sort_values(["total_ns", "name"], ascending=[False, True], ignore_index=True)
