"""Strong and weak scaling from runs: speed-up, efficiency, variation and memory, with intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd

from . import stats
from .curves import CURVE, against_one, curves, usable
from .points import ESTIMATES, POINT, SAME, gather, number, points, unwatched

PLACE = ["parallel", "nodes", "ranks_per_node", "world_size", "layout", "global_batch", "batch_per_device"]
LINE = [*SAME, *CURVE, "baseline"]  # what a drawn line's points share
BEHIND = ["runs", "runs_one"]  # ids of a point's runs, and of those of the one rank it is measured against
GAIN = ["speedup", "speedup_low", "speedup_high", "efficiency", "low", "high", "repeats"]


def throughput(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a configuration: median throughput (sample/s) with its 95 % interval over repeats; without the runs that a
    profiler watched.

    Columns: those of `SAME` and `POINT` (parallel, nodes, ranks_per_node, world_size, global_batch, batch_per_device,
    steps_per_epoch), layout; throughput, low, high, repeats, runs.
    """
    found = points(unwatched(runs)).rename(columns={"throughput_low": "low", "throughput_high": "high"})
    return found[[*SAME, *POINT, "layout", "throughput", "low", "high", "repeats", "runs"]]


def efficiency(runs: pd.DataFrame) -> pd.DataFrame:
    """Strong and weak scaling efficiency of every curve that `runs` hold, one row a point.

    Strong (`kind` = "strong"): fixed global batch and equal work; T(1) / (N T(N)). Weak: fixed batch per
    device; T_step(1) / T_step(N), whether epochs have equal steps or (steps_per_epoch NaN) are whole. The headline T(1) (`baseline` = "none") is
    without a process group; the curve's scheme on one rank stands beside it (`baseline` = "ddp", "zero1", "fsdp").
    Runs of different schemes are never points of one curve.

    Columns: those of `SAME`; kind, batch (the fixed one), steps_per_epoch, scheme, baseline; parallel, nodes, ranks_per_node,
    world_size, layout, global_batch, batch_per_device; memory and the measures with their intervals as of
    `points.points`; speedup, speedup_low, speedup_high; efficiency, low, high (its 95 % interval), repeats (the
    fewest on either side); runs, runs_one (`BEHIND`).
    """
    return gains(curves(runs))[[*LINE, *PLACE, "memory", *ESTIMATES, *GAIN, *BEHIND]]


def gains(points_of_curves: pd.DataFrame) -> pd.DataFrame:
    """`efficiency` of the points of `curves.curves`, with the runs behind them as of `curves.against_one`."""
    found = against_one(points_of_curves)
    gain = _ratios(found.step_seconds_one, found.step_seconds_each, found.world_size)
    ranks = found.world_size.to_numpy(dtype=float)
    strong = (found.kind == "strong").to_numpy()
    for ours, theirs, own in zip(GAIN[:3], GAIN[3:6], gain.T, strict=False):
        found[ours], found[theirs] = np.where(strong, own, own * ranks), np.where(strong, own / ranks, own)
    found["repeats"] = gain[:, 3].astype(int)
    return found


def memory(runs: pd.DataFrame) -> pd.DataFrame:
    """How memory per device grows with ranks: M(N) and M(N) / M(1) of every curve, one row a point and statistic.

    Columns: as of `efficiency` up to batch_per_device; memory ("allocated" or "resident"); statistic ("peak", "mean",
    "mode"), bytes, bytes_low, bytes_high (B); ratio, low, high (M(N) / M(1) with its 95 % interval), repeats; runs, runs_one.
    Points whose runs recorded none are left out.
    """
    found, parts = against_one(curves(runs)), []
    for statistic in ("peak", "mean", "mode"):
        name = f"{statistic}_bytes"
        many, one = (
            found[f"{name}_{side}"].map(lambda values: values[~np.isnan(values)]) for side in ("each", "one")
        )
        known = (many.map(len) > 0) & (one.map(len) > 0)
        part = found.loc[known, [*LINE, *PLACE, "memory", *BEHIND]].assign(statistic=statistic)
        part[["bytes", "bytes_low", "bytes_high"]] = found.loc[known, [name, f"{name}_low", f"{name}_high"]]
        ratios = _ratios(many[known], one[known], found.world_size[known])
        part[["ratio", "low", "high", "repeats"]] = ratios
        parts.append(part.astype({"repeats": int}))
    return pd.concat(parts, ignore_index=True)


def variation(table: pd.DataFrame) -> pd.DataFrame:
    """How far a step's time strays from that on one device: max |T_step(N) / T_step(1) - 1| over a weak curve's N.

    `table` as of `efficiency`. The interval's ends are the largest of the points' own ends; it is NaN if any of them
    is a single run.

    Columns: those of `SAME`; kind, batch, steps_per_epoch, scheme, baseline; variation, low, high, repeats (the fewest);
    world_size and layout where it is largest; ranks, the largest N measured; runs.
    """
    weak = table[(table.kind == "weak") & (table.world_size > 1)].reset_index(drop=True)
    ends = (1 / weak[["low", "high"]] - 1).to_numpy()
    touches = (ends.max(axis=1) >= 0) & (ends.min(axis=1) <= 0)  # it may not stray at all
    weak["variation"] = np.abs(1 / weak.efficiency - 1)
    weak["low"], weak["high"] = np.where(touches, 0.0, np.abs(ends).min(axis=1)), np.abs(ends).max(axis=1)
    weak["runs"] = [unique(*both) for both in zip(weak.runs, weak.runs_one, strict=True)]
    curve = weak.groupby(number(weak, LINE))
    found = weak.loc[curve.variation.idxmax(), [*LINE, "variation", "world_size", "layout"]]
    single = curve.repeats.min().to_numpy() == 1
    for end in ("low", "high"):
        found[end] = np.where(single, np.nan, curve[end].max().to_numpy())
    found["repeats"], found["ranks"] = curve.repeats.min().to_numpy(), curve.world_size.max().to_numpy()
    found["runs"] = [unique(*own) for _, own in curve.runs]
    columns = [*LINE, "variation", "low", "high", "repeats", "world_size", "layout", "ranks", "runs"]
    return found[columns].reset_index(drop=True)


def before_after(runs: pd.DataFrame) -> pd.DataFrame:
    """Every configuration in another precision, beside fp32 with all else equal but the settings of the loop: those that are
    equal too come first.

    Columns: those of `SAME` and `POINT`, layout, settings_before, other (whether the settings differ); throughput, epoch_seconds, and utilisation (processor time of the
    busiest rank over time and cores of its device: waiting leaves them idle), each with `<name>_before`; gain (the ratio of
    throughputs), low, high (its 95 % interval), repeats; runs.
    """
    found = gather(used := usable(runs))
    busy = (used.cpu_seconds / used.seconds / used.threads_per_rank).to_numpy(dtype=float, na_value=np.nan)
    found["utilisation"] = [np.median(busy[at]) for at in found["at"]]
    found["like"] = number(found, [name for name in [*SAME, *POINT] if name not in ("precision", "settings")])
    measured = ["throughput", "epoch_seconds", "utilisation"]
    full = (
        found[found.precision == "fp32"]
        .set_index("like")[["settings", *measured, "throughput_each", "runs"]]
        .add_suffix("_before")
    )
    both = found[found.precision != "fp32"].join(full, on="like", how="inner")
    both["other"] = both.settings.fillna("") != both.settings_before.fillna("")
    both = both.sort_values(["other", "settings_before"], kind="stable")
    both = both.drop_duplicates([*SAME, *POINT]).sort_index().reset_index(drop=True)
    both[["gain", "low", "high", "repeats"]] = _ratios(both.throughput_each, both.throughput_each_before)
    both["runs"] = [unique(*behind) for behind in zip(both.runs, both.runs_before, strict=True)]
    beside = [name + end for name in measured for end in ("_before", "")]
    columns = [*SAME, *POINT, "layout", "settings_before", "other", *beside, "gain", "low", "high", "repeats", "runs"]
    return both[columns].astype({"repeats": int})


def precision_gain(runs: pd.DataFrame) -> pd.DataFrame:
    """`before_after` of one process without a group, where nothing but the precision differs."""
    found = before_after(runs)
    return found[(found.parallel == "none") & ~found.other].reset_index(drop=True)


def efficiency_ratio(runs: pd.DataFrame) -> pd.DataFrame:
    """Efficiency in each other precision over that in fp32, against one rank without a group, all else equal.

    Columns: those of `LINE` and `PLACE`; ratio, low, high (its 95 % interval, over the repeats of all four), repeats; runs.
    """
    found = against_one(curves(runs))
    found = found[(found.world_size > 1) & (found.baseline == "none")]
    alike = [name for name in [*LINE, *PLACE] if name != "precision"]
    found = found.assign(like=number(found, alike) if len(found) else [])
    full = found[found.precision == "fp32"].set_index("like")
    rows = []
    for row in found[(found.precision != "fp32") & found.like.isin(full.index)].itertuples():
        base = full.loc[row.like]
        sides = [(one.step_seconds_one, one.step_seconds_each) for one in (row, base)]
        told = stats.ratio_of_ratios(*sides)
        behind = unique(row.runs, row.runs_one, base.runs, base.runs_one)
        rows.append(
            {name: getattr(row, name) for name in [*LINE, *PLACE]}
            | dict(zip(("ratio", "low", "high", "repeats"), told, strict=True))
            | {"runs": behind}
        )
    return pd.DataFrame(rows, columns=[*LINE, *PLACE, "ratio", "low", "high", "repeats", "runs"])


def unique(*runs: tuple[str, ...]) -> tuple[str, ...]:
    """Each id once, in their order."""
    return tuple(dict.fromkeys(one for own in runs for one in own))


def _ratios(above: pd.Series, below: pd.Series, ranks: pd.Series | None = None) -> np.ndarray:
    """(rows, 4): `stats.ratio` of each pair; of one rank against itself one by definition, without an interval."""
    found = stats.ratios(above.tolist(), below.tolist())
    if ranks is not None:
        found[(ranks == 1).to_numpy(), :3] = 1.0, np.nan, np.nan
    return found
