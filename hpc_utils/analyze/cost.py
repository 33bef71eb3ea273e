"""What runs take: device-hours, node-hours, price and energy, for a fixed work or to a target accuracy.

`prices` is {hardware_id: how its nodes are billed}, as cluster files say it (`launch.cluster.prices`). What is not known
stays NaN: a price without a cluster file, energy without a counter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd

from . import stats
from .points import POINT, SAME, number, unprofiled

NAN = float("nan")
HOUR, KWH = 3600, 3.6e6  # s; J

# What makes a configuration, of which runs are repeats.
KEYS = [*SAME, "parallel", "world_size", *(name for name in POINT if name not in ("parallel", "world_size"))]
# What a configuration takes; each has its 95 % interval in <name>_low and <name>_high.
MEASURES = ["epochs", "seconds", "wall_seconds", "device_hours", "core_hours", "node_hours", "cost", "energy_kwh"]
HOURLY = ("device_hours", "core_hours", "node_hours", "cost")  # these grow with wall_seconds
COLUMNS = [
    *KEYS, *(f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")),
    "unit", "epoch_seconds", "efficiency", "repeats", "reached", "note", "runs",
]  # fmt: skip


class Billing(Protocol):
    """How a kind of node is billed; `launch.cluster.NodeType` is one."""

    unit: str

    def cost(self, nodes: int, ranks_per_node: int, hours: float) -> float:
        """What that many nodes cost for so long, in `unit`; shared ones by the share of their devices."""


def per_run(runs: pd.DataFrame, epochs: pd.DataFrame, prices: Mapping[str, Billing]) -> pd.DataFrame:
    """One row a run: what it took, as far as it was recorded.

    Columns: run_id; epochs, samples; seconds (T, training alone); wall_seconds (with set-up, warm-up, evaluation and
    checkpoints, which a job is billed for too; not the start of its processes, which nobody records); device_hours,
    core_hours (of CPU devices, each `threads_per_rank` cores; NaN of GPUs) and node_hours (of wall_seconds; whole nodes,
    however few of their devices it had); cost, in `unit` ("" and NaN without a price); energy_kwh (of T, all devices; NaN where it was not counted).
    """
    spent = runs.merge(_sums(epochs).reset_index(), on="run_id", suffixes=("_of_run", ""))
    fixed = _numbers(spent.setup_seconds).fillna(0) + _numbers(spent.warmup_seconds).fillna(0)
    return _billed(spent.assign(wall_seconds=fixed + spent.seconds + spent.beside), prices)[
        [
            "run_id",
            "epochs",
            "samples",
            "seconds",
            "wall_seconds",
            "device_hours",
            "core_hours",
            "node_hours",
            "cost",
            "unit",
            "energy_kwh",
        ]
    ]


class Total(NamedTuple):
    """What a set of runs took in all.

    Attributes:
        runs: how many. hours: one after another, as if nothing ran beside them. device_hours: of CPU devices and
            GPUs. core_hours: of the CPU devices; gpu_hours: of the GPUs. node_hours: whole nodes.
        energy_kwh: of `counted` runs, those with a readable counter; NaN if that is none.
        notes: what is left out or absent, and why, a sentence each.
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
    """All that `runs` took, profiled ones too. As of `per_run`, so without the start of processes, and without what was
    tried and not kept."""
    if runs.empty:
        return Total(0, 0.0, 0.0, 0.0, 0.0, 0.0, NAN, 0, ())
    spent = per_run(runs, epochs[epochs.run_id.isin(runs.run_id)], {}).set_index("run_id")
    by_id = runs.set_index("run_id")
    on_gpus = by_id.device.reindex(spent.index).isin(["cuda", "rocm"])
    energy = _numbers(spent.energy_kwh)
    counted = int(energy.notna().sum())
    return Total(
        len(runs), float(spent.wall_seconds.sum() / HOUR), float(spent.device_hours.sum()),
        float(spent.core_hours.sum()), float(spent.device_hours[on_gpus].sum()), float(spent.node_hours.sum()),
        float(energy.sum()) if counted else NAN, counted, tuple(_notes(by_id, counted)),
    )  # fmt: skip


def _notes(runs: pd.DataFrame, counted: int) -> Iterator[str]:
    if runs.hardware_id.astype(str).str.startswith("rehearsal").any():
        yield "Nodes of a rehearsal cluster share one machine: their hours are not its."
    if counted < len(runs):
        of = f"only in {counted} of {len(runs)} runs" if counted else "in no run"
        yield f"Energy was counted {of}: no counter could be read (NVML of GPUs, RAPL of processors)."


def to_finish(
    runs: pd.DataFrame, epochs: pd.DataFrame, prices: Mapping[str, Billing], *, samples: float | None = None
) -> pd.DataFrame:
    """One row a configuration: what equal work takes, training on `samples` at the measured rate.

    Equal samples are not equal learning where the global batch differs: `to_accuracy` compares that. Runs that a profiler
    watched, which costs time of its own, are left out of both.

    Args:
        samples: by default what most of the runs trained on.

    Columns: `KEYS`; the `MEASURES` of `per_run`, each the median over repeats with <name>_low, <name>_high, its 95 %
    interval (NaN for a single run); unit; epoch_seconds; efficiency: device-seconds of T of the configuration with the
    fewest devices, all else equal, over this one's; repeats, reached (all); note; runs (ids).
    """
    runs = unprofiled(runs)
    spent = per_run(runs, epochs, prices)
    if samples is None:
        samples = spent.samples.mode().max()
    factor = samples / spent.samples
    # The start is paid once, whatever the work; what comes with epochs grows with it.
    start = _start(runs).reindex(spent.run_id).to_numpy()
    wall = start + (spent.wall_seconds - start) * factor
    grown = {name: spent[name] * factor for name in ("epochs", "seconds", "energy_kwh")}
    grown |= {name: spent[name] * wall / spent.wall_seconds for name in HOURLY}
    return _configurations(runs, spent.assign(**grown, wall_seconds=wall, samples=samples))


def to_accuracy(
    runs: pd.DataFrame, epochs: pd.DataFrame, target: float, prices: Mapping[str, Billing]
) -> pd.DataFrame:
    """One row a configuration: what it takes until the test accuracy first is `target` or more; an epoch that was not
    evaluated does not count.

    Columns: as `to_finish`; `reached` of the `repeats` get there, and `note` says so of those that do not. They count
    as taking longer than all others: the median is theirs (NaN) if half of them or more never do, and there is no interval.
    """
    if not 0 < target <= 1:
        raise ValueError(f"target={target}: an accuracy is a share, more than 0 and at most 1")
    runs = unprofiled(runs)
    ordered = epochs[epochs.run_id.isin(runs.run_id)].sort_values(["run_id", "epoch"])
    accuracy = _numbers(ordered.test_accuracy)
    reached = ordered[accuracy >= target].groupby("run_id").epoch.first()
    until = ordered[ordered.epoch <= ordered.run_id.map(reached)]
    spent = per_run(runs[runs.run_id.isin(reached.index)], until, prices)
    return _configurations(runs, spent, best=accuracy.groupby(ordered.run_id).max(), target=target)


def pareto(table: pd.DataFrame, time: str = "wall_seconds", cost: str | None = None) -> pd.DataFrame:
    """`table` (as of `to_finish` or `to_accuracy`) by rising time, with `pareto`: no other configuration takes less of
    one of both and no more of the other (medians compared). Those without a value are left out.

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


def _sums(epochs: pd.DataFrame) -> pd.DataFrame:
    """A run's totals over the given epochs: epochs, samples, seconds, beside (s, evaluation and checkpoints), energy_kwh."""
    grouped = epochs.assign(
        beside=_numbers(epochs.eval_seconds).fillna(0) + _numbers(epochs.checkpoint_seconds).fillna(0),
        energy_kwh=_numbers(epochs.energy_joules) / KWH,
    ).groupby("run_id")
    totals = grouped[["samples", "seconds", "beside"]].sum()
    energy = grouped.energy_kwh.agg(lambda own: own.sum(skipna=False))
    return totals.assign(epochs=grouped.size(), energy_kwh=energy)


def _start(runs: pd.DataFrame) -> pd.Series:
    """Seconds of set-up and warm-up, by run."""
    start = _numbers(runs.setup_seconds).fillna(0) + _numbers(runs.warmup_seconds).fillna(0)
    return start.set_axis(runs.run_id)


def _billed(spent: pd.DataFrame, prices: Mapping[str, Billing]) -> pd.DataFrame:
    hours = spent.wall_seconds / HOUR
    cost, unit = pd.Series(NAN, spent.index), pd.Series("", spent.index)
    for hardware, own in spent.groupby("hardware_id"):
        if hardware in prices:
            billing = prices[hardware]
            cost[own.index] = billing.cost(own.nodes, own.ranks_per_node, hours[own.index])
            unit[own.index] = billing.unit
    devices = hours * spent.world_size
    cores = (devices * _numbers(spent.threads_per_rank)).where(spent.device == "cpu")
    return spent.assign(device_hours=devices, core_hours=cores, node_hours=hours * spent.nodes, cost=cost, unit=unit)


def _configurations(
    runs: pd.DataFrame, spent: pd.DataFrame, *, best: pd.Series | None = None, target: float | None = None
) -> pd.DataFrame:
    """`spent`, a row a run that got there, as a row a configuration of all `runs`."""
    told = spent[["run_id", *MEASURES, "unit"]].reset_index(drop=True)
    every = runs[["run_id", *KEYS]].merge(told, on="run_id", how="left")
    every["best"] = NAN if best is None else every.run_id.map(best)
    rows = []
    for key, numbers in every.groupby(KEYS, dropna=False).indices.items():
        own = {name: every[name].to_numpy()[numbers] for name in (*MEASURES, "unit", "best")}
        there = ~np.isnan(own["wall_seconds"])
        row = dict(zip(KEYS, key, strict=True)) | {"repeats": len(numbers), "reached": int(there.sum()), "note": ""}
        row["runs"] = tuple(every.run_id.to_numpy()[numbers])
        if not there.all():
            missed = own["best"][~there]
            known = missed[~np.isnan(missed)]
            how = f"at best {known.max():.4g}" if len(known) else "were not evaluated"
            row["note"] = f"{row['reached']} of {row['repeats']} repeats reach {target:g}, the others {how}"
        row["unit"] = own["unit"][there][0] if there.any() else ""
        for name in ("epochs", "seconds", "wall_seconds", "energy_kwh"):
            row |= _measure(name, _median(own[name].tolist()))
        # Within a configuration these follow from the time: one estimate serves them all.
        for name in HOURLY:
            ratio = own[name][there][0] / own["wall_seconds"][there][0] if there.any() else NAN
            row |= {f"{name}{end}": row[f"wall_seconds{end}"] * ratio for end in ("", "_low", "_high")}
        rows.append(row | {"epoch_seconds": row["seconds"] / row["epochs"]})
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.assign(efficiency=_efficiency(table))


def _efficiency(table: pd.DataFrame) -> pd.Series:
    """Device-seconds of the quickest of the smallest configurations over each row's own, where all of `SAME` is equal; one
    device needs no link and stands beside those of every link."""
    found = pd.Series(NAN, table.index)
    device_seconds = table.seconds * table.world_size
    known = table[table.seconds.notna()]
    alone = known.world_size == 1
    family = number(known, [name for name in SAME if name != "link_gbit"])
    for own in np.unique(family):
        for _, linked in known[family == own].groupby("link_gbit", dropna=False):
            curve = pd.concat([known[(family == own) & alone], linked[linked.world_size > 1]])
            fewest = curve[curve.world_size == curve.world_size.min()]
            ungrouped = fewest[fewest.parallel == "none"]
            base = device_seconds[(fewest if ungrouped.empty else ungrouped).index].min()
            found[curve.index] = base / device_seconds[curve.index]
    return found


def _median(values: list[float]) -> stats.Estimate:
    """As `stats.median`; one that never came (NaN) is longer than all others and leaves no interval."""
    known = [value for value in values if np.isfinite(value)]
    if len(known) == len(values) and all(value > 0 for value in values):
        return stats.median(values)
    middle = float(np.median([value if np.isfinite(value) else np.inf for value in values]))
    return stats.Estimate(middle if np.isfinite(middle) else NAN, NAN, NAN, len(values))


def _measure(name: str, estimate: stats.Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _numbers(column: pd.Series) -> pd.Series:
    """A column that was empty in all rows is of no kind."""
    return pd.to_numeric(column)


def intervals(table: pd.DataFrame, name: str) -> Iterator[tuple[float, float]]:
    """(low, high) of each row's `name`; the value itself twice where there is no interval."""
    for value, low, high in zip(table[name], table[f"{name}_low"], table[f"{name}_high"], strict=True):
        yield (low, high) if np.isfinite(low) and np.isfinite(high) else (value, value)
