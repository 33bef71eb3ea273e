"""What a study will take before anything of it runs: hours, node-hours and cost, with the interval and where it comes from.

A run's time is predicted on the best basis that there is (`BASES`); its parts are training, evaluation, set-up with
warm-up, and the start of the job's processes, which no record holds. What is not known of a part is a stated allowance.

Intervals add up by what they have in common. Runs whose time comes from the same measurement, model or statement (the
repeats of a configuration above all) err together: their widths add up linearly. What comes from different ones errs
independently: the widths add up as the root of the sum of squares, each side for itself. Time limits are bounds and no
measurements: they add up linearly; so does the start of the jobs, whose allowance is one for all. Hence a total is
narrower than the sum of its rows' ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from hpc_utils.records.identity import PLANNED

from . import stats
from .cost import HOUR, KEYS, NAN, Billing, per_run
from .model.fit import Answer
from .points import cores_per_rank, links

Point = Mapping[str, Any]
Part = tuple[float, ...]  # seconds: (expected, low, high)
Predict = Callable[[Point], Answer | None]

# Best first.
BASES = {
    "measured": "complete runs of the same configuration on this hardware",
    "model": "the performance model's seconds a step",
    "scaled": "measured on this hardware at the nearest other number of devices: from perfect scaling to none",
    "stated": "seconds an epoch on one device, as given: from perfect scaling to none",
    "operations": "the model's operations over the peak rate of a like device, of which a step attains a stated share",
    "time limit": "nothing is known but the job's time limit, which is counted in full",
}

# Allowances in seconds: (expected, low, high).
START = (30.0, 10.0, 120.0)  # of a job: Python, torch and libraries from a shared file system, srun, process group
SETUP = (30.0, 5.0, 180.0)  # of a run, where none was measured: data, model, first kernels chosen or compiled
# Evaluating a sample over training on it: forward alone is about a third of forward and backward (Kaplan et al. 2020,
# arXiv:2001.08361, section 2.1), and it may be anything between a fifth and the same.
EVALUATION = (1 / 3, 1 / 5, 1.0)
LAYOUT_MOST = 1.5  # times as long, for as many devices on more nodes than were measured

# What tells one configuration from another, among the points of a study and the runs that were measured.
SAME = [*PLANNED, "link_gbit", "global_batch", "parallel", "nodes", "ranks_per_node"]
LAYOUT = ["series", "nodes", "ranks_per_node"]
SECONDS = ["seconds", "seconds_low", "seconds_high"]
STARTS = ["start", "start_low", "start_high"]
QUANTITIES = ["hours", "node_hours", "device_hours", "cost"]


def estimate(
    points: Sequence[Point],
    runs: pd.DataFrame,
    epochs: pd.DataFrame,
    *,
    limit: float,
    predict: Predict | None = None,
    seconds_per_epoch: float | None = None,
    roughly: Predict | None = None,
) -> pd.DataFrame:
    """One row a configuration of the planned `points`, whose repeats have one prediction.

    Args:
        points: {run_id, series, repeat, and all of `SAME`; world_size, batch_per_device; train_samples and test_samples
            of the data set (None where not known), steps (of an epoch; likewise), epochs, evaluations, warmup_steps}.
            link_gbit is None on one rank and where links are as they are; cores_per_rank 0 of whole cores and GPUs. A run
            that several series share counts with the first.
        runs, epochs: as of `records.load`.
        limit: of a job, s. predict: seconds a step of a point, or None where the model does not know it.
        seconds_per_epoch: of one pass over the data set on one device, measured elsewhere. roughly: as `predict`, asked last
            (`peak_rate.predictor`).

    Columns: those of `SAME`, series, world_size; runs, repeats; seconds, seconds_low, seconds_high: of one run, start and
    all; start, start_low, start_high: the start's part of it; basis (of `BASES`), source: what it comes from, alike for
    those that err together; note: what to know of it.
    """
    known = _measured(runs, epochs)
    shared = {one["run_id"]: one for one in reversed(points)}  # the first of those alike stays
    configurations: dict[tuple, list[Point]] = {}
    for one in points:
        configurations.setdefault((one["series"], *(one[name] for name in SAME)), []).append(one)
    rows = []
    for members in configurations.values():
        point = members[0]
        own = [one for one in members if shared[one["run_id"]]["series"] == point["series"]]
        if not own:
            continue
        basis, source, seconds, notes = _predicted(point, known, predict, seconds_per_epoch, roughly)
        start = START
        if basis == "time limit":
            seconds, start = (limit, 0.0, limit), (0.0, 0.0, 0.0)
        seconds = _plus(seconds, start)
        if seconds[2] > limit:
            notes.append(f"may exceed the time limit of {limit / HOUR:g} h and go on in another job")
        rows.append(
            {name: point[name] for name in ["series", *SAME, "world_size"]}
            | {"runs": len(own), "repeats": len({one["repeat"] for one in own})}
            | dict(zip(SECONDS + STARTS, seconds + start, strict=True))
            | {"basis": basis, "source": source, "note": "; ".join(notes)}
        )
    columns = ["series", *SAME, "world_size", "runs", "repeats", *SECONDS, *STARTS, "basis", "source", "note"]
    return pd.DataFrame(rows, columns=columns)


def table(estimates: pd.DataFrame, prices: Mapping[str, Billing]) -> pd.DataFrame:
    """One row a series and layout of `estimate`'s frame.

    Columns: series, nodes, ranks_per_node, world_size; configurations, runs, repeats (the most of any); hours (of one
    run, the mean), node_hours, device_hours, cost (in `unit`; NaN without a price), each with <name>_low and <name>_high;
    unit, basis and note (joined by ", " and "; " where configurations differ).
    """
    rows = []
    for key, own in estimates.groupby(LAYOUT, sort=False):
        row = dict(zip(LAYOUT, key, strict=True)) | {"world_size": int(own.world_size.iloc[0])}
        row |= {"configurations": len(own), "runs": int(own.runs.sum()), "repeats": int(own.repeats.max())}
        sums = total(own, prices)
        row |= {f"hours{end}": sums[f"hours{end}"] / row["runs"] for end in ("", "_low", "_high")}
        row |= {name: value for name, value in sums.items() if not name.startswith(("hours", "runs"))}
        row |= {"basis": ", ".join(name for name in BASES if name in set(own.basis))}
        rows.append(row | {"note": "; ".join(dict.fromkeys(note for note in own.note if note))})
    ends = [f"{name}{end}" for name in QUANTITIES for end in ("", "_low", "_high")]
    columns = [*LAYOUT, "world_size", "configurations", "runs", "repeats", *ends, "unit", "basis", "note"]
    return pd.DataFrame(rows, columns=columns)


def total(estimates: pd.DataFrame, prices: Mapping[str, Billing]) -> dict[str, Any]:
    """Of all of `estimate`'s rows: runs; hours, node_hours, device_hours and cost, each with <name>_low and <name>_high;
    unit. The interval as the module says."""
    found: dict[str, Any] = {"runs": int(estimates.runs.sum())}
    weights = {
        "hours": estimates.runs,
        "node_hours": estimates.runs * estimates.nodes,
        "device_hours": estimates.runs * estimates.world_size,
        "cost": estimates.runs * _hourly(estimates, prices),
    }
    for name, weight in weights.items():
        found |= _sum(estimates, weight / HOUR, name)
    units = {prices[hardware].unit for hardware in estimates.hardware_id if hardware in prices}
    return found | {"unit": units.pop() if len(units) == 1 else ""}


def _sum(estimates: pd.DataFrame, weight: pd.Series, name: str) -> dict[str, float]:
    start = estimates[STARTS].mul(weight, axis=0).set_axis(SECONDS, axis=1)
    rest = estimates[SECONDS].mul(weight, axis=0) - start
    parts = pd.concat([rest.groupby(estimates.source).sum(), start.sum().to_frame().T])
    value = float((estimates.seconds * weight).sum(skipna=False))
    below, above = parts.seconds - parts.seconds_low, parts.seconds_high - parts.seconds
    low, high = (math.sqrt(float((side**2).sum())) for side in (below, above))
    return {name: value, f"{name}_low": value - low, f"{name}_high": value + high}


def _hourly(estimates: pd.DataFrame, prices: Mapping[str, Billing]) -> pd.Series:
    """What each row's layout costs for an hour."""
    costs = [
        prices[row.hardware_id].cost(row.nodes, row.ranks_per_node, 1.0) if row.hardware_id in prices else NAN
        for row in estimates.itertuples()
    ]
    return pd.Series(costs, estimates.index, dtype=float)


def _measured(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """The runs that a prediction may rest on: `KEYS` and the parts of their time in s: train, beside (evaluation and
    checkpoints), setup; and samples."""
    runs = runs.assign(link_gbit=links(runs), cores_per_rank=cores_per_rank(runs))
    spent = per_run(runs, epochs[epochs.run_id.isin(runs.run_id)], {}).set_index("run_id")
    start = runs[["setup_seconds", "warmup_seconds"]].apply(pd.to_numeric).fillna(0).sum(axis=1)
    found = runs[[*KEYS, "cores_per_rank", "run_id"]].set_index("run_id").assign(setup=start.set_axis(runs.run_id))
    found = found.join(spent[["samples", "seconds", "wall_seconds"]]).rename(columns={"seconds": "train"})
    return found.assign(beside=found.wall_seconds - found.train - found.setup)


def _predicted(
    point: Point,
    known: pd.DataFrame,
    predict: Predict | None,
    seconds_per_epoch: float | None,
    roughly: Predict | None,
) -> tuple[str, str, Part, list[str]]:
    """(basis, source, seconds of a run without the job's start, notes) on the best basis."""
    same = _alike(known, point, SAME)
    if len(same):
        whole = stats.median((same.train + same.beside + same.setup).tolist())
        notes = [f"from {_count(same)}" + ("" if len(same) > 1 else ", so without an interval of its own")]
        return "measured", f"measured {_key(point)}", _ends(whole), notes
    model = predict(point) if predict else None
    if model is not None and point["steps"]:
        seconds, notes = _from_steps(point, _ends(model.seconds))
        return "model", "model", seconds, [*notes, *([model.note] if model.note else [])]
    near = _nearest(known, point)
    if len(near):
        first = near.iloc[0]
        # Of equal work: a device's share of it either shrinks in proportion, or not at all.
        shrinks = _between(1.0, first.world_size / point["world_size"])
        rate = _ends(stats.median(((near.train + near.beside) / near.samples).tolist()))
        samples = _samples(point) or near.samples.median()
        # As many devices on another number of nodes: nobody measured how much slower links between nodes are.
        slower = (1.0, 1.0, LAYOUT_MOST if first.world_size == point["world_size"] else 1.0)
        training = tuple(
            one * samples * factor * more for one, factor, more in zip(rate, shrinks, slower, strict=True)
        )
        seconds = _plus(training, (near.setup.median(),) * 3)
        notes = [f"from {_count(near)} on {first.nodes} x {first.ranks_per_node} devices"]
        return "scaled", f"scaled {_key(first)}", seconds, notes
    if seconds_per_epoch and point["train_samples"] and point["steps"]:
        step = seconds_per_epoch / point["train_samples"] * point["global_batch"]
        shrinks = _between(1.0, 1 / point["world_size"])
        return "stated", "stated", *_from_steps(point, tuple(step * factor for factor in shrinks))
    rough = roughly(point) if roughly else None
    if rough is not None and point["steps"]:
        seconds, notes = _from_steps(point, _ends(rough.seconds))
        return "operations", "operations", seconds, notes
    notes = [] if point["steps"] else ["how many samples its data has is not known here"]
    return "time limit", "time limit", (NAN, NAN, NAN), notes


def _nearest(known: pd.DataFrame, point: Point) -> pd.DataFrame:
    """Runs of one configuration that differs in the number of devices only, the nearest; strong scaling keeps the global
    batch, weak scaling a device's, both the way in which several share a model. One device needs no link: it stands for
    every rate, and any rate for it."""
    alike = _alike(known, point, PLANNED)
    if point["world_size"] > 1:
        alike = alike[(alike.world_size == 1) | alike.index.isin(_alike(alike, point, ["link_gbit"]).index)]
        alike = alike[alike.parallel.isin(("none", point["parallel"]))]
    kept = (alike.global_batch == point["global_batch"]) | (alike.batch_per_device == point["batch_per_device"])
    near = alike[kept]
    away = (near.world_size / point["world_size"]).map(lambda ratio: abs(math.log(ratio)))
    near = near[away == away.min()]
    grouped = near[near.parallel == point["parallel"]]  # on one device there may be both
    chosen = near if grouped.empty else grouped
    return _alike(chosen, chosen.iloc[0], SAME) if len(chosen) else chosen


def _count(runs: pd.DataFrame) -> str:
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}"


def _key(one: Point | pd.Series) -> str:
    return " ".join(str(one[name]) for name in SAME)


def _alike(known: pd.DataFrame, point: Point, names: Iterable[str]) -> pd.DataFrame:
    chosen = known
    for name in names:
        absent = point[name] is None or point[name] == "" or point[name] != point[name]
        chosen = chosen[chosen[name].isna() | (chosen[name] == "") if absent else chosen[name] == point[name]]
    return chosen


def _from_steps(point: Point, step: Part) -> tuple[Part, list[str]]:
    """(seconds of a run whose steps take so long, notes): training, evaluation, set-up and warm-up."""
    steps = point["steps"] * point["epochs"] + point["warmup_steps"]
    evaluated = point["evaluations"] * (point["test_samples"] or 0) / point["global_batch"]
    parts = tuple(one * (steps + evaluated * factor) for one, factor in zip(step, EVALUATION, strict=True))
    unknown = point["evaluations"] and point["test_samples"] is None
    return _plus(parts, SETUP), ["without evaluation, whose size is not known here"] if unknown else []


def _samples(point: Point) -> float | None:
    return point["steps"] and point["steps"] * point["epochs"] * point["global_batch"]


def _between(first: float, second: float) -> Part:
    """(expected, low, high) of something between two factors, nobody knows where: expected in the middle of their logs."""
    return math.sqrt(first * second), min(first, second), max(first, second)


def _ends(one: stats.Estimate) -> Part:
    """(value, low, high); a single measurement stands for its interval too."""
    return (one.value, one.low, one.high) if math.isfinite(one.low) else (one.value, one.value, one.value)


def _plus(*parts: Part) -> Part:
    """The parts of one run err together, as far as anybody knows: their ends add up."""
    value, low, high = (sum(side) for side in zip(*parts, strict=True))
    return value, low, high
