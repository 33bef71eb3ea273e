"""Strong and weak scaling from runs: which belong together, and their efficiency with intervals."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from . import stats
from .dilation import undilated

# A curve's runs are equal in all of these.
SAME = [
    "workload", "dataset", "precision", "settings", "device", "device_name", "hardware_id", "threads_per_rank",
    "emulated", "dilation", "link_gbit", "parameters", "digest", "torch",
]  # fmt: skip


def usable(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that may stand in a scaling figure, undilated: not those with more ranks than cores."""
    runs = undilated(runs)
    return runs[~runs.oversubscribed.fillna(False).astype(bool)]


def throughput(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a configuration: median throughput (sample/s) with its 95 % interval over repeats.

    Columns: those of `SAME`, parallel, world_size, global_batch, batch_per_device, steps_per_epoch;
    throughput, low, high, repeats.
    """
    keys = [*SAME, "parallel", "world_size", "global_batch", "batch_per_device", "steps_per_epoch"]
    rows = []
    for key, group in undilated(runs).groupby(keys, dropna=False):
        estimate = stats.median(group.throughput.tolist())
        found = {"throughput": estimate.value, "low": estimate.low, "high": estimate.high}
        rows.append(dict(zip(keys, key, strict=True)) | found | {"repeats": estimate.repeats})
    return pd.DataFrame(rows, columns=[*keys, "throughput", "low", "high", "repeats"])


def efficiency(runs: pd.DataFrame) -> pd.DataFrame:
    """Strong and weak scaling efficiency of every curve that `runs` hold, one row a point.

    Strong (`kind` = "strong"): fixed global batch and equal work; T(1) / (N T(N)). Weak: fixed batch per
    device and equal steps an epoch; T_step(1) / T_step(N). The headline T(1) (`baseline` = "none") is
    without a process group; DDP on one rank stands beside it (`baseline` = "ddp").

    Columns: those of `SAME`; kind, baseline, batch (the fixed one), world_size; speedup, efficiency, low,
    high (the efficiency's 95 % interval), repeats.
    """
    rows = [row for kind in ("strong", "weak") for row in _curves(usable(runs), kind)]
    columns = [*SAME, "kind", "baseline", "batch", "world_size", "speedup", "efficiency", "low", "high", "repeats"]
    return pd.DataFrame(rows, columns=columns)


def precision_gain(runs: pd.DataFrame) -> pd.DataFrame:
    """How much faster than fp32 one process without a group trains in each other precision, all else equal.

    Columns: those of `SAME`, global_batch; gain (a ratio of throughputs), low, high (its 95 % interval), repeats.
    """
    keys = [name for name in SAME if name != "precision"] + ["global_batch"]
    rows = []
    for key, group in usable(runs)[lambda runs: runs.parallel == "none"].groupby(keys, dropna=False):
        speed = {precision: own.throughput.tolist() for precision, own in group.groupby("precision")}
        full = speed.pop("fp32", None)
        for precision, own in speed.items() if full else ():
            estimate = stats.ratio(own, full)
            rows.append(
                dict(zip(keys, key, strict=True))
                | {"precision": precision, "gain": estimate.value, "low": estimate.low, "high": estimate.high}
                | {"repeats": estimate.repeats}
            )
    return pd.DataFrame(rows, columns=[*SAME, "global_batch", "gain", "low", "high", "repeats"])


def _curves(runs: pd.DataFrame, kind: str) -> Iterator[dict]:
    fixed = "global_batch" if kind == "strong" else "batch_per_device"
    if kind == "weak":  # without fixed steps an epoch shrinks as ranks are added: no weak scaling
        runs = runs[runs.steps_per_epoch.notna()]
    keys = [*SAME, fixed, "steps_per_epoch"]
    for key, curve in runs.groupby(keys, dropna=False):
        shared = dict(zip(keys, key, strict=True))
        shared["batch"] = shared.pop(fixed)
        shared.pop("steps_per_epoch")
        many = curve[(curve.world_size > 1) & (curve.parallel != "none")]
        for baseline in ("none", "ddp"):
            alone = curve[(curve.world_size == 1) & (curve.parallel == baseline)]
            if alone.empty or many.empty:
                continue
            common = shared | {"kind": kind, "baseline": baseline}
            # The baseline against itself: one by definition, without an interval.
            yield common | _point(kind, 1, stats.Estimate(1.0, float("nan"), float("nan"), len(alone)))
            for world, group in many.groupby("world_size"):
                yield common | _point(kind, int(world), stats.ratio(_seconds(alone, kind), _seconds(group, kind)))


def _point(kind: str, world_size: int, gain: stats.Estimate) -> dict:
    """A curve's point from T(1) / T(N): the speed-up itself (strong), the efficiency itself (weak)."""
    speedup, efficiency = (1, 1 / world_size) if kind == "strong" else (world_size, 1)
    return {
        "world_size": world_size,
        "speedup": gain.value * speedup,
        "efficiency": gain.value * efficiency,
        "low": gain.low * efficiency,
        "high": gain.high * efficiency,
        "repeats": gain.repeats,
    }


def _seconds(runs: pd.DataFrame, kind: str) -> list[float]:
    """Each run's time for equal work: a sample's over all ranks (strong), a step's (weak)."""
    per_sample = runs.seconds / runs.samples
    return (per_sample if kind == "strong" else per_sample * runs.global_batch).tolist()
