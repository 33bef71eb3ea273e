"""What a chapter rests on, as named values: runs, repeats, machines, and what they cost: `study.runs`, `study.core-hours`."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hpc_utils.analyze import cost
from hpc_utils.analyze.points import gather
from hpc_utils.analyze.value import Value
from hpc_utils.records import Records

from . import words
from .naming import counted, slug, values


def whole(found: Records, study: str = "") -> list[Value]:
    """`study.runs`, `study.repeats`, `study.device-hours`, ... of all that a chapter read; `study`: in the names, where a
    chapter reads several (`study.runs.laptop`)."""
    runs, behind = found.runs, tuple(found.runs.run_id)
    own = slug(study)
    of = f"of the study {study}" if study else "of this chapter"

    def told(name: str, value: float | str, unit: str, says: str) -> Value:
        return counted(".".join(filter(None, ["study", name, own])), value, unit, f"{says} {of}.", behind)

    emulated = runs.emulated.fillna(False).astype(bool)
    given = [
        told("runs", len(runs), "count", "Complete runs"),
        told("refused", len(found.refused), "count", "Runs refused because their records cannot be true,"),
        told("unfinished", len(found.unfinished), "count", "Runs that are not complete,"),
    ]
    if runs.empty:
        return given
    given += [
        told("measured", int((~emulated).sum()), "count", "Runs that computed"),
        told("emulated", int(emulated.sum()), "count", "Runs on the emulated device"),
        told("profiled", int(runs.profile.notna().sum()), "count", "Runs that a profiler watched, which stand in no scaling figure,"),
        told("oversubscribed", int(runs.oversubscribed.fillna(False).astype(bool).sum()), "count",
             "Runs with more ranks than cores, which stand in no scaling figure,"),
        told("restarted", int((pd.to_numeric(runs.restarts).fillna(0) > 0).sum()), "count", "Runs continued from a checkpoint"),
        told("ranks", int(runs.world_size.max()), "count", "The most ranks of a run"),
        told("nodes", int(pd.to_numeric(runs.nodes).max()), "count", "The most nodes of a run"),
        told("codes", runs.digest.nunique(), "count", "States of the code that measured the runs"),
        told("machines", runs.hardware_id.nunique(), "count", "Machines that measured the runs"),
        told("device", _list(runs.device_name), "text", "Devices of the runs"),
        told("workloads", _list(runs.workload), "text", "Workloads of the runs"),
        told("datasets", _list(runs.dataset), "text", "Data sets of the runs"),
        told("torch", _list(runs.torch), "text", "Versions of torch of the runs"),
        told("from", str(runs.started.min())[:10], "text", "Day of the first run"),
        told("until", str(runs.started.max())[:10], "text", "Day of the last run"),
        *_repeats(runs, told),
    ]  # fmt: skip
    return given + _spent(found, told)


def accuracies(table: pd.DataFrame) -> list[Value]:
    """`accuracy.2`, with what tells configurations apart; `table` as of `accuracy.final`."""
    return values(
        table, "accuracy", "accuracy", "share",
        lambda row: f"Test accuracy after {row.epochs:g} epochs, {words.ranks(row)}, {row.global_batch:g} samples a step in all: "
        f"{words.of(row)}.",
        point=["world_size"],
    )  # fmt: skip


def _repeats(runs: pd.DataFrame, told) -> list[Value]:
    each = gather(runs).repeats
    return [
        told("configurations", len(each), "count", "Different configurations"),
        told("repeats", int(each.min()), "count", "The fewest repeats of a configuration"),
        told("most-repeats", int(each.max()), "count", "The most repeats of a configuration"),
    ]


def _spent(found: Records, told) -> list[Value]:
    """What all runs together took, as far as it was recorded."""
    spent = cost.per_run(found.runs, found.epochs, {})
    sizes: Mapping[str, pd.Series] = found.runs.set_index("run_id")
    cores = sizes.world_size * pd.to_numeric(sizes.threads_per_rank)
    hours = spent.set_index("run_id").wall_seconds / 3600
    given = [
        told("wall-hours", hours.sum(), "h", "Wall time of all runs, with set-up, warm-up, evaluation and checkpoints,"),
        told("training-hours", spent.seconds.sum() / 3600, "h", "Training time alone (T) of all runs"),
        told("device-hours", spent.device_hours.sum(), "device-hours", "Device-hours of all runs"),
        told("samples", int(spent.samples.sum()), "count", "Samples trained on by all runs"),
    ]  # fmt: skip
    if spent.node_hours.notna().all():
        given.append(told("node-hours", spent.node_hours.sum(), "node-hours", "Node-hours of all runs"))
    if cores.notna().all():
        given.append(told("core-hours", (hours * cores).sum(), "core-hours", "Hours of pinned cores of all runs"))
    counted_energy = spent.energy_kwh.notna()
    given.append(told("energy-runs", int(counted_energy.sum()), "count", "Runs whose energy a counter told"))
    if counted_energy.any():
        given.append(told("energy", spent.energy_kwh.sum(), "kWh", "Energy of the runs whose devices have a counter"))
    return given


def _list(column: pd.Series) -> str:
    return ", ".join(sorted(set(column.dropna().astype(str)))) or "not known"
