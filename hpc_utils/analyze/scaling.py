"""Strong and weak scaling from runs: curves, speed-up, efficiency, variation and memory, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.capability import PERIODS_OF_A_STEP
from hpc_utils.plural import counted
from hpc_utils.records.identity import differing_settings, task

from . import stats
from .compare import beside, compare, ratios, scaled
from .points import (
    ESTIMATES,
    POINT,
    SAME,
    barred,
    cpu_utilisation,
    gather,
    learned,
    number,
    on_every_link,
    unprofiled,
)
from .table import tabled

# What separates curves beside `SAME`: `batch` is the fixed one, `scheme` how several ranks share the model ("ddp", ...).
CURVE = ["kind", "batch", "steps_per_epoch", "scheme"]
FIXED = {"strong": "global_batch", "weak": "batch_per_device"}
PLACE = ["parallel", "nodes", "ranks_per_node", "world_size", "layout", "global_batch", "batch_per_device"]
LINE = [*SAME, *CURVE, "baseline"]  # equal for all points of a drawn line
BEHIND = ["runs", "runs_base"]  # ids of a point's runs, and of those of its baseline
# Equal for configurations with a common reference. Another number of the model's parameters is another model.
COMPARED = ["workload", "dataset", "parameters", "device", "device_name", "hardware_id"]
GAIN = stats.columns("speedup", "efficiency")
ROUNDS = ["rounds", *stats.Spread._fields]
RATIO = [*stats.columns("ratio"), "repeats"]

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
    gathered = on_every_link(gather(usable(runs), also=["device_bytes"]))
    is_ungrouped = gathered.parallel == "none"  # on the curves of every scheme
    grouped = gathered[~is_ungrouped]
    shared = [gathered[is_ungrouped].assign(scheme=scheme) for scheme in grouped.parallel.unique()]
    gathered = pd.concat([grouped.assign(scheme=grouped.parallel), *shared])
    by_kind = [gathered.assign(kind=kind, batch=gathered[fixed]) for kind, fixed in FIXED.items()]
    together = pd.concat(by_kind, ignore_index=True)
    together["curve"] = number(together, [*CURVE, *SAME])
    return together[together.groupby("curve").world_size.transform("nunique") > 1].reset_index(drop=True)


def against_one(curve_points: pd.DataFrame) -> pd.DataFrame:
    """The points of `curves` once for each `baseline`, compared with it: the columns of the baseline as `<column>_base`, and
    gain, T_step(1) / T_step(N), as of `compare`.

    The baseline "none" is one process without a group, the headline; a scheme's name is that scheme on one rank. The
    first point of each curve is the baseline itself. Curves without that baseline are omitted.
    """
    single = curve_points.world_size == 1
    several = curve_points[~single]
    baselines = curve_points[single & curve_points.curve.isin(several.curve)].assign(
        baseline=lambda rows: rows.parallel
    )
    many = several.merge(baselines[["curve", "baseline"]], on="curve")
    every = pd.concat([baselines, many]).assign(is_scheme=lambda rows: rows.baseline != "none")
    every = every.sort_values(["curve", "is_scheme", "world_size", "nodes"], ignore_index=True)
    return compare(every, baselines, ["curve", "baseline"], under={"gain": "step_seconds"})


@tabled(
    "throughput",
    "Training throughput of every configuration.",
    "parallel world_size global_batch precision throughput repeats",
    measure="throughput",
    missing="runs without a profiler",
)
def throughput(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration: median throughput (sample/s) with its 95 % interval over repeats, without profiled runs.

    Columns: those of `SAME` and `POINT`, layout; throughput, throughput_low, throughput_high, repeats, runs.
    """
    configurations = gather(unprofiled(runs), ["throughput"])
    return configurations[[*SAME, *POINT, "layout", *stats.columns("throughput"), "repeats", "runs"]]


@tabled(
    "efficiency",
    "Strong and weak scaling efficiency of every point.",
    "kind baseline precision batch world_size speedup efficiency repeats",
    measure="efficiency",
    missing="runs on one rank and on several",
)
def efficiency(runs: pd.DataFrame) -> pd.DataFrame:
    """Strong and weak scaling efficiency of every curve of `runs`, one row per point.

    Strong (`kind` = "strong"): fixed global batch and equal work; T(1) / (N T(N)). Weak: fixed batch per
    device; T_step(1) / T_step(N). The headline T(1) (`baseline` = "none") is without a process group; the curve's scheme
    on one rank stands beside it (`baseline` = "ddp", "zero1", "fsdp").

    Columns: those of `SAME`; kind, batch (the fixed one), steps_per_epoch, scheme, baseline; parallel, nodes, ranks_per_node,
    world_size, layout, global_batch, batch_per_device; memory and the measures with their intervals as of
    `points.gather`; speedup, efficiency, each with <name>_low and <name>_high (95 %); repeats (the
    fewest on either side), rounds (in which both took turns; 0: none), within and between (`stats.Spread` of the gain); runs,
    runs_base (`BEHIND`).
    """
    return gains(against_one(curves(runs)))[[*LINE, *PLACE, "memory", *ESTIMATES, *GAIN, "repeats", *ROUNDS, *BEHIND]]


def headline(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `efficiency` against each curve's first baseline: without a group, else its scheme on one rank."""
    without = (table.baseline == "none").groupby(number(table, [*SAME, *CURVE])).transform("any")
    return table[(table.baseline == "none") | ~without]


def outcome(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """One row per curve, at its largest rank count by the fastest layout, against its first baseline; without curves, of each
    workload, data set and precision the fastest configuration on most ranks. Strong scaling comes first, then the fastest.

    Columns: as of `efficiency` (without curves, kind is "" and the efficiency NaN); metric (its name) and learned, learned_low,
    learned_high: what the runs reached at their end, with its 95 % interval.
    """
    outcomes = headline(efficiency(runs))
    keys = LINE
    if outcomes.empty:
        outcomes = gather(unprofiled(runs)).reindex(columns=outcomes.columns)
        outcomes = outcomes.assign(kind="", batch=outcomes.global_batch)
        keys = ["workload", "dataset", "precision"]
    order = ["link_gbit", "kind", "world_size", "throughput"]
    outcomes = outcomes.sort_values(order, ascending=[False, True, False, False], na_position="first")
    return _with_learned(outcomes.drop_duplicates(keys), runs, epochs)


def comparison(runs: pd.DataFrame, epochs: pd.DataFrame, reference: str = "") -> pd.DataFrame:
    """One row per configuration without a profiler: what a reader compares.

    `reference`: a run; by default, and for other tasks, models and devices than its own, the slowest configuration of one process in fp32, or
    what is nearest to that.

    Columns: as of `points.gather`; device_bytes; speedup, speedup_low, speedup_high: throughput over that of the reference (NaN: either is not
    `usable`); is_reference; metric, learned, learned_low, learned_high: what the runs reached at their end.
    """
    configurations = gather(unprofiled(runs), also=["device_bytes"])
    order = {
        "is_other": [reference not in run_ids for run_ids in configurations.runs],
        "ranks": configurations.world_size,
        "is_grouped": configurations.parallel != "none",
        "is_not_fp32": configurations.precision != "fp32",
        "speed": configurations.throughput,
    }
    references = configurations.assign(**order).sort_values(list(order))
    compared = compare(configurations, references, COMPARED, over={"speedup": "throughput"})
    usable_ids = set(usable(runs).run_id)
    is_barred = [not usable_ids.issuperset(run_ids) for run_ids in compared.runs + compared.runs_base]
    compared.loc[is_barred, stats.columns("speedup")] = np.nan
    compared["is_reference"] = compared.runs == compared.runs_base
    return _with_learned(compared, runs, epochs)


def _with_learned(table: pd.DataFrame, runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """`table` with `points.learned` of its rows: metric, learned, learned_low, learned_high."""
    reached = learned(runs, epochs).explode("runs").drop_duplicates("runs").set_index("runs")
    reached = reached[["metric", *stats.columns("value")]]
    reached.columns = ["metric", *stats.columns("learned")]
    return table.assign(first=table.runs.str[0]).join(reached, on="first")


@tabled(
    "points",
    "Strong and weak scaling, every point.",
    measure="efficiency",
)
def workshop(runs: pd.DataFrame, ranks: Mapping[str, Iterable[int]] | None = None) -> pd.DataFrame:
    """The table of scaling workshops: every curve's points, and a row for each of `ranks` (by kind; default `RANKS`) that was not
    measured.

    Speed-up and efficiency are against one process without a process group, else the scheme on one rank, else NaN.

    Columns: as of `efficiency`, baseline empty where there is none; state ("measured", "not measured"; "barred"), why
    (in words, where there are no numbers).
    """
    curve_points = curves(runs.assign(oversubscribed=False, shared=False))
    barred_ids = set(runs.run_id[barred(runs)])
    is_barred = np.array([not barred_ids.isdisjoint(run_ids) for run_ids in curve_points.runs], dtype=bool)
    sound = curve_points[~is_barred]
    baselines = sound[sound.world_size == 1].sort_values("parallel", key=lambda names: names != "none")
    compared = compare(sound, baselines, ["curve"], under={"gain": "step_seconds"})
    compared = gains(compared).rename(columns={"parallel_base": "baseline"})
    compared["repeats"] = compared.repeats.where(compared.runs_base.notna(), compared.runs.map(len))
    parts = [
        compared.assign(state=MEASURED, why=""),
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


@tabled(
    "memory",
    "Memory of a device against that on one rank, and as a share of the device's.",
    "statistic kind baseline precision parallel batch world_size bytes of_device device_bytes ratio repeats",
    measure="ratio",
)
def memory(runs: pd.DataFrame) -> pd.DataFrame:
    """Memory per device against ranks: M(N) and M(N) / M(1) of every curve, one row per point and statistic.

    Columns: as of `efficiency` up to batch_per_device; memory ("allocated" or "resident"); statistic ("peak", "mean",
    "mode"), bytes, bytes_low, bytes_high (B), device_bytes (of the device, NaN: not recorded), of_device (bytes over it); ratio, ratio_low, ratio_high (M(N) / M(1) with its 95 % interval), repeats; runs, runs_base.
    Points without a record of it are omitted.
    """
    curve_points = against_one(curves(runs)).astype({"device_bytes": float})
    parts = []
    for statistic in ("peak", "mean", "mode"):
        compared = ratios(curve_points, over={"ratio": f"{statistic}_bytes"})
        compared = scaled(compared, "bytes", f"{statistic}_bytes")
        compared = compared.assign(statistic=statistic, repeats=compared.ratio_repeats).dropna(subset="ratio")
        compared["of_device"] = compared.bytes / compared.device_bytes
        device = ["device_bytes", "of_device"]
        columns = [*LINE, *PLACE, "memory", *BEHIND, "statistic", *stats.columns("bytes"), *device, *RATIO]
        parts.append(compared[columns].astype({"repeats": int}))
    return pd.concat(parts, ignore_index=True)


def variation(table: pd.DataFrame) -> pd.DataFrame:
    """The variation of a step's time in weak scaling: max |T_step(N) / T_step(1) - 1| over a curve's N.

    `table` as of `efficiency`. The interval's ends are the largest of the points' own ends; NaN if any of them
    has none.

    Columns: those of `LINE`; variation, variation_low, variation_high, repeats (the fewest); world_size and layout where it is largest; ranks,
    the largest N measured; runs.
    """
    weak = table[(table.kind == "weak") & (table.world_size > 1)]
    ends = np.sort(1 / weak[["efficiency_low", "efficiency_high"]] - 1, axis=1)
    weak = weak.assign(
        variation=(1 / weak.efficiency - 1).abs(),
        variation_low=np.clip(ends[:, 0], 0, None) - np.clip(ends[:, 1], None, 0),
        variation_high=np.abs(ends).max(axis=1),
    )
    by_line = weak.groupby(number(weak, LINE))
    largest = by_line[["variation_low", "variation_high"]].agg(lambda ends: ends.max(skipna=False))
    worst = weak.loc[by_line.variation.idxmax(), [*LINE, "variation", "world_size", "layout"]].reset_index(drop=True)
    run_ids = [unique(*points.runs, *points.runs_base) for _, points in by_line]
    worst = worst.join(largest).assign(repeats=by_line.repeats.min(), ranks=by_line.world_size.max(), runs=run_ids)
    return worst[[*LINE, *stats.columns("variation"), "repeats", "world_size", "layout", "ranks", "runs"]]


@tabled(
    "optimized",
    "The loop before and after optimization.",
    "world_size global_batch throughput_before throughput gain utilisation_before utilisation repeats",
    measure="gain",
    missing="`hpc submit optimized`",
)
def before_after(runs: pd.DataFrame) -> pd.DataFrame:
    """Every configuration in another precision beside fp32 with all else equal but the settings of the loop; of several, equal
    settings come first.

    Columns: those of `SAME` and `POINT`, layout, settings_before, other (whether the settings differ); throughput,
    epoch_seconds, and utilisation (of `cpu_utilisation`), each with
    `<name>_before`; gain (the ratio of throughputs), gain_low, gain_high (its 95 % interval), repeats; runs.
    """
    used = usable(runs)
    used = used.assign(utilisation=cpu_utilisation(used))
    configurations = gather(used, ["throughput", "epoch_seconds", "utilisation"])
    is_full = configurations.precision == "fp32"
    alike = [name for name in [*SAME, *POINT] if name not in ("settings", "precision")]
    pairs = beside(configurations[~is_full], configurations[is_full], alike, "_before").dropna(subset="runs_before")
    pairs["other"] = pairs.settings.fillna("") != pairs.settings_before.fillna("")
    pairs = pairs.sort_values(["other", "settings_before"], kind="stable")
    pairs = pairs.drop_duplicates([*SAME, *POINT]).sort_index().reset_index(drop=True)
    pairs = ratios(pairs, over={"gain": "throughput"}, suffix="_before")
    pairs["repeats"] = pairs.gain_repeats
    pairs["runs"] = [unique(*run_ids) for run_ids in zip(pairs.runs, pairs.runs_before, strict=True)]
    pair_columns = [name + end for name in ("throughput", "epoch_seconds", "utilisation") for end in ("_before", "")]
    columns = [
        *SAME,
        *POINT,
        "layout",
        "settings_before",
        "other",
        *pair_columns,
        *stats.columns("gain"),
        "repeats",
        "runs",
    ]
    return pairs[columns].astype({"repeats": int})


@tabled(
    "precision",
    "Throughput over that in fp32 on one device.",
    measure="gain",
)
def precision_gain(runs: pd.DataFrame) -> pd.DataFrame:
    """`before_after` of one process without a group, where only the precision differs."""
    pairs = before_after(runs)
    return pairs[(pairs.parallel == "none") & ~pairs.other].reset_index(drop=True)


def curve_names(table: pd.DataFrame) -> pd.Series:
    """`strong, batch 768, resnet18 on cifar10, fp32, 0.3 core, optimizer=adamw`: the curve of each row; what else separates curves
    (`SAME`) where others of the same name differ in it."""
    names = pd.Series([_curve_name(row) for row in table.to_dict("records")], table.index, dtype=object)
    for column in (name for name in SAME if name in table):
        for _, values in table[column].groupby(names):
            if values.nunique(dropna=False) > 1:
                is_text = column == "settings"
                texts = differing_settings(values) if is_text else [described(column, value) for value in values]
                names[values.index] += [f", {text}" * bool(text) for text in texts]
    return names


def described(column: str, value: Any) -> str:
    """A value of `SAME` in words; "" where there is none."""
    if column == "link_gbit":
        return "links as they are" if pd.isna(value) else f"{value:g} Gbit/s"
    if pd.isna(value):
        return ""
    if column == "threads_per_rank":
        return f"{value:g} core" if value < 1 else counted(value, "core")
    if column == "share_period":
        return f"every {1e3 * value:g} ms"
    if column == "settings":
        return value
    return f"{column.replace('_', ' ')} {str(value)[:24]}"


def _curve_name(row: Mapping[str, Any]) -> str:
    batch = f"{row['batch']:g} a device" if row["kind"] == "weak" else f"batch {row['batch']:g}"
    trained = task({**row, "settings": ""})
    work = ["whole epochs"] if row["kind"] == "weak" and pd.isna(row["steps_per_epoch"]) else []
    links = [] if pd.isna(row["link_gbit"]) else [f"{row['link_gbit']:g} Gbit/s"]
    return ", ".join(filter(None, [row["kind"], batch, trained, row["precision"], *work, *links]))


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
        f"{name}: {row.world_size} ranks run at **{row.efficiency:.0%}** efficiency"
        f"{_interval(row, 'efficiency', '.0%')}, a speed-up of {row.speedup:.2f}{relative(row.baseline)}."
        for row, name in zip(many.itertuples(), curve_names(many), strict=True)
    ]


def precision_sentences(gains: pd.DataFrame) -> list[str]:
    """A sentence for each row of `precision_gain`."""
    names = differing_settings(gains.settings)
    return [
        f"On one device, batch {row.global_batch}{', ' * bool(name)}{name}, {row.precision} trains at **{row.gain:.2f}** times the "
        f"speed of fp32{_interval(row, 'gain', '.2f')}."
        for row, name in zip(gains.itertuples(), names, strict=True)
    ]


def unique(*runs: tuple[str, ...]) -> tuple[str, ...]:
    """Each id once, in their order."""
    return tuple(dict.fromkeys(run_id for run_ids in runs for run_id in run_ids))


def _interval(row: tuple, column: str, form: str) -> str:
    low, high = (getattr(row, column + end) for end in stats.ENDS[1:])
    return " (a single run)" if np.isnan(low) else f" (95 % interval {low:{form}} to {high:{form}})"


def gains(compared: pd.DataFrame) -> pd.DataFrame:
    """`compared`, with the gain T_step(1) / T_step(N), also with speedup, efficiency and repeats (of the gain)."""
    ranks = compared.world_size.astype(float)
    compared = scaled(compared, "speedup", "gain", ranks.where(compared.kind == "weak", 1.0))
    counts = {name: compared[f"gain_{name}"] for name in ("repeats", *ROUNDS)}
    return (
        scaled(compared, "efficiency", "speedup", 1 / ranks).assign(**counts).astype({"repeats": int, "rounds": int})
    )
