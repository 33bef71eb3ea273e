"""The cost of runs: device-hours, node-hours, price and energy of equal work.

`prices` is {hardware_id: how its nodes are billed}, from the cluster files (`launch.cluster.prices`). What is not known
stays NaN: a price without a cluster file, energy without a counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

from hpc_utils.records import Records

from . import scaling, stats
from .decide import Verdict, decide
from .points import PAUSES, POINT, SAME, gather, number, unprofiled
from .table import tabled

HOUR, KWH = 3600, 3.6e6  # s; J
MILLION = 10**6  # samples

KEYS = [*SAME, *POINT]  # equal in the repeats of a configuration
# What a configuration takes; each has its 95 % interval in <name>_low and <name>_high.
MEASURES = ["epochs", "seconds", "wall_seconds", "device_hours", "core_hours", "node_hours", "cost", "energy_kwh"]
HOURLY = ("device_hours", "core_hours", "node_hours", "cost")  # these grow with wall_seconds
COLUMNS = [*KEYS, *stats.columns(*MEASURES), "unit", "epoch_seconds", "repeats", "runs"]
WORTH = {Verdict.MET: "good value", Verdict.MISSED: "diminishing returns", Verdict.UNDECIDED: "undecided"}
BENEFIT = ["device_hours", "cost", "unit", *stats.columns("dearer", "added"), "verdict"]


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
    grouped = epochs[names].apply(pd.to_numeric).groupby(epochs.run_id)
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
    return priced(spent, hours, prices)


def priced(table: pd.DataFrame, hours: pd.Series, prices: Mapping[str, Billing]) -> pd.DataFrame:
    """`table` with the `cost` of so many `hours` on the nodes of each row, in `unit`; NaN and "" without a price."""
    table = table.assign(cost=np.nan, unit="")
    for hardware, rows in table.groupby("hardware_id"):
        if billing := prices.get(hardware):
            threads = pd.to_numeric(rows.threads_per_rank)
            price = billing.cost(rows.nodes, rows.ranks_per_node, hours[rows.index], threads)
            table.loc[rows.index, "cost"] = price
            table.loc[rows.index, "unit"] = billing.unit
    return table


def total(runs: pd.DataFrame, epochs: pd.DataFrame) -> dict[str, Any]:
    """All that `runs` took, profiled ones too, as of `per_run`: wall_seconds, training_seconds, device_hours (of CPU devices and
    GPUs), core_hours (of the CPU devices), energy_kwh (NaN: no counter) of `energy_counted` runs."""
    spent = per_run(runs, epochs, {})
    return {
        "wall_seconds": spent.wall_seconds.sum(),
        "training_seconds": runs.seconds.sum(),
        "device_hours": spent.device_hours.sum(),
        "core_hours": spent.core_hours.sum(),
        "energy_kwh": spent.energy_kwh.sum(min_count=1),
        "energy_counted": int(spent.energy_kwh.count()),
    }


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
    row |= {"configurations": len(repeats), "fewest_repeats": repeats.min(), "most_repeats": repeats.max()}
    row |= {"ranks": runs.world_size.max(), "nodes": int(pd.to_numeric(runs.nodes).max())}
    return pd.DataFrame([row | total(runs, records.epochs)])


@tabled(
    "cost",
    "What equal work takes, by configuration.",
    "workload precision parallel nodes ranks_per_node global_batch wall_seconds device_hours cost",
    measure="cost",
)
def to_finish(
    runs: pd.DataFrame, epochs: pd.DataFrame, prices: Mapping[str, Billing], work: float | None = None
) -> pd.DataFrame:
    """One row per configuration: the cost of equal work, training on `work` samples (None: as many as most of the runs did), at the
    measured rate, without profiled runs.

    Equal samples are not equal learning where the global batch differs.

    Columns: `KEYS`; the `MEASURES` of `per_run`, each the median over repeats with <name>_low, <name>_high, its 95 %
    interval (NaN for a single run; of energy also if one of the runs had no counter); unit; epoch_seconds; repeats; runs (ids).
    """
    spent = per_run(unprofiled(runs), epochs, prices)
    factor = (work or spent.samples.mode().max()) / spent.samples
    # The start is paid once, whatever the work.
    wall = spent.start_seconds + (spent.wall_seconds - spent.start_seconds) * factor
    grown = {name: spent[name] * factor for name in ("epochs", "seconds", "energy_kwh")}
    grown |= {name: spent[name] * wall / spent.wall_seconds for name in HOURLY}
    table = gather(spent.assign(**grown, wall_seconds=wall), MEASURES, ["unit"])
    uncounted = set(spent.run_id[spent.energy_kwh.isna()])
    table.loc[[not uncounted.isdisjoint(runs) for runs in table.runs], stats.columns("energy_kwh")] = np.nan
    return table.assign(epoch_seconds=table.seconds / table.epochs)[COLUMNS]


def pareto(table: pd.DataFrame, cost: str) -> pd.DataFrame:
    """`table` (as of `to_finish`) by rising time, with `pareto`: no other configuration takes less of
    time or of the column `cost` and no more of the other (medians compared). Those without a value are omitted."""
    measures = ["wall_seconds", cost]
    table = table.dropna(subset=measures).sort_values(measures, kind="stable")
    table["pareto"] = (table[cost] == table[cost].cummin()) & ~table.duplicated(cost)
    return table.assign(pareto=table.groupby(measures).pareto.transform("any"))  # equal ones too


def currency(table: pd.DataFrame) -> tuple[str, str]:
    """(column, unit) in which all of `table` can be compared: the price if every row has one, in the same unit, else
    device-hours."""
    if table.unit.nunique() == 1 and table.cost.notna().all():
        return "cost", table.unit.iloc[0]
    return "device_hours", "device-hours"


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
    dearer = {
        "dearer": 1 / curves.efficiency,
        "dearer_low": 1 / curves.efficiency_high,
        "dearer_high": 1 / curves.efficiency_low,
    }
    table = curves.assign(line=number(curves, scaling.LINE), **dearer)
    table = table.sort_values(["line", "world_size", "throughput"], ignore_index=True)
    hours = MILLION / table.throughput / HOUR
    table = priced(table.assign(device_hours=hours * table.world_size), hours, prices)
    best = table.drop_duplicates(["line", "world_size"], keep="last")[["line", "world_size", "efficiency"]]
    before = best.groupby("line").shift().add_suffix("_before")
    table = table.merge(best[["line", "world_size"]].join(before), on=["line", "world_size"])
    further = table.world_size - table.world_size_before
    for end in stats.ENDS:
        gained = table.world_size * table[f"efficiency{end}"] - table.world_size_before * table.efficiency_before
        table[f"added{end}"] = gained / further
    added = [stats.Estimate.of(row, "added") for row in table.to_dict("records")]
    table["verdict"] = [WORTH.get(decide(estimate, at_least=efficient), "") for estimate in added]
    return table[[*curves.columns, *BENEFIT]]
