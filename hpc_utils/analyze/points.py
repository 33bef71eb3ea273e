"""One row per configuration: its repeats gathered, and the median of each measure with its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records.identity import CODE, POINT, SAME

from . import stats
from .table import tabled

# The software and machine that measured a run; a run's id does not hold them.
STATE = [*CODE, "hardware_id", "device_name"]

MEASURES = ["throughput", "step_seconds", "epoch_seconds", "peak_bytes", "mean_bytes", "mode_bytes"]
TIMED = {"throughput": -1, "step_seconds": 1, "epoch_seconds": 1}  # exponents of a block's time in measures
ESTIMATES = stats.columns(*MEASURES)
PAUSES = ["checkpoint_seconds", "profile_seconds"]  # of an epoch's training part, not part of T
METRIC = ["metric", "value", "unit", "value_low", "value_high", "repeats", "runs"]


class Sample(NamedTuple):
    """A measure of one configuration by run: its values, and those in the rounds of turns ({} of a run alone)."""

    values: Sequence[float]
    by_round: Sequence[Mapping[tuple[str, int], float]]


def unprofiled(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose times and costs may be compared: without a profiler."""
    return runs[runs.profile.isna()]


def training_begun(epochs: pd.DataFrame) -> pd.Series:
    """When the training part of each epoch began, in s since the epoch."""
    paused = epochs.reindex(columns=PAUSES).apply(pd.to_numeric).sum(axis=1)
    return pd.to_numeric(epochs.ended) - epochs.seconds - paused


def one_rank(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on one rank: those without a process group, or if there is none, those with one."""
    single = runs[runs.world_size == 1]
    is_ungrouped = single.parallel == "none"
    return single[is_ungrouped == is_ungrouped.any()]


def barred(runs: pd.DataFrame) -> np.ndarray:
    """Whether the times of each run are in no scaling figure: more ranks than cores, or a machine shared on purpose."""
    return runs[["oversubscribed", "shared"]].eq(True).any(axis=1).to_numpy(dtype=bool)


def of_one_state(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The runs of one torch and machine, that with most runs (of equals the latest), and remarks: on the runs left out, and
    on several digests of the measuring code."""
    if runs.empty:
        return runs, []
    states = number(runs, STATE)
    remarks = []
    sizes = runs.started.astype(str).groupby(states).agg(["size", "max"])
    chosen = sizes.sort_values(["size", "max"]).index[-1]
    state_runs = runs[states == chosen]
    other_runs = runs[states != chosen]
    if len(other_runs):
        measured = other_runs[STATE].astype(str).drop_duplicates().agg(", ".join, axis=1)
        remarks.append(
            f"{len(other_runs)} of {len(runs)} runs are left out (`--redo` measures all again), "
            f"as measured by {'; '.join(measured)}"
        )
    digests = sorted(map(str, state_runs.digest.dropna().unique()))
    if len(digests) > 1:
        remarks.append(f"the runs were measured by {len(digests)} states of the code: {', '.join(digests)}")
    return state_runs, remarks


def gather(runs: pd.DataFrame, measures: Sequence[str] = MEASURES, also: Sequence[str] = ()) -> pd.DataFrame:
    """One row per configuration, measured in `repeats` runs: of each measure the median and its interval.

    Columns: those of `SAME` and `POINT`; `layout` ("nodes x ranks" on each, such as 2x4); `memory`: "allocated" (tensors
    on the accelerator) or "resident" (the rank's process, on a CPU);
    throughput (sample/s); step_seconds (T of an optimizer step), epoch_seconds (T of an epoch) (s);
    peak_bytes, mean_bytes, mode_bytes (B a device, the largest over a run's ranks; mean and mode at the ends of
    steps), or other `measures`; each with `<measure>_low` and `<measure>_high`, and `<measure>_sample`, the `Sample` of its runs;
    repeats; runs (their ids); and columns `also`, as the first run has them. NaN: not recorded, or a single run's interval.
    """
    several = runs.world_size > 1  # one rank is on one node, recorded or not, without a link
    layout = {name: runs[name].where(several, 1) for name in ("nodes", "ranks_per_node")}
    times = {"step_seconds": step_seconds(runs), "epoch_seconds": runs.seconds / runs.epochs}
    runs = runs.assign(**layout, link_gbit=links(runs), **times, **memory(runs))
    keys = [*SAME, *POINT]
    runs = runs.assign(configuration=number(runs, keys))
    metric = runs.metric.iloc[0] if "metric" in also and len(runs) else ""  # of the measure `value`
    grouped = runs.groupby("configuration")
    first = runs.drop_duplicates("configuration").set_index("configuration").sort_index()
    configurations = first[[*keys, *also, "memory"]]
    layouts = [
        f"{row.world_size:g}" if pd.isna(row.nodes) or pd.isna(row.ranks_per_node) else f"{row.nodes:g}x{row.ranks_per_node:g}"
        for row in configurations.itertuples()
    ]  # fmt: skip
    columns = {"layout": layouts, "runs": grouped.run_id.agg(tuple), "repeats": grouped.size()}
    for name in measures:
        values = grouped[name].agg(lambda column: column.dropna().astype(float).tolist())
        rounds = by_round(runs, name).groupby(runs.configuration).agg(list)
        columns[f"{name}_sample"] = list(map(Sample, values, rounds))
        quantity = metric if name == "value" else name
        columns |= dict(zip(stats.columns(name), stats.medians(values, quantity).T, strict=False))
    return configurations.assign(**columns).reset_index(drop=True)


@tabled(
    "learned",
    "Accuracy, or the metric there is, at the end.",
    "parallel world_size global_batch precision epochs metric value repeats",
    measure="value",
    missing="no run was evaluated (`evaluate_every=1` does)",
)
def learned(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration whose runs were evaluated, profiled ones included, and metric of the test samples: accuracy first,
    then others of the workload; the loss, if there is none.

    Columns: those of `SAME` and `POINT`, layout; epochs; metric (a column of `epochs`), value (of the runs' last evaluations),
    unit ("share": at most 1, or "ratio"), value_low, value_high (95 %; NaN where a value is not positive), repeats, runs.
    """
    names = sorted(epochs.filter(regex="^test_"), key="test_loss".__eq__)
    values = epochs.sort_values("epoch", ascending=False).melt("run_id", names, "metric").dropna()
    latest = values.drop_duplicates(["run_id", "metric"])
    is_loss = latest.metric == "test_loss"
    latest = latest[~is_loss | ~latest.run_id.isin(latest.run_id[~is_loss])]
    parts = [part for _, part in latest.groupby("metric", sort=False)] or [latest]
    configurations = pd.concat(
        [gather(runs.merge(part, on="run_id"), ["value", "epochs"], ["metric"]) for part in parts], ignore_index=True
    )
    is_accuracy = configurations.metric.str.endswith("accuracy")
    configurations["unit"] = np.where(is_accuracy, "share", "ratio")
    return configurations[[*SAME, *POINT, "layout", "epochs", *METRIC]]


@tabled(
    "unit-rates",
    "Throughput in the unit of the workload's samples.",
    "parallel world_size global_batch precision metric value repeats",
    measure="value",
    missing="no workload has a `unit`",
)
def unit_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration whose workload counts a unit, without profiled runs: of these over T.

    Columns: those of `SAME` and `POINT`, layout; metric ("tokens per second"), value, unit ("1/s"), value_low, value_high (95 %),
    repeats, runs.
    """
    counted = unprofiled(runs).dropna(subset="units")
    rates = counted.units.astype(float) / counted.seconds
    counted = counted.assign(value=rates, metric=counted.unit.astype(str) + " per second")
    return gather(counted, ["value"], ["metric"]).assign(unit="1/s")[[*SAME, *POINT, "layout", *METRIC]]


def by_round(runs: pd.DataFrame, measure: str) -> pd.Series:
    """The measure of each run in the rounds of its turns: {(session, round): value}; {} of one without turns, or of no time."""
    turns = runs.blocks if measure in TIMED and "blocks" in runs else [{}] * len(runs)
    values = [
        {turn: value * relative ** TIMED[measure] for turn, relative in blocks.items()}
        for value, blocks in zip(runs[measure], turns, strict=True)
    ]
    return pd.Series(values, runs.index, dtype=object)


def step_seconds(runs: pd.DataFrame) -> pd.Series:
    """T of an optimizer step (s), of each run."""
    return runs.seconds / runs.samples * runs.global_batch


def memory(runs: pd.DataFrame) -> pd.DataFrame:
    """memory, peak_bytes, mean_bytes and mode_bytes of each run, as in `gather`."""
    accelerator = runs.peak_allocated_bytes.notna() | runs.mean_allocated_bytes.notna()
    columns = {"memory": np.where(accelerator, "allocated", "resident")}
    for name in ("peak", "mean", "mode"):
        allocated = pd.to_numeric(runs[f"{name}_allocated_bytes"])
        resident = pd.to_numeric(runs[f"{name}_rss_bytes"])
        columns[f"{name}_bytes"] = allocated.where(accelerator, resident)
    return pd.DataFrame(columns, index=runs.index)


def number(frame: pd.DataFrame, keys: list[str]) -> np.ndarray:
    """Rows that are equal in all `keys` (unknown equals unknown) share a number, counted from 0 in their order."""
    return frame.groupby(keys, dropna=False).ngroup().to_numpy()


def links(runs: pd.DataFrame) -> pd.Series:
    """The limit of the nodes' links of each run (Gbit/s); NaN: none, or one rank, which needs no link."""
    return pd.to_numeric(runs.link_gbit).mask(runs.world_size == 1)


def on_every_link(table: pd.DataFrame, link: str = "link_gbit") -> pd.DataFrame:
    """`table` with the rows of one rank, which needs no link, once for each limit in the column `link`."""
    is_single = table.world_size == 1
    limits = {np.nan, *table[link][~is_single].dropna()}
    return pd.concat([table[~is_single], *(table[is_single].assign(**{link: limit}) for limit in limits)])


def cores_per_rank(runs: pd.DataFrame) -> pd.Series:
    """The share of a core that each run's devices were; 0: whole cores, or GPUs."""
    cores = pd.to_numeric(runs.threads_per_rank)
    return cores.where(cores < 1, 0.0)


def cpu_utilisation(runs: pd.DataFrame) -> pd.Series:
    """Processor time of each run's busiest rank over time and cores of its device; NaN of GPUs."""
    used = runs.cpu_seconds / runs.seconds / pd.to_numeric(runs.threads_per_rank)
    return used.astype(float).where(runs.device == "cpu")


def outside_load(measured: pd.DataFrame, threads: pd.Series | float) -> pd.Series:
    """The share of each run's (or rank's) cores that other processes used or the hypervisor stole; NaN: not recorded."""
    seconds = measured.reindex(columns=["outside_seconds", "steal_seconds"]).astype(float).sum(axis=1, min_count=1)
    return seconds / (measured.seconds * threads).astype(float)
