"""What a chapter rests on, as named values: runs, repeats, machines, and what they cost: `study.runs`, `study.core-hours`."""

from __future__ import annotations

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

    given = [
        told("runs", len(runs), "count", "Complete runs"),
        told("refused", len(found.refused), "count", "Runs refused because their records cannot be true,"),
        told("unfinished", len(found.unfinished), "count", "Runs that are not complete,"),
    ]
    if runs.empty:
        return given
    given += [
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
    """What all runs together took, as `cost.total` counts it."""
    took, each = cost.total(found.runs, found.epochs), cost.per_run(found.runs, found.epochs, {})
    given = [
        told("wall-seconds", took.hours * 3600, "s", "Wall time of all runs, with set-up, warm-up, evaluation and checkpoints,"),
        told("training-seconds", each.seconds.sum(), "s", "Training time alone (T) of all runs"),
        told("device-hours", took.device_hours, "device-hours", "Device-hours of all runs"),
        told("core-hours", took.core_hours, "core-hours", "Hours of processor cores of all runs that computed on them"),
        told("samples", int(each.samples.sum()), "count", "Samples trained on by all runs"),
        told("energy-runs", took.counted, "count", "Runs whose energy a counter told"),
    ]  # fmt: skip
    if each.node_hours.notna().all():
        given.append(told("node-hours", took.node_hours, "node-hours", "Node-hours of all runs"))
    if took.counted:
        given.append(told("energy", took.energy_kwh, "kWh", "Energy of the runs whose devices have a counter"))
    return given


def _list(column: pd.Series) -> str:
    return ", ".join(sorted(set(column.dropna().astype(str)))) or "not known"
