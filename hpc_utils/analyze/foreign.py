"""Efficiency of other people's runs: as they report their throughput, and as it follows from their time and samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.records import foreign, identity

from . import stats

# A curve's runs are equal in all of these that their authors state, and in their parallelism and fixed batch.
SAME = ["foreign", *(name for name in identity.SAME if name in foreign.WORDS)]
FIXED = {"strong": "global_batch", "weak": "batch_per_device"}
COLUMNS = [
    *SAME, "parallel", "kind", "batch", "baseline", "world_size", "nodes", "reported", "efficiency", "low", "high",
    "repeats", "reported_throughput", "throughput", "verdict", "note",
]  # fmt: skip


def efficiency(runs: pd.DataFrame | None = None) -> pd.DataFrame:
    """Reported and corrected efficiency, one row per point; `runs` as of `records.foreign.load`, by
    default all that were imported.

    Both are throughput(N) / (N throughput(1)). At a fixed global batch that is strong scaling's T(1) / (N T(N)) for
    equal work (`kind` = "strong"), at a fixed batch per device weak scaling's T_step(1) / T_step(N) ("weak"), however
    long an epoch is; a set that states no batch has `kind` = "unstated". The baseline is one rank of the same
    configuration, without a process group (`baseline` = "none") where there is such a run, else of the same
    parallelism. Runs that are in no curve have `kind` "" and the reason as `note`.

    Columns: those of `SAME`; parallel, kind, batch (the fixed one, samples), baseline, world_size, nodes; reported
    (efficiency of the reported throughput; NaN if none is reported), efficiency (of the corrected), low, high (its
    95 % interval), repeats; reported_throughput, throughput (medians, samples/s); verdict, note.
    """
    runs, rows = (foreign.load() if runs is None else runs).reset_index(drop=True), []
    for key, same in runs.groupby(SAME, dropna=False) if len(runs) else ():
        shared, drawn = dict(zip(SAME, key, strict=True)), set()
        for kind, batch, curve in _candidates(same[same.comparable.astype(bool)]):
            for point, members in _points(curve):
                rows.append(shared | {"kind": kind, "batch": batch} | point)
                drawn |= set(members)
        for layout, rest in same[~same.index.isin(drawn)].groupby(["parallel", "world_size", "nodes"], dropna=False):
            named = dict(zip(("parallel", "world_size", "nodes"), layout, strict=True))
            rows.append(shared | named | {"kind": "", "repeats": len(rest), "note": _why(rest)} | _medians(rest))
    return pd.DataFrame(rows, columns=COLUMNS)


def _candidates(runs: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    for kind, fixed in FIXED.items():
        for batch, curve in runs.groupby(fixed):
            yield kind, batch, curve
    yield "unstated", np.nan, runs[runs.global_batch.isna()]


def _points(curve: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.Index]]:
    """Each parallelism's points, its baseline first, and which runs they stand for."""
    alone = curve[curve.world_size == 1]
    for parallel, many in curve[curve.world_size > 1].groupby("parallel", dropna=False):
        same = alone.parallel.isna() if pd.isna(parallel) else alone.parallel == parallel
        base = next((one for one in (alone[alone.parallel == "none"], alone[same]) if len(one)), None)
        if base is None:
            continue
        named = base.parallel.iloc[0]
        for own in (base, *([alone[same]] if named == "none" else [])):  # DDP's own overhead: one rank with it
            if len(own):
                yield {"parallel": own.parallel.iloc[0], "baseline": named} | _point(own, base), own.index
        for _, group in many.groupby(["world_size", "nodes"], dropna=False):
            yield {"parallel": parallel, "baseline": named} | _point(group, base), group.index


def _point(group: pd.DataFrame, base: pd.DataFrame) -> dict[str, Any]:
    ranks = int(group.world_size.iloc[0])
    found = _ratio(base.throughput, group.throughput)
    if group is base:  # against itself: one by definition, without an interval
        found = stats.Estimate(1.0, np.nan, np.nan, len(base))
    return {
        "world_size": ranks,
        "nodes": group.nodes.iloc[0],
        "reported": _ratio(base.reported_throughput, group.reported_throughput).value / ranks,
        "efficiency": found.value / ranks,
        "low": found.low / ranks,
        "high": found.high / ranks,
        "repeats": found.repeats,
        "note": "",
    } | _medians(group)


def _ratio(one: pd.Series, many: pd.Series) -> stats.Estimate:
    """T(1) / T(N) for equal work, from throughputs; NaN if one is not known."""
    if one.isna().any() or many.isna().any():
        return stats.Estimate(np.nan, np.nan, np.nan, len(many))
    return stats.ratio((1 / one).tolist(), (1 / many).tolist())


def _medians(group: pd.DataFrame) -> dict[str, Any]:
    return {
        "reported_throughput": group.reported_throughput.median(),
        "throughput": group.throughput.median(),
        "verdict": ", ".join(sorted(set(group.verdict))),
    }


def _why(rest: pd.DataFrame) -> str:
    if not rest.comparable.all():
        return "not comparable"
    return "baseline of no curve" if rest.world_size.iloc[0] == 1 else "no run on one rank of the same configuration"
