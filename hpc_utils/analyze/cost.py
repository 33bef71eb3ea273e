"""The cost of runs: device-hours, node-hours, price and energy, for a fixed work or to a target accuracy.

`prices` is {hardware_id: how its nodes are billed}, from the cluster files (`launch.cluster.prices`). What is not known
stays NaN: a price without a cluster file, energy without a counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd

from hpc_utils.records import Records

from . import scaling, stats
from .decide import Verdict, decide
from .points import PAUSES, POINT, SAME, gather, number, on_every_link, unprofiled
from .table import tabled

NAN = float("nan")
HOUR, KWH = 3600, 3.6e6  # s; J
MILLION = 10**6  # samples

KEYS = [*SAME, *POINT]  # equal in the repeats of a configuration
# What a configuration takes; each has its 95 % interval in <name>_low and <name>_high.
MEASURES = ["epochs", "seconds", "wall_seconds", "device_hours", "core_hours", "node_hours", "cost", "energy_kwh"]
HOURLY = ("device_hours", "core_hours", "node_hours", "cost")  # these grow with wall_seconds
COLUMNS = [*KEYS, *stats.columns(MEASURES), "unit", "epoch_seconds", "efficiency", "repeats", "reached", "runs"]
WORTH = {Verdict.MET: "good value", Verdict.MISSED: "diminishing returns", Verdict.UNDECIDED: "undecided"}
BENEFIT = ["device_hours", "cost", "unit", *stats.columns(["dearer", "added"]), "verdict"]


class Billing(Protocol):
    """How a kind of node is billed; `launch.cluster.NodeType` is one."""

    unit: str

    def cost(self, nodes: int, ranks_per_node: int, hours: float, threads: float = 1) -> float:
        """The cost of that many nodes for so long, in `unit`; shared nodes by the share of their devices, or of their cores, of
        which a rank has one for each of its `threads`."""


def per_run(runs: pd.DataFrame, epochs: pd.DataFrame, prices: Mapping[str, Billing]) -> pd.DataFrame:
    """`runs` with the resources that each of them used, as far as recorded.

    Columns: those of `runs`; epochs, samples; seconds (T, training alone); start_seconds (set-up and warm-up); wall_seconds
    (with start, evaluation and checkpoints, which a job is billed for too; without the start of its processes, which is not
    recorded); device_hours, core_hours (of CPU devices, each `threads_per_rank` cores; NaN of GPUs) and node_hours (of
    wall_seconds; whole nodes, however few of their devices it had); cost, in `unit` ("" and NaN without a price);
    energy_kwh (of T, all devices; NaN without a counter).
    """
    names = ["samples", "seconds", "eval_seconds", *PAUSES, "energy_joules"]
    grouped = epochs[["run_id"]].join(epochs[names].apply(pd.to_numeric)).groupby("run_id")
    sums = grouped.sum(min_count=1).assign(epochs=grouped.size())
    sums["energy_kwh"] = grouped.energy_joules.agg(lambda joules: joules.sum(skipna=False)) / KWH
    spent = runs.drop(columns=["epochs", *names], errors="ignore").merge(sums, on="run_id")
    spent["start_seconds"] = spent[["setup_seconds", "warmup_seconds"]].apply(pd.to_numeric).sum(axis=1)
    parts = ["start_seconds", "seconds", "eval_seconds", *PAUSES]
    spent["wall_seconds"] = spent[parts].sum(axis=1)
    hours = spent.wall_seconds / HOUR
    spent["device_hours"] = hours * spent.world_size
    spent["node_hours"] = hours * spent.nodes
    spent["core_hours"] = (spent.device_hours * pd.to_numeric(spent.threads_per_rank)).where(spent.device == "cpu")
    spent["cost"] = NAN
    spent["unit"] = ""
    for hardware, group in spent.groupby("hardware_id"):
        if billing := prices.get(hardware):
            threads = pd.to_numeric(group.threads_per_rank)
            price = billing.cost(group.nodes, group.ranks_per_node, hours[group.index], threads)
            spent.loc[group.index, "cost"] = price
            spent.loc[group.index, "unit"] = billing.unit
    return spent


class Total(NamedTuple):
    """What a set of runs took in all.

    Attributes:
        runs: how many. hours: of all runs, one after another. device_hours: of CPU devices and
            GPUs. core_hours: of the CPU devices; gpu_hours: of the GPUs.
        energy_kwh: of `counted` runs, those with a readable counter; NaN if that is none.
        notes: omitted or missing parts with the reason, one sentence each.
    """

    runs: int
    hours: float
    device_hours: float
    core_hours: float
    gpu_hours: float
    energy_kwh: float
    counted: int
    notes: tuple[str, ...]


def total(runs: pd.DataFrame, epochs: pd.DataFrame) -> Total:
    """All that `runs` took, profiled ones too, as of `per_run`."""
    spent = per_run(runs, epochs, {})
    counted = int(spent.energy_kwh.count())
    notes = []
    if runs.hardware_id.astype(str).str.startswith("rehearsal").any():
        notes.append("Nodes of a rehearsal cluster share one machine: the sum of their hours exceeds the machine's.")
    if counted < len(runs):
        extent = f"only in {counted} of {len(runs)} runs" if counted else "in no run"
        notes.append(f"Energy was counted {extent}: no counter could be read (NVML of GPUs, RAPL of processors).")
    device_hours = spent.device_hours.groupby(spent.device != "cpu").sum()
    return Total(
        len(runs),
        hours=float(spent.wall_seconds.sum() / HOUR),
        device_hours=float(device_hours.sum()),
        core_hours=float(spent.core_hours.sum()),
        gpu_hours=float(device_hours.get(True, 0.0)),
        energy_kwh=float(spent.energy_kwh.sum(min_count=1)),
        counted=counted,
        notes=tuple(notes),
    )


@tabled(
    "summary",
    "The runs, and what they took in all.",
)
def summary(records: Records, study: str = "") -> pd.DataFrame:
    """All runs of `records` in one row.

    Columns: study; complete (runs), refused, unfinished; and if there are runs: configurations, fewest_repeats, most_repeats
    (of a configuration); ranks and nodes (the most of a run); wall_seconds, training_seconds, device_hours, core_hours,
    energy_kwh (NaN: no counter), energy_counted (runs).
    """
    runs = records.runs
    row = {
        "study": study,
        "complete": len(runs),
        "refused": len(records.refused),
        "unfinished": len(records.unfinished),
    }
    if runs.empty:
        return pd.DataFrame([row])
    repeats = gather(runs).repeats
    took = total(runs, records.epochs)
    row |= {"configurations": len(repeats), "fewest_repeats": int(repeats.min()), "most_repeats": int(repeats.max())}
    row |= {"ranks": int(runs.world_size.max()), "nodes": int(pd.to_numeric(runs.nodes).max())}
    row |= {"wall_seconds": took.hours * HOUR, "training_seconds": runs.seconds.sum()}
    row |= {"device_hours": took.device_hours, "core_hours": took.core_hours}
    return pd.DataFrame([row | {"energy_kwh": took.energy_kwh, "energy_counted": took.counted}])


@tabled(
    "cost",
    "What equal work takes, by configuration.",
    "workload precision parallel nodes ranks_per_node global_batch wall_seconds device_hours cost efficiency",
    measure="cost",
)
def to_finish(
    runs: pd.DataFrame, epochs: pd.DataFrame, prices: Mapping[str, Billing], work: float | None = None
) -> pd.DataFrame:
    """One row per configuration: the cost of equal work, training on `work` samples (None: as many as most of the runs did), at the
    measured rate, without profiled runs.

    Equal samples are not equal learning where the global batch differs: `to_accuracy` compares that.

    Columns: `KEYS`; the `MEASURES` of `per_run`, each the median over repeats with <name>_low, <name>_high, its 95 %
    interval (NaN for a single run); unit; epoch_seconds; efficiency: device-seconds of T of the configuration with the
    fewest devices, all else equal, over this one's; repeats, reached (all); runs (ids).
    """
    runs = unprofiled(runs)
    spent = per_run(runs, epochs, prices)
    factor = (work or spent.samples.mode().max()) / spent.samples
    # The start is paid once, whatever the work.
    wall = spent.start_seconds + (spent.wall_seconds - spent.start_seconds) * factor
    grown = {name: spent[name] * factor for name in ("epochs", "seconds", "energy_kwh")}
    grown |= {name: spent[name] * wall / spent.wall_seconds for name in HOURLY}
    return _configurations(runs, spent.assign(**grown, wall_seconds=wall))


def to_accuracy(
    runs: pd.DataFrame, epochs: pd.DataFrame, target: float, prices: Mapping[str, Billing]
) -> pd.DataFrame:
    """One row per configuration: the cost until the test accuracy (a share) first is `target` or more; an epoch without
    evaluation does not count. Without profiled runs.

    Columns: as `to_finish`; `reached` of the `repeats` reach the target. The others count as longer than all others: the
    median is NaN if they are half of the repeats or more, and there is no interval.
    """
    runs = unprofiled(runs)
    ordered = epochs.sort_values(["run_id", "epoch"])
    reached = ordered[pd.to_numeric(ordered.test_accuracy) >= target].groupby("run_id").epoch.first()
    until = ordered[ordered.epoch <= ordered.run_id.map(reached)]
    return _configurations(runs, per_run(runs, until, prices))


def pareto(table: pd.DataFrame, cost: str) -> pd.DataFrame:
    """`table` (as of `to_finish` or `to_accuracy`) by rising time, with `pareto`: no other configuration takes less of
    time or of the column `cost` and no more of the other (medians compared). Those without a value are omitted."""
    measures = ["wall_seconds", cost]
    table = table.dropna(subset=measures).sort_values(measures, kind="stable")
    frontier = table.drop_duplicates(measures)
    frontier = frontier[frontier[cost] < frontier[cost].cummin().shift(fill_value=np.inf)]
    best = pd.MultiIndex.from_frame(frontier[measures])
    return table.assign(pareto=pd.MultiIndex.from_frame(table[measures]).isin(best))


def currency(table: pd.DataFrame) -> tuple[str, str]:
    """(column, unit) in which all of `table` can be compared: the price if every row with a time has one, in the
    same unit, else device-hours."""
    timed = table[table.wall_seconds.notna()]
    if timed.unit.nunique() == 1 and timed.cost.notna().all():
        return "cost", timed.unit.iloc[0]
    return "device_hours", "device-hours"


def _configurations(runs: pd.DataFrame, spent: pd.DataFrame) -> pd.DataFrame:
    """`spent`, a row for each run that reached the end, as one row per configuration of all `runs`."""
    every = runs.drop(columns=MEASURES, errors="ignore").merge(spent[["run_id", *MEASURES]], on="run_id", how="left")
    # A missing value is longer than all others, and leaves no interval.
    table = gather(every.assign(**every[MEASURES].astype(float).fillna(np.inf)), MEASURES)
    table["reached"] = [
        int(np.isfinite(seconds).sum()) for seconds in [sample.values for sample in table.wall_seconds_sample]
    ]
    units = dict(zip(spent.hardware_id, spent.unit, strict=True))
    table["unit"] = [units[row.hardware_id] if row.reached else "" for row in table.itertuples()]
    table = table.assign(epoch_seconds=table.seconds / table.epochs).replace(np.inf, NAN)
    return table.assign(efficiency=_efficiency(table))[COLUMNS]


def _efficiency(table: pd.DataFrame) -> pd.Series:
    """Device-seconds of the quickest of the smallest configurations (without a group, where there is one) over each row's own,
    where all of `SAME` is equal."""
    finished = table.assign(device_seconds=table.seconds * table.world_size, grouped=table.parallel != "none")
    finished = on_every_link(finished[finished.seconds.notna()])
    finished = finished.sort_values(["world_size", "grouped", "device_seconds"])
    first = finished.groupby(number(finished, SAME)).device_seconds.transform("first")
    ratios = first / finished.device_seconds
    return ratios[~ratios.index.duplicated()].reindex(table.index)


@tabled(
    "benefit",
    "What further devices give and cost, for a million samples.",
    "workload precision kind parallel layout device_hours cost dearer added verdict",
    measure="cost",
    missing="a curve of several rank counts",
)
def benefit(curves: pd.DataFrame, prices: Mapping[str, Billing], efficient: float) -> pd.DataFrame:
    """What further devices give and cost: a row for each point of `curves` (as of `scaling.headline`),
    training alone.

    Columns: those of the point; device_hours, cost (in `unit`) of a million samples; dearer (cost of a sample over that on the
    smallest, 1 / efficiency), with its interval; added (what the devices that the point before has not contribute, each
    over the first device's throughput), with an interval that takes the point before as certain; verdict ("" for the smallest,
    "good value" for `efficient` or more, "diminishing returns" for less, "undecided": the interval contains it, or is missing).
    """
    rows = []
    dearer = {
        "dearer": 1 / curves.efficiency,
        "dearer_low": 1 / curves.efficiency_high,
        "dearer_high": 1 / curves.efficiency_low,
    }
    ordered = curves.assign(**dearer).sort_values(["world_size", "throughput"])
    for _, line in ordered.groupby(number(ordered, scaling.LINE)):
        for row in line.to_dict("records"):
            world = row["world_size"]
            hours = MILLION / row["throughput"] / HOUR
            row |= {"device_hours": hours * world, "cost": NAN, "unit": "", "verdict": ""}
            if billing := prices.get(row["hardware_id"]):
                row["cost"] = billing.cost(row["nodes"], row["ranks_per_node"], hours, row["threads_per_rank"])
                row["unit"] = billing.unit
            fewer = line[line.world_size < world]
            if len(fewer):
                before = fewer.iloc[-1]
                gained = [
                    world * row[name] - before.world_size * before.efficiency
                    for name in stats.columns(["efficiency"])
                ]
                added = stats.Estimate(*(devices / (world - before.world_size) for devices in gained), row["repeats"])
                row |= added.columns("added") | {"verdict": WORTH[decide(added, at_least=efficient)]}
            rows.append(row)
    return pd.DataFrame(rows, columns=[*curves.columns, *BENEFIT])
