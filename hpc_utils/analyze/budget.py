"""Hours, node-hours and cost of a planned study, predicted before it runs, with intervals and the basis of each.

A run's time is predicted on the best basis that there is (`BASES`); its parts are training, evaluation, set-up with
warm-up, and the start of the job's processes, which is not recorded. An unknown part is a stated allowance.

Runs whose time comes from the same measurement, model or statement (above all the repeats of a configuration) err together:
their widths add up linearly. Those of different ones add up as the root of the sum of squares, each side for itself. Time
limits are bounds and add up linearly; so do the starts of the jobs, which have one allowance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils import source_code
from hpc_utils.records.identity import PLANNED, parse_settings

from . import stats
from .cost import HOUR, Billing, per_run, priced
from .model.fit import Answer
from .points import cores_per_rank, links
from .profiles.peaks import Peak

Point = Mapping[str, Any]
Predict = Callable[[Point], Answer | None]

# Best first.
BASES = {
    "measured": "complete runs of the same configuration on this hardware",
    "model": "the performance model's seconds a step",
    "scaled": "measured on this hardware at the nearest other number of devices: from perfect scaling to none",
    "stated": "throughput of one device, as given: from perfect scaling to none",
    "operations": "the model's operations over the peak rate of a like device, of which a step attains a stated share; communication takes no time",
    "time limit": "nothing is known but the job's time limit, which is counted in full",
}

# Allowances in seconds: (expected, low, high).
START = (30.0, 10.0, 120.0)  # of a job: Python, torch and libraries from a shared file system, srun, process group
SETUP = (30.0, 5.0, 180.0)  # of a run, where none was measured: data, model, first kernels chosen or compiled
# Evaluating a sample over training on it: forward alone is about a third of forward and backward (Kaplan et al. 2020,
# arXiv:2001.08361, section 2.1), and it may be anything between a fifth and the same.
EVALUATION = (1 / 3, 1 / 5, 1.0)
LAYOUT_MOST = 1.5  # times as long, for as many devices on more nodes than were measured
# Share of the peak rate that a training step attains: (expected, slowest, fastest). Convolutions of small images fill a GPU
# badly, and a plain loop waits for each image.
ATTAINED = (0.2, 0.02, 0.6)

# Equal in all runs of one configuration, planned or measured.
SAME = [*PLANNED, "link_gbit", "global_batch", "parallel", "nodes", "ranks_per_node"]
LAYOUT = ["series", "nodes", "ranks_per_node"]
SECONDS = stats.columns("seconds")
STARTS = stats.columns("start")
STEPS = stats.columns("step_seconds")
ENDS = stats.columns("hours", "node_hours", "device_hours", "cost")


def with_steps(points: Iterable[Point], runs: pd.DataFrame) -> list[dict[str, Any]]:
    """`points` with the steps of an epoch, where they are not known, of `runs` of the same workload, with the same arguments and
    global batch, on any machine.

    A script decides on its epochs itself: its steps are those of a whole run.
    """
    arguments = runs.settings.map(_arguments)
    counted = []
    for point in points:
        is_script = source_code.is_script(point["workload"])
        alike = _alike(runs[arguments == _arguments(point["settings"])], point, ["workload", "global_batch"])
        samples = alike.samples / (1 if is_script else alike.epochs)
        steps = point["steps"] or (float(samples.median()) / point["global_batch"] if len(alike) else None)
        counted.append({**point, "steps": steps} | ({"epochs": 1} if is_script else {}))
    return counted


def _arguments(settings: Any) -> str:
    return json.dumps(parse_settings(settings if isinstance(settings, str) else "").get("workload_args"))


def estimate(
    points: Sequence[Point],
    runs: pd.DataFrame,
    epochs: pd.DataFrame,
    *,
    limit: float,
    predict: Predict | None = None,
    throughput: float | None = None,
    roughly: Predict | None = None,
) -> pd.DataFrame:
    """One row per configuration of the planned `points`.

    Args:
        points: {run_id, series, repeat, and all of `SAME`; world_size, batch_per_device; test_samples of the data set
            (None where not known), steps (of an epoch; likewise), epochs, evaluations, warmup_steps}.
            link_gbit is None on one rank and without a limit; cores_per_rank 0 of whole cores and GPUs. A run
            that several series share counts with the first.
        runs, epochs: as of `records.load`.
        limit: of a job, s. predict: seconds a step of a point, or None where the model does not know it.
        throughput: samples/s of training on one device, measured elsewhere. roughly: as `predict`, used last (`from_peak_rate`).

    Columns: those of `SAME`, series, world_size; runs, repeats; seconds, seconds_low, seconds_high: of one run with its
    start; start, start_low, start_high: the start's part of it; step_seconds, step_seconds_low, step_seconds_high: of training
    alone (NaN: by the time limit); basis (of `BASES`), source: equal for rows that err
    together; note.
    """
    runs = runs.assign(link_gbit=links(runs), cores_per_rank=cores_per_rank(runs))
    measured = per_run(runs, epochs, {}).assign(train=lambda spent: spent.wall_seconds - spent.start_seconds)
    planned = pd.DataFrame(points, columns=["run_id", "series", "repeat", *SAME]).drop_duplicates("run_id")
    rows = []
    for _, members in planned.groupby(["series", *SAME], sort=False, dropna=False):
        point = points[members.index[0]]
        basis, source, step, seconds, note = _predicted(point, measured, limit, predict, throughput, roughly)
        start = np.zeros(3) if basis == "time limit" else np.array(START)
        seconds = seconds + start
        if seconds[2] > limit:
            beyond = f"may exceed the time limit of {timedelta(seconds=limit)} and go on in another job"
            note = "; ".join(filter(None, (note, beyond)))
        row = {name: point[name] for name in ["series", *SAME, "world_size"]}
        row |= {"runs": len(members), "repeats": members.repeat.nunique()}
        row |= {"basis": basis, "source": source, "note": note}
        rows.append(row | dict(zip(SECONDS + STARTS + STEPS, [*seconds, *start, *step], strict=True)))
    columns = ["series", *SAME, "world_size", "runs", "repeats", *SECONDS, *STARTS, *STEPS, "basis", "source", "note"]
    return pd.DataFrame(rows, columns=columns)


def budget_table(estimates: pd.DataFrame, prices: Mapping[str, Billing]) -> pd.DataFrame:
    """One row per series and layout of `estimate`'s frame.

    Columns: series, nodes, ranks_per_node, world_size; configurations, runs, repeats (the most of any); hours (of one
    run, the mean), node_hours, device_hours, cost (in `unit`; NaN without a price), each with <name>_low and <name>_high;
    unit, basis and note (joined by ", " and "; " where configurations differ).
    """
    columns = [*LAYOUT, "world_size", "configurations", "runs", "repeats", *ENDS, "unit", "basis", "note"]
    return grouped(estimates, LAYOUT, prices).reindex(columns=columns)


def total(estimates: pd.DataFrame, prices: Mapping[str, Billing]) -> dict[str, Any]:
    """Of all of `estimate`'s rows: runs; hours, node_hours, device_hours and cost, each with <name>_low and <name>_high;
    unit."""
    sums: dict[str, Any] = {"runs": int(estimates.runs.sum())}
    hourly = priced(estimates.assign(threads_per_rank=1), pd.Series(1.0, estimates.index), prices)
    factors = {
        "hours": 1,
        "node_hours": estimates.nodes,
        "device_hours": estimates.world_size,
        "cost": hourly.cost,
    }
    starts = estimates[STARTS].set_axis(SECONDS, axis=1)
    parts = pd.concat([estimates[SECONDS] - starts, starts])
    sources = [*estimates.source, *["start"] * len(starts)]
    for name, factor in factors.items():
        weights = estimates.runs * factor / HOUR
        by_source = parts.mul([*weights, *weights], axis=0).groupby(sources).sum()
        deviations = np.sqrt((by_source.sub(by_source.seconds, axis=0) ** 2).sum())
        value = float((estimates.seconds * weights).sum(skipna=False))
        sums |= {
            name: value,
            f"{name}_low": max(0.0, value - deviations.seconds_low),  # rounding may pass zero
            f"{name}_high": value + deviations.seconds_high,
        }
    units = set(hourly.unit[hourly.unit != ""])
    return sums | {"unit": units.pop() if len(units) == 1 else ""}


def from_peak_rate(runs: pd.DataFrame, peak: Peak) -> Predict:
    """A function of a planned point (workload, dataset, precision, batch_per_device): the time of its step on `peak`, or None
    where no run counted the model's operations, runs disagree, or the device does not have that precision.

    A guess with wide ends, which the first run replaces. `runs`: measured anywhere.
    """
    counted = runs.assign(flops_per_sample=pd.to_numeric(runs.flops_per_sample)).dropna(subset="flops_per_sample")
    operations = counted.groupby(["workload", "dataset"]).flops_per_sample.unique().to_dict()

    def predict(point: Point) -> Answer | None:
        work = operations.get((point["workload"], point["dataset"]), ())
        if len(work) != 1 or point["precision"] not in peak.flops:
            return None
        fastest = float(work[0]) * point["batch_per_device"] / peak.flops[point["precision"]]
        expected, slowest, quickest = (fastest / share for share in ATTAINED)
        return Answer(stats.Estimate(expected, quickest, slowest, 0), "")

    return predict


def grouped(estimates: pd.DataFrame, by: list[str], prices: Mapping[str, Billing]) -> pd.DataFrame:
    """`total` of the rows that are equal in `by`, with the hours of a mean run, the largest layout, bases and notes."""
    rows = []
    for key, group in estimates.groupby(by, sort=False):
        sums = total(group, prices)
        row = group[["nodes", "world_size", "repeats"]].max().to_dict() | sums | dict(zip(by, key, strict=True))
        row |= {name: sums[name] / sums["runs"] for name in ENDS[:3]}
        row |= {"configurations": len(group), "basis": ", ".join(name for name in BASES if name in set(group.basis))}
        rows.append(row | {"note": "; ".join(filter(None, dict.fromkeys(group.note)))})
    return pd.DataFrame(rows)


def _predicted(
    point: Point,
    measured: pd.DataFrame,
    limit: float,
    predict: Predict | None,
    throughput: float | None,
    roughly: Predict | None,
) -> tuple[str, str, np.ndarray, np.ndarray, str]:
    """(basis, source, seconds of a step, and of a run without the job's start, each as (expected, low, high), note) on the best basis."""
    batch = point["global_batch"]
    repeats = _alike(measured, point, SAME)
    if len(repeats):
        return (
            "measured",
            f"measured {_key(point)}",
            batch * _ends(stats.median(repeats.seconds / repeats.samples)),
            _ends(stats.median(repeats.wall_seconds)),
            f"runs: {len(repeats)}",
        )
    if point["steps"] and predict and (answer := predict(point)):
        step = _ends(answer.seconds)
        return "model", "model", step, _from_steps(point, step), answer.note
    near = _nearest(measured, point)
    if len(near):
        first = near.iloc[0]
        world = point["world_size"]
        rate = _ends(stats.median(near.train / near.samples))
        samples = point["steps"] and point["steps"] * point["epochs"] * batch
        # The time of equal work is between a proportional share and no gain; as many devices on other nodes may be slower.
        slower = np.array([1.0, 1.0, LAYOUT_MOST if first.world_size == world else 1.0])
        step = rate * batch * _between(first.world_size / world) * slower
        seconds = step / batch * (samples or near.samples.median())
        note = f"runs: {len(near)}, on {first.nodes} x {first.ranks_per_node} devices"
        return "scaled", f"scaled {_key(first)}", step, seconds + near.start_seconds.median(), note
    if point["steps"] and throughput:
        step = batch / throughput * _between(1 / point["world_size"])
        return "stated", "stated", step, _from_steps(point, step), ""
    if point["steps"] and roughly and (answer := roughly(point)):
        step = _ends(answer.seconds)
        return "operations", "operations", step, _from_steps(point, step), ""
    return "time limit", "time limit", np.full(3, np.nan), np.array([limit, 0.0, limit]), ""


def _nearest(measured: pd.DataFrame, point: Point) -> pd.DataFrame:
    """Runs of the configuration with the nearest other number of devices: with an equal global batch (strong scaling) or an
    equal batch per device (weak). One device has no link, and so stands for every rate."""
    alike = _alike(measured, point, PLANNED)
    fits = (alike.global_batch == point["global_batch"]) | (alike.batch_per_device == point["batch_per_device"])
    if point["world_size"] > 1:
        fits &= (alike.world_size == 1) | alike.index.isin(_alike(alike, point, ["link_gbit"]).index)
        fits &= alike.parallel.isin(("none", point["parallel"]))
    near = alike[fits].assign(away=lambda rows: np.log(rows.world_size / point["world_size"]).abs())
    near = near.assign(other=near.parallel != point["parallel"]).sort_values(["away", "other"])
    return _alike(near, near.iloc[0], SAME) if len(near) else near


def _alike(runs: pd.DataFrame, point: Point | pd.Series, names: Iterable[str]) -> pd.DataFrame:
    for name in names:
        absent = pd.isna(point[name]) or point[name] == ""
        runs = runs[runs[name].isna() | (runs[name] == "") if absent else runs[name] == point[name]]
    return runs


def _from_steps(point: Point, step: np.ndarray) -> np.ndarray:
    """Seconds of a run whose steps take so long: training, evaluation (if its size is known), set-up and warm-up."""
    steps = point["steps"] * point["epochs"] + point["warmup_steps"]
    evaluated = point["evaluations"] * (point["test_samples"] or 0) / point["global_batch"]
    return step * (steps + evaluated * np.array(EVALUATION)) + SETUP


def _between(factor: float) -> np.ndarray:
    """(expected, low, high) of a factor between 1 and `factor`: expected in the middle of their logs."""
    return np.array([math.sqrt(factor), min(1.0, factor), max(1.0, factor)])


def _ends(quantity: stats.Estimate) -> np.ndarray:
    """(value, low, high); a single measurement stands for its interval too."""
    return np.array(quantity[:3] if math.isfinite(quantity.low) else [quantity.value] * 3)


def _key(point: Point | pd.Series) -> str:
    return " ".join(str(point[name]) for name in SAME)
