"""Words that the values' sentences share: what a row of an analysis frame is about."""

from __future__ import annotations

from typing import Any

import pandas as pd


def of(row: Any) -> str:
    """`cnn on digits, fp32, AMD EPYC`: the workload and where it ran, as far as the row says."""
    work = " on ".join(str(value) for name in ("workload", "dataset") if known(value := getattr(row, name, None)))
    where = [str(value) for name in ("precision", "device_name") if known(value := getattr(row, name, None))]
    links = link(getattr(row, "link_gbit", None)) if getattr(row, "world_size", 2) > 1 else ""  # one rank needs none
    return ", ".join(filter(None, [work, *where, links]))


def ranks(row: Any) -> str:
    """`2 ranks (2x1) with DDP`, `1 rank without a process group`."""
    parallel = getattr(row, "parallel", None)
    how = {None: "", "none": " without a process group"}.get(parallel, f" with {str(parallel).upper()}")
    layout = f" ({row.layout})" if row.world_size > 1 and known(getattr(row, "layout", None)) else ""
    return f"{row.world_size} rank{'s' if row.world_size > 1 else ''}{layout}{how}"


def batch(row: Any) -> str:
    """`768 samples a step in all`, `8 samples a step on each rank`: what stays fixed on a curve."""
    return f"{row.batch:g} samples a step {'in all' if row.kind == 'strong' else 'on each rank'}"


def link(gbit: float | None) -> str:
    """`links of 0.3 Gbit/s`; nothing where they are as they are."""
    return f"links limited to {gbit:g} Gbit/s" if known(gbit) else ""


def known(value: Any) -> bool:
    """Whether there is a value."""
    return value is not None and not (isinstance(value, float) and pd.isna(value)) and value is not pd.NA
