"""The cost of runs: device-hours, node-hours, price and energy, for a fixed work or to a target accuracy.

`prices` is {hardware_id: how its nodes are billed}, from the cluster files (`launch.cluster.prices`). What is not known
stays NaN: a price without a cluster file, energy without a counter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd

from hpc_utils.records import Records

from . import stats
from .points import POINT, SAME, gather, number, oversubscribed, unprofiled

NAN = float("nan")
HOUR, KWH = 3600, 3.6e6  # s; J

# Equal in the repeats of a configuration.
KEYS = [*SAME, "parallel", "world_size", *(name for name in POINT if name not in ("parallel", "world_size"))]
# What a configuration takes; each has its 95 % interval in <name>_low and <name>_high.
MEASURES = ["epochs", "seconds", "wall_seconds", "device_hours", "core_hours", "node_hours", "cost", "energy_kwh"]
HOURLY = ("device_hours", "core_hours", "node_hours", "cost")  # these grow with wall_seconds
ENDS = [f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")]
COLUMNS = [*KEYS, *ENDS, "unit", "epoch_seconds", "efficiency", "repeats", "reached", "note", "runs"]


class Billing(Protocol):
    """How a kind of node is billed; `launch.cluster.NodeType` is one."""

    unit: str

    def cost(self, nodes: int, ranks_per_node: int, hours: float) -> float:
        """The cost of that many nodes for so long, in `unit`; shared nodes by the share of their devices."""


def per_run(runs: pd.DataFrame, epochs: pd.DataFrame, prices: Mapping[str, Billing]) -> pd.DataFrame:
    """One row per run: the resources that it used, as far as recorded.

    Columns: run_id; epochs, samples; seconds (T, training alone); wall_seconds (with set-up, warm-up, evaluation and
    checkpoints, which a job is billed for too; without the start of its processes, which is not recorded); device_hours,
    core_hours (of CPU devices, each `threads_per_rank` cores; NaN of GPUs) and node_hours (of wall_seconds; whole nodes,
    however few of their devices it had); cost, in `unit` ("" and NaN without a price); energy_kwh (of T, all devices; NaN
    without a counter).
    """
    names = ["eval_seconds", "checkpoint_seconds", "energy_joules"]
    grouped = epochs.assign(**{name: pd.to_numeric(epochs[name]) for name in names}).groupby("run_id")
    sums = grouped[["samples", "seconds", *names[:2]]].sum().assign(epochs=grouped.size())
    sums["energy_kwh"] = grouped.energy_joules.agg(lambda own: own.sum(skipna=False)) / KWH
    spent = runs.merge(sums.reset_index(), on="run_id", suffixes=("_of_run", ""))
    spent["wall_seconds"] = _start(spent) + spent.seconds + spent.eval_seconds + spent.checkpoint_seconds
    hours = spent.wall_seconds / HOUR
    spent["device_hours"], spent["node_hours"] = hours * spent.world_size, hours * spent.nodes
    spent["core_hours"] = (spent.device_hours * pd.to_numeric(spent.threads_per_rank)).where(spent.device == "cpu")
    spent["cost"], spent["unit"] = NAN, ""
    for hardware, own in spent.groupby("hardware_id"):
        if billing := prices.get(hardware):
            spent.loc[own.index, "cost"] = billing.cost(own.nodes, own.ranks_per_node, hours[own.index])
            spent.loc[own.index, "unit"] = billing.unit
    return spent[["run_id", "epochs", "samples", "seconds", "wall_seconds", *HOURLY, "unit", "energy_kwh"]]


class Total(NamedTuple):
    """What a set of runs took in all.

    Attributes:
        runs: how many. hours: of all runs, one after another. device_hours: of CPU devices and
            GPUs. core_hours: of the CPU devices; gpu_hours: of the GPUs. node_hours: whole nodes.
        energy_kwh: of `counted` runs, those with a readable counter; NaN if that is none.
        notes: omitted or missing parts with the reason, one sentence each.
    """

    runs: int
    hours: float
    device_hours: float
    core_hours: float
    gpu_hours: float
    node_hours: float
    energy_kwh: float
    counted: int
    notes: tuple[str, ...]


def total(runs: pd.DataFrame, epochs: pd.DataFrame) -> Total:
    """All that `runs` took, profiled ones too, as of `per_run`."""
    if runs.empty:
        return Total(0, 0.0, 0.0, 0.0, 0.0, 0.0, NAN, 0, ())
    spent = per_run(runs, epochs[epochs.run_id.isin(runs.run_id)], {})
    on_gpus = spent.run_id.map(runs.set_index("run_id").device).isin(["cuda", "rocm"])
    counted, notes = int(spent.energy_kwh.notna().sum()), []
    if runs.hardware_id.astype(str).str.startswith("rehearsal").any():
        notes.append("Nodes of a rehearsal cluster share one machine: their hours are not its.")
    if counted < len(runs):
        of = f"only in {counted} of {len(runs)} runs" if counted else "in no run"
        notes.append(f"Energy was counted {of}: no counter could be read (NVML of GPUs, RAPL of processors).")
    sums = spent[["wall_seconds", "device_hours", "core_hours", "node_hours", "energy_kwh"]].astype(float).sum()
    gpu_hours, energy = float(spent.device_hours[on_gpus].sum()), sums.energy_kwh if counted else NAN
    hours = sums.wall_seconds / HOUR, sums.device_hours, sums.core_hours, gpu_hours, sums.node_hours
    return Total(len(runs), *map(float, hours), float(energy), counted, tuple(notes))


def summary(found: Records, study: str = "") -> pd.DataFrame:
    """All runs of `found` in one row.

    Columns: study; complete (runs), refused, unfinished; and if there are runs: profiled and oversubscribed (in no scaling
    figure), restarted, ranks and nodes (the most of a run), codes and machines (how many measured), device, workloads,
    datasets, torch, first_day, last_day; configurations, fewest_repeats, most_repeats (of a configuration); wall_seconds,
    training_seconds, device_hours, core_hours, node_hours (NaN where not known of all), samples, energy_kwh (NaN: no counter), energy_counted (runs).
    """
    runs = found.runs
    row = {"study": study, "complete": len(runs), "refused": len(found.refused), "unfinished": len(found.unfinished)}
    if runs.empty:
        return pd.DataFrame([row])
    repeats, took, each = gather(runs).repeats, total(runs, found.epochs), per_run(runs, found.epochs, {})

    def listed(column: pd.Series) -> str:
        return ", ".join(sorted(set(column.dropna().astype(str)))) or "not known"

    row |= {
        "profiled": int(runs.profile.notna().sum()),
        "oversubscribed": int(oversubscribed(runs).sum()),
        "restarted": int((pd.to_numeric(runs.restarts).fillna(0) > 0).sum()),
        "ranks": int(runs.world_size.max()), "nodes": int(pd.to_numeric(runs.nodes).max()),
        "codes": runs.digest.nunique(), "machines": runs.hardware_id.nunique(),
        "device": listed(runs.device_name), "workloads": listed(runs.workload), "datasets": listed(runs.dataset),
        "torch": listed(runs.torch), "first_day": str(runs.started.min())[:10], "last_day": str(runs.started.max())[:10],
        "configurations": len(repeats), "fewest_repeats": int(repeats.min()), "most_repeats": int(repeats.max()),
        "wall_seconds": took.hours * HOUR, "training_seconds": each.seconds.sum(),
        "device_hours": took.device_hours, "core_hours": took.core_hours,
        "node_hours": took.node_hours if each.node_hours.notna().all() else NAN,
        "samples": int(each.samples.sum()), "energy_kwh": took.energy_kwh, "energy_counted": took.counted,
    }  # fmt: skip
    return pd.DataFrame([row])


def to_finish(
    runs: pd.DataFrame, epochs: pd.DataFrame, prices: Mapping[str, Billing], *, samples: float | None = None
) -> pd.DataFrame:
    """One row per configuration: the cost of equal work, training on `samples` at the measured rate, without profiled runs.

    Equal samples are not equal learning where the global batch differs: `to_accuracy` compares that.

    Args:
        samples: by default the number that most of the runs trained on.

    Columns: `KEYS`; the `MEASURES` of `per_run`, each the median over repeats with <name>_low, <name>_high, its 95 %
    interval (NaN for a single run); unit; epoch_seconds; efficiency: device-seconds of T of the configuration with the
    fewest devices, all else equal, over this one's; repeats, reached (all); note; runs (ids).
    """
    runs = unprofiled(runs)
    spent = per_run(runs, epochs, prices)
    factor = (spent.samples.mode().max() if samples is None else samples) / spent.samples
    # The start is paid once, whatever the work.
    start = _start(runs).set_axis(runs.run_id).reindex(spent.run_id).to_numpy()
    wall = start + (spent.wall_seconds - start) * factor
    grown = {name: spent[name] * factor for name in ("epochs", "seconds", "energy_kwh")}
    grown |= {name: spent[name] * wall / spent.wall_seconds for name in HOURLY}
    return _configurations(runs, spent.assign(**grown, wall_seconds=wall))


def to_accuracy(
    runs: pd.DataFrame, epochs: pd.DataFrame, target: float, prices: Mapping[str, Billing]
) -> pd.DataFrame:
    """One row per configuration: the cost until the test accuracy first is `target` or more; an epoch without evaluation
    does not count. Without profiled runs.

    Columns: as `to_finish`; `reached` of the `repeats` reach the target, and `note` describes the others. Those count as
    longer than all others: the median is NaN if they are half of the repeats or more, and there is no interval.
    """
    if not 0 < target <= 1:
        raise ValueError(f"target={target}: an accuracy is a share, more than 0 and at most 1")
    runs = unprofiled(runs)
    ordered = epochs[epochs.run_id.isin(runs.run_id)].sort_values(["run_id", "epoch"])
    accuracy = pd.to_numeric(ordered.test_accuracy)
    reached = ordered[accuracy >= target].groupby("run_id").epoch.first()
    until = ordered[ordered.epoch <= ordered.run_id.map(reached)]
    found = _configurations(runs, per_run(runs[runs.run_id.isin(reached.index)], until, prices))
    best = accuracy.groupby(ordered.run_id).max().drop(reached.index)
    found["note"] = [
        f"{row.reached} of {row.repeats} repeats reach {target:g}, the others "
        + (f"at best {own.max():.4g}" if (own := best.reindex(row.runs)).notna().any() else "were not evaluated")
        if row.reached < row.repeats
        else ""
        for row in found.itertuples()
    ]
    return found


def pareto(table: pd.DataFrame, time: str = "wall_seconds", cost: str | None = None) -> pd.DataFrame:
    """`table` (as of `to_finish` or `to_accuracy`) by rising time, with `pareto`: no other configuration takes less of
    one of both and no more of the other (medians compared). Those without a value are omitted.

    Args:
        cost: the column to compare; by default as of `currency`.
    """
    cost = cost or currency(table)[0]
    table = table.dropna(subset=[time, cost]).sort_values([time, cost], kind="stable")
    cheapest = table[cost].cummin().shift(fill_value=np.inf)
    twin = (table[[time, cost]] == table[[time, cost]].shift()).all(axis=1)
    return table.assign(pareto=((table[cost] < cheapest) | (twin & (table[cost] <= cheapest))).tolist())


def currency(table: pd.DataFrame) -> tuple[str, str]:
    """(column, unit) in which all of `table` can be compared: the price if every row with a time has one, in the
    same unit, else device-hours."""
    timed = table[table.wall_seconds.notna()]
    units = set(timed.unit)
    if len(units) == 1 and "" not in units and timed.cost.notna().all():
        return "cost", units.pop()
    return "device_hours", "device-hours"


def intervals(table: pd.DataFrame, name: str) -> Iterator[tuple[float, float]]:
    """(low, high) of each row's `name`; the value itself twice where there is no interval."""
    for value, low, high in zip(table[name], table[f"{name}_low"], table[f"{name}_high"], strict=True):
        yield (low, high) if np.isfinite(low) and np.isfinite(high) else (value, value)


def _start(runs: pd.DataFrame) -> pd.Series:
    """Seconds of set-up and warm-up of each run."""
    return pd.to_numeric(runs.setup_seconds).fillna(0) + pd.to_numeric(runs.warmup_seconds).fillna(0)


def _configurations(runs: pd.DataFrame, spent: pd.DataFrame) -> pd.DataFrame:
    """`spent`, a row for each run that reached the end, as one row per configuration of all `runs`."""
    every = runs[["run_id", *KEYS]].merge(spent[["run_id", *MEASURES, "unit"]], on="run_id", how="left")
    rows = []
    for key, numbers in every.groupby(KEYS, dropna=False).indices.items():
        own = every.iloc[numbers]
        there = own[own.wall_seconds.notna()]
        row = dict(zip(KEYS, key, strict=True)) | {"repeats": len(own), "reached": len(there), "note": ""}
        row |= {"runs": tuple(own.run_id), "unit": there.unit.iloc[0] if len(there) else ""}
        for name in ("epochs", "seconds", "wall_seconds", "energy_kwh"):
            row |= _median(own[name].to_numpy(float)).columns(name)
        # Within a configuration these follow from the time: one estimate serves them all.
        for name in HOURLY:
            ratio = there[name].iloc[0] / there.wall_seconds.iloc[0] if len(there) else NAN
            row |= {f"{name}{end}": row[f"wall_seconds{end}"] * ratio for end in ("", "_low", "_high")}
        rows.append(row | {"epoch_seconds": row["seconds"] / row["epochs"]})
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.assign(efficiency=_efficiency(table))


def _efficiency(table: pd.DataFrame) -> pd.Series:
    """Device-seconds of the quickest of the smallest configurations over each row's own, where all of `SAME` is equal; one
    device has no link and stands beside those of every link."""
    found = pd.Series(NAN, table.index)
    device_seconds = table.seconds * table.world_size
    known = table[table.seconds.notna()]
    family = number(known, [name for name in SAME if name != "link_gbit"])
    for _, own in known.groupby(family):
        for _, linked in own.groupby("link_gbit", dropna=False):
            curve = pd.concat([own[own.world_size == 1], linked[linked.world_size > 1]])
            fewest = curve[curve.world_size == curve.world_size.min()]
            ungrouped = fewest[fewest.parallel == "none"]
            base = device_seconds[(fewest if ungrouped.empty else ungrouped).index].min()
            found[curve.index] = base / device_seconds[curve.index]
    return found


def _median(values: np.ndarray) -> stats.Estimate:
    """As `stats.median`; a missing value (NaN) is longer than all others and leaves no interval."""
    if (values > 0).all():
        return stats.median(values)
    middle = float(np.median(np.where(np.isfinite(values), values, np.inf)))
    return stats.Estimate(middle if np.isfinite(middle) else NAN, NAN, NAN, len(values))
