"""Strong and weak scaling from runs: curves, speed-up, efficiency, variation and memory, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.capability import PERIODS_OF_A_STEP
from hpc_utils.records.identity import task

from . import stats
from .points import (
    ESTIMATES,
    MEASURES,
    POINT,
    SAME,
    barred,
    gather,
    learned,
    number,
    on_every_link,
    points,
    unprofiled,
)

# What separates curves beside `SAME`: `batch` is the fixed one, `scheme` how several ranks share the model ("ddp", ...).
CURVE = ["kind", "batch", "steps_per_epoch", "scheme"]
FIXED = {"strong": "global_batch", "weak": "batch_per_device"}
PLACE = ["parallel", "nodes", "ranks_per_node", "world_size", "layout", "global_batch", "batch_per_device"]
LINE = [*SAME, *CURVE, "baseline"]  # equal for all points of a drawn line
BEHIND = ["runs", "runs_one"]  # ids of a point's runs, and of those of its baseline
GAIN = ["speedup", "speedup_low", "speedup_high", "efficiency", "low", "high"]
RATIO = ["ratio", "low", "high", "repeats"]

RANKS = (1, 2, 4, 8, 12)  # rank counts of the workshop's table
MEASURED, NOT_MEASURED, BARRED = "measured", "not measured", "barred"
WORKSHOP = [*LINE, *PLACE, "memory", *ESTIMATES, *GAIN, "repeats", *BEHIND, "state", "why"]


def usable(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs allowed in a scaling figure: without a profiler, not `barred`, and with steps that
    compute for enough periods of their share of a core."""
    cores, period, cpu = (pd.to_numeric(runs[name]) for name in ("threads_per_rank", "share_period", "cpu_seconds"))
    short = cpu / cores / (runs.samples / runs.global_batch) < PERIODS_OF_A_STEP * period
    return unprofiled(runs[~short & ~barred(runs)])


def curves(runs: pd.DataFrame) -> pd.DataFrame:
    """Strong and weak curves: `points.gather` of the usable runs, one row per point of a curve.

    Strong: fixed global batch and equal work. Weak: fixed batch per device, compared by the time of a step; equal steps an
    epoch, or (steps_per_epoch NaN) whole epochs. A curve has at least two rank counts; a point may be on one of each kind.

    Further columns: kind ("strong", "weak"), batch (the fixed one), scheme (the `parallel` of the curve's points on
    several ranks), curve (its number).
    """
    gathered = on_every_link(gather(usable(runs)))
    is_ungrouped = gathered.parallel == "none"  # on the curves of every scheme
    grouped = gathered[~is_ungrouped]
    shared = [gathered[is_ungrouped].assign(scheme=scheme) for scheme in grouped.parallel.unique()]
    gathered = pd.concat([grouped.assign(scheme=grouped.parallel), *shared])
    by_kind = [gathered.assign(kind=kind, batch=gathered[fixed]) for kind, fixed in FIXED.items()]
    together = pd.concat(by_kind, ignore_index=True)
    together["curve"] = number(together, [*CURVE, *SAME])
    return together[together.groupby("curve").world_size.transform("nunique") > 1].reset_index(drop=True)


def against_one(curve_points: pd.DataFrame) -> pd.DataFrame:
    """The points of `curves` once for each `baseline`, with the baseline's own `at_one`, `runs_one` and `<measure>_one`.

    The baseline "none" is one process without a group, the headline; a scheme's name is that scheme on one rank. The
    first point of each curve is the baseline itself. Curves without that baseline are omitted.
    """
    parts = []
    for by_scheme in (False, True):
        baseline = curve_points.scheme if by_scheme else "none"
        baselines = curve_points[(curve_points.world_size == 1) & (curve_points.parallel == baseline)]
        many = curve_points[(curve_points.world_size > 1) & (curve_points.parallel != "none")]
        compared = pd.concat([baselines[baselines.curve.isin(many.curve)], many[many.curve.isin(baselines.curve)]])
        baseline_columns = baselines.set_index("curve")[["at", "runs", *(f"{name}_each" for name in MEASURES)]]
        baseline_columns.columns = ["at_one", "runs_one", *(f"{name}_one" for name in MEASURES)]
        labels = {
            "order": by_scheme,
            "baseline": compared.scheme if by_scheme else "none",
            "itself": compared.world_size == 1,
        }
        parts.append(compared.join(baseline_columns, on="curve").assign(**labels))
    every = pd.concat(parts)
    return every.sort_values(["curve", "order", "world_size", "nodes"], ignore_index=True).drop(columns="order")


def throughput(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration: median throughput (sample/s) with its 95 % interval over repeats, without profiled runs.

    Columns: those of `SAME` and `POINT`, layout; throughput, low, high, repeats, runs.
    """
    table = points(unprofiled(runs)).rename(columns={"throughput_low": "low", "throughput_high": "high"})
    return table[[*SAME, *POINT, "layout", "throughput", "low", "high", "repeats", "runs"]]


def efficiency(runs: pd.DataFrame) -> pd.DataFrame:
    """Strong and weak scaling efficiency of every curve of `runs`, one row per point.

    Strong (`kind` = "strong"): fixed global batch and equal work; T(1) / (N T(N)). Weak: fixed batch per
    device; T_step(1) / T_step(N). The headline T(1) (`baseline` = "none") is without a process group; the curve's scheme
    on one rank stands beside it (`baseline` = "ddp", "zero1", "fsdp").

    Columns: those of `SAME`; kind, batch (the fixed one), steps_per_epoch, scheme, baseline; parallel, nodes, ranks_per_node,
    world_size, layout, global_batch, batch_per_device; memory and the measures with their intervals as of
    `points.points`; speedup, speedup_low, speedup_high; efficiency, low, high (its 95 % interval), repeats (the
    fewest on either side); runs, runs_one (`BEHIND`).
    """
    return gains(curves(runs))[[*LINE, *PLACE, "memory", *ESTIMATES, *GAIN, "repeats", *BEHIND]]


def gains(points_of_curves: pd.DataFrame) -> pd.DataFrame:
    """`efficiency` of the points of `curves`, with the runs behind them as of `against_one`."""
    return _gains(against_one(points_of_curves)).astype({"repeats": int})


def headline(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `efficiency` against each curve's first baseline: without a group, else its scheme on one rank."""
    without = (table.baseline == "none").groupby(number(table, [*SAME, *CURVE])).transform("any")
    return table[(table.baseline == "none") | ~without]


def outcome(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """One row per curve, at its largest rank count by the fastest layout, against its first baseline; without curves, of each
    workload, data set and precision the fastest configuration on most ranks. Strong scaling comes first, then the fastest.

    Columns: as of `efficiency` (without curves, kind is "" and the efficiency NaN); metric (its name) and learned, low_learned,
    high_learned: what the runs reached at their end, with its 95 % interval.
    """
    outcomes = headline(efficiency(runs))
    keys = LINE
    if outcomes.empty:
        outcomes = points(unprofiled(runs)).reindex(columns=outcomes.columns)
        outcomes = outcomes.assign(kind="", batch=outcomes.global_batch)
        keys = ["workload", "dataset", "precision"]
    order = ["link_gbit", "kind", "world_size", "throughput"]
    outcomes = outcomes.sort_values(order, ascending=[False, True, False, False], na_position="first")
    return _with_learned(outcomes.drop_duplicates(keys), runs, epochs)


def comparison(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration without a profiler: what a reader compares.

    Columns: as of `points.points`; speedup, speedup_low, speedup_high (as of `efficiency`, of strong scaling first; NaN: on no
    curve); metric, learned, learned_low, learned_high: what the runs reached at their end.
    """
    gained = headline(efficiency(runs)).sort_values("kind", kind="stable")  # strong, weak
    gained = gained.assign(first=gained.runs.str[0]).drop_duplicates("first").set_index("first")[GAIN[:3]]
    configurations = points(unprofiled(runs))
    configurations = configurations.join(gained, on=configurations.runs.str[0])
    configurations = _with_learned(configurations, runs, epochs).drop(columns="first")
    return configurations.rename(columns={"low_learned": "learned_low", "high_learned": "learned_high"})


def _with_learned(table: pd.DataFrame, runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """`table` with `points.learned` of its rows: metric, learned, low_learned, high_learned."""
    reached = learned(runs, epochs).explode("runs").set_index("runs")[["metric", "value", "low", "high"]]
    reached = reached.set_axis(["metric", "learned", "low_learned", "high_learned"], axis=1)
    return table.assign(first=table.runs.str[0]).join(reached, on="first")


def workshop(runs: pd.DataFrame, ranks: Mapping[str, Iterable[int]] | None = None) -> pd.DataFrame:
    """The table of scaling workshops: every curve's points, and a row for each of `ranks` (by kind; default `RANKS`) that was not
    measured.

    Speed-up and efficiency are against one process without a process group, else the scheme on one rank, else NaN.

    Columns: as of `efficiency`, baseline empty where there is none; state ("measured", "not measured"; "barred"), why
    (in words, where there are no numbers).
    """
    curve_points = curves(runs.assign(oversubscribed=False, shared=False))
    barred_runs = barred(runs)
    is_barred = np.array([barred_runs[positions].any() for positions in curve_points["at"]], dtype=bool)
    baselines = curve_points[~is_barred & (curve_points.world_size == 1)]
    baselines = baselines.sort_values("parallel", key=lambda names: names != "none").drop_duplicates("curve")
    baseline_columns = baselines.set_index("curve")[["step_seconds_each", "runs", "parallel"]]
    baseline_columns = baseline_columns.set_axis(["step_seconds_one", "runs_one", "baseline"], axis=1)
    curve_points = curve_points.assign(itself=curve_points.index.isin(baselines.index))
    curve_points = curve_points.join(baseline_columns, on="curve")
    parts = [
        _gains(curve_points[~is_barred & curve_points.runs_one.notna()]).assign(state=MEASURED, why=""),
        curve_points[~is_barred & curve_points.runs_one.isna()].assign(state=MEASURED, why=""),
        curve_points[is_barred]
        .drop(columns=[*ESTIMATES, "repeats"])
        .assign(state=BARRED, why="more ranks than cores, or a shared machine"),
        pd.DataFrame(_missing(curve_points, ranks)),
    ]
    every = pd.concat([part for part in parts if len(part)] or [parts[0]]).astype({"world_size": int})
    every = every.assign(grouped=every.parallel != "none").reindex(columns=[*WORKSHOP, "curve", "grouped"])
    return every.sort_values(["curve", "world_size", "grouped", "nodes"], ignore_index=True)[WORKSHOP]


def _missing(curve_points: pd.DataFrame, ranks: Mapping[str, Iterable[int]] | None) -> Iterator[dict]:
    measured = curve_points.groupby("curve").world_size.agg(set)
    for curve in curve_points.drop_duplicates("curve")[[*SAME, *CURVE, "curve"]].to_dict("records"):
        weak = curve["kind"] == "weak"
        batch = curve["batch"]
        for world in sorted(set(ranks[curve["kind"]] if ranks else RANKS) - measured[curve["curve"]]):
            share, remainder = (batch, 0) if weak else divmod(batch, world)
            sizes = {
                "global_batch": batch * world if weak else batch,
                "batch_per_device": np.nan if remainder else share,
            }
            why = f"{batch} samples do not divide over {world} ranks" if remainder else ""
            yield curve | sizes | {"world_size": world, "state": NOT_MEASURED, "why": why}


def memory(runs: pd.DataFrame) -> pd.DataFrame:
    """Memory per device against ranks: M(N) and M(N) / M(1) of every curve, one row per point and statistic.

    Columns: as of `efficiency` up to batch_per_device; memory ("allocated" or "resident"); statistic ("peak", "mean",
    "mode"), bytes, bytes_low, bytes_high (B); ratio, low, high (M(N) / M(1) with its 95 % interval), repeats; runs, runs_one.
    Points without a record of it are omitted.
    """
    curve_points = against_one(curves(runs))
    parts = []
    for statistic in ("peak", "mean", "mode"):
        name = f"{statistic}_bytes"
        sides = [f"{name}_each", f"{name}_one"]
        recorded = {side: curve_points[side].map(lambda values: values[~np.isnan(values)]) for side in sides}
        part = curve_points.assign(**recorded)
        part = part[(part[sides[0]].map(len) > 0) & (part[sides[1]].map(len) > 0)].assign(statistic=statistic)
        part[["bytes", "bytes_low", "bytes_high"]] = part[[name, f"{name}_low", f"{name}_high"]]
        part[RATIO] = _ratios(part, *sides)
        columns = [*LINE, *PLACE, "memory", *BEHIND, "statistic", "bytes", "bytes_low", "bytes_high", *RATIO]
        parts.append(part[columns].astype({"repeats": int}))
    return pd.concat(parts, ignore_index=True)


def variation(table: pd.DataFrame) -> pd.DataFrame:
    """The variation of a step's time in weak scaling: max |T_step(N) / T_step(1) - 1| over a curve's N.

    `table` as of `efficiency`. The interval's ends are the largest of the points' own ends; NaN if any of them
    is a single run.

    Columns: those of `LINE`; variation, low, high, repeats (the fewest); world_size and layout where it is largest; ranks,
    the largest N measured; runs.
    """
    weak = table[(table.kind == "weak") & (table.world_size > 1)]
    rows = []
    ends = np.sort(1 / weak[["low", "high"]] - 1, axis=1)
    weak = weak.assign(
        variation=(1 / weak.efficiency - 1).abs(), low=np.clip(ends[:, 0], 0, None) - np.clip(ends[:, 1], None, 0),
        high=np.abs(ends).max(axis=1),
    )  # fmt: skip
    for _, curve_points in weak.groupby(number(weak, LINE)):
        worst = curve_points.loc[curve_points.variation.idxmax()]
        row = worst[[*LINE, "variation", "world_size", "layout"]].to_dict()
        row |= {
            "repeats": curve_points.repeats.min(),
            "ranks": curve_points.world_size.max(),
            "runs": unique(*curve_points.runs, *curve_points.runs_one),
        }
        if row["repeats"] != 1:
            row |= {"low": curve_points.low.max(), "high": curve_points.high.max()}
        rows.append(row)
    columns = [*LINE, "variation", "low", "high", "repeats", "world_size", "layout", "ranks", "runs"]
    return pd.DataFrame(rows, columns=columns)


def before_after(runs: pd.DataFrame) -> pd.DataFrame:
    """Every configuration in another precision beside fp32 with all else equal but the settings of the loop; of several, equal
    settings come first.

    Columns: those of `SAME` and `POINT`, layout, settings_before, other (whether the settings differ); throughput,
    epoch_seconds, and utilisation (processor time of the busiest rank over time and cores of its device), each with
    `<name>_before`; gain (the ratio of throughputs), low, high (its 95 % interval), repeats; runs.
    """
    used = usable(runs)
    configurations = gather(used)
    busy = (used.cpu_seconds / used.seconds / used.threads_per_rank).to_numpy(dtype=float, na_value=np.nan)
    configurations["utilisation"] = [np.median(busy[positions]) for positions in configurations["at"]]
    pairs = _beside_fp32(configurations, [name for name in [*SAME, *POINT] if name != "settings"])
    pairs["other"] = pairs.settings.fillna("") != pairs.settings_before.fillna("")
    pairs = pairs.sort_values(["other", "settings_before"], kind="stable")
    pairs = pairs.drop_duplicates([*SAME, *POINT]).sort_index().reset_index(drop=True)
    pairs[["gain", *RATIO[1:]]] = stats.ratios(pairs.throughput_each, pairs.throughput_each_before)
    pairs["runs"] = [unique(*run_ids) for run_ids in zip(pairs.runs, pairs.runs_before, strict=True)]
    pair_columns = [name + end for name in ("throughput", "epoch_seconds", "utilisation") for end in ("_before", "")]
    columns = [*SAME, *POINT, "layout", "settings_before", "other", *pair_columns, "gain", *RATIO[1:], "runs"]
    return pairs[columns].astype({"repeats": int})


def precision_gain(runs: pd.DataFrame) -> pd.DataFrame:
    """`before_after` of one process without a group, where only the precision differs."""
    pairs = before_after(runs)
    return pairs[(pairs.parallel == "none") & ~pairs.other].reset_index(drop=True)


def efficiency_ratio(runs: pd.DataFrame) -> pd.DataFrame:
    """Efficiency in each other precision over that in fp32, against one rank without a group, all else equal.

    Columns: those of `LINE` and `PLACE`; ratio, low, high (its 95 % interval, over the repeats of all four), repeats; runs.
    """
    curve_points = against_one(curves(runs))
    curve_points = curve_points[(curve_points.world_size > 1) & (curve_points.baseline == "none")]
    pairs = _beside_fp32(curve_points, [*LINE, *PLACE]).reset_index(drop=True)
    sides = [(f"step_seconds_one{end}", f"step_seconds_each{end}") for end in ("", "_before")]
    ratios = [stats.ratio_of_ratios(*([row[name] for name in side] for side in sides)) for _, row in pairs.iterrows()]
    pairs[RATIO] = pd.DataFrame(ratios, columns=RATIO)
    id_columns = pairs[["runs", "runs_one", "runs_before", "runs_one_before"]]
    pairs["runs"] = [unique(*run_ids) for run_ids in id_columns.itertuples(index=False)]
    return pairs[[*LINE, *PLACE, *RATIO, "runs"]]


def curve(row: Mapping[str, Any]) -> str:
    """`strong, batch 768, resnet18 on cifar10, fp32`: the curve that a row belongs to."""
    batch = f"{row['batch']:g} a device" if row["kind"] == "weak" else f"batch {row['batch']:g}"
    work = ["whole epochs"] if row["kind"] == "weak" and pd.isna(row["steps_per_epoch"]) else []
    links = [] if pd.isna(row["link_gbit"]) else [f"{row['link_gbit']:g} Gbit/s"]
    return ", ".join(filter(None, [row["kind"], batch, task(row), row["precision"], *work, *links]))


def baseline_text(baseline: str) -> str:
    """A `baseline` in words."""
    return "one process without a process group" if baseline == "none" else f"{baseline.upper()} on one rank"


def relative(baseline: str) -> str:
    """What a sentence adds to an efficiency; "" for the usual T(1), without a group."""
    return "" if baseline == "none" else f", relative to {baseline_text(baseline)}"


def sentences(table: pd.DataFrame) -> list[str]:
    """A sentence for each point of `efficiency` on several ranks, against the `headline` baseline."""
    many = headline(table[table.world_size > 1])
    return [
        f"{curve(row._asdict())}: {row.world_size} ranks run at **{row.efficiency:.0%}** efficiency"
        f"{_interval(row, '.0%')}, a speed-up of {row.speedup:.2f}{relative(row.baseline)}."
        for row in many.itertuples()
    ]


def precision_sentences(gains: pd.DataFrame) -> list[str]:
    """A sentence for each row of `precision_gain`."""
    return [
        f"On one device, batch {row.global_batch}, {row.precision} trains at **{row.gain:.2f}** times the speed of fp32"
        f"{_interval(row, '.2f')}."
        for row in gains.itertuples()
    ]


def unique(*runs: tuple[str, ...]) -> tuple[str, ...]:
    """Each id once, in their order."""
    return tuple(dict.fromkeys(run_id for run_ids in runs for run_id in run_ids))


def _interval(row: tuple, form: str) -> str:
    return f" (95 % interval {row.low:{form}} to {row.high:{form}})" if row.low == row.low else " (a single run)"


def _beside_fp32(table: pd.DataFrame, alike: Sequence[str]) -> pd.DataFrame:
    """The rows in other precisions, each with the columns of those in fp32 that are equal in `alike`, as <name>_before."""
    table = table.assign(like=number(table, [name for name in alike if name != "precision"]))
    full = table[table.precision == "fp32"].set_index("like").add_suffix("_before")
    return table[table.precision != "fp32"].join(full, on="like", how="inner")


def _ratios(table: pd.DataFrame, above: str, below: str) -> np.ndarray:
    """(rows, 4): `stats.ratio` of both columns; of a baseline against `itself` one by definition, without an interval."""
    ratios = stats.ratios(table[above], table[below])
    ratios[table.itself.to_numpy(bool), :3] = 1.0, np.nan, np.nan
    return ratios


def _gains(curve_points: pd.DataFrame) -> pd.DataFrame:
    """`curve_points` with the columns `GAIN` and the repeats of T(1) / T(N)."""
    gain = _ratios(curve_points, "step_seconds_one", "step_seconds_each")
    ranks = curve_points.world_size.to_numpy(float)[:, None]
    speedup = np.where((curve_points.kind == "strong").to_numpy()[:, None], gain[:, :3], gain[:, :3] * ranks)
    columns = dict(zip(GAIN, np.hstack([speedup, speedup / ranks]).T, strict=True))
    return curve_points.assign(**columns, repeats=gain[:, 3])
