"""A full factorial: which knob moves the throughput by how much, and which knobs depend on each other.

Logs of throughput are split into the knobs' main effects, the interactions of two, what is left of three and more, the
repeats (measured one after another, so each is a block), and noise (Montgomery, Design and Analysis of Experiments,
chapters 4 and 5). Intervals are t intervals (95 %) from the noise of all points together.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records.study import StudyIndex

from .points import of_one_state, unprofiled
from .stats import CONFIDENCE
from .targets import MET, MISSED, UNDECIDED

LEFT, BLOCKS, NOISE = "three and more", "repeats", "noise"
NO_FACTOR = ("repeat", "seed")


class Incomplete(ValueError):
    """Points of the design were not measured; the message names them."""


@dataclass(frozen=True)
class Design:
    """A study's series as a full factorial.

    Attributes:
        levels: {factor: its values in the study file's order}.
        values: one row a measured point and repeat: the factors, repeat, run_id, throughput.
        reference: the first value of each factor as planned, whether it was measured or not.
        left_out: why levels, repeats or runs are not there, a line each.
    """

    levels: dict[str, list[Any]]
    values: pd.DataFrame
    reference: dict[str, Any]
    left_out: list[str] = field(default_factory=list)


class Best(NamedTuple):
    """The fastest point against the reference: gain (a factor of throughput) with its interval, wide enough for having
    been chosen among all (NaN of one repeat, and of the reference itself); verdict on the study's target, and why."""

    point: dict[str, Any]
    reference: dict[str, Any]
    gain: float
    low: float
    high: float
    verdict: str
    why: str


def design(runs: pd.DataFrame, study: StudyIndex, series: str = "") -> Design:
    """The factorial that `series` (default: the study's first) was planned as: the knobs that its runs differ in.

    Raises:
        ValueError: its runs differ in nothing.
    """
    series = series or next((run.series for run in study.runs), "")
    planned = [run for run in study.runs if run.series == series]
    barred = [point.values for point in study.not_applicable if point.series == series]
    names = [name for name in (planned[0].parameters if planned else ()) if name not in NO_FACTOR]
    levels = {name: _distinct(run.parameters[name] for run in planned) for name in names}
    levels = {name: own for name, own in levels.items() if len(own) > 1}
    if not levels:
        raise ValueError(f"the runs of series {series!r} differ in nothing: that is no factorial")
    index = pd.DataFrame(
        [{"run_id": run.run_id, "repeat": run.repeat} | {name: run.parameters[name] for name in levels}
         for run in planned]
    ).drop_duplicates("run_id")  # fmt: skip
    measured, left_out = of_one_state(unprofiled(runs[runs.run_id.isin(index.run_id)]))
    gone = _distinct((name, point[name]) for point in barred for name in levels if name in point)
    left_out += [f"{name}={value} is not applicable there" for name, value in gone if value not in levels[name]]
    values = index.merge(measured[["run_id", "throughput"]], on="run_id")
    return Design(levels, values, {name: own[0] for name, own in levels.items()}, left_out)


def designs(runs: pd.DataFrame, study: StudyIndex) -> dict[str, Design]:
    """Every series of a study that combines at least two knobs on one number of ranks."""
    found = {}
    for series in _distinct(run.series for run in study.runs):
        ranks = {run.ranks for run in study.runs if run.series == series}
        try:
            own = design(runs, study, series)
        except ValueError:  # one configuration
            continue
        if len(ranks) == 1 and len(own.levels) > 1:
            found[series] = own
    return found


def complete(found: Design) -> Design:
    """The part of a design that was measured completely, in every repeat: that which keeps most runs, with two repeats if any
    has so many.

    Tried are all repeats, all but the one that lacks most points, and so on; of each what is left without the levels that
    have most gaps. `left_out` says what went, and names points that are missing.

    Raises:
        Incomplete: nothing is left.
    """
    counts = found.values.groupby("repeat").size().sort_values(ascending=False, kind="stable")
    kept, refusal = [], None
    for many in range(len(counts), 0, -1):
        try:
            kept.append(_without_gaps(_only(found, counts, many)))
        except Incomplete as why:
            refusal = refusal or why
    if not kept:
        raise refusal or Incomplete("nothing is complete: no run of it was measured")
    return max(kept, key=_worth)


def _worth(found: Design) -> tuple[bool, int, int]:
    """Two repeats come first, then runs, then points: the design as it was planned."""
    repeats = found.values.repeat.nunique()
    return repeats > 1, len(found.values), -repeats


def _only(found: Design, counts: pd.Series, many: int) -> Design:
    """The `many` repeats with most points; `counts`: points of each repeat, falling."""
    points = int(np.prod([len(own) for own in found.levels.values()]))
    lines = [
        f"repeat {repeat} is left out: {count} of its {points} points were measured"
        for repeat, count in counts[many:].items()
    ]
    values = found.values[found.values.repeat.isin(counts.index[:many])]
    return replace(found, values=values, left_out=[*found.left_out, *lines])


def _without_gaps(found: Design) -> Design:
    """Without the levels that have most gaps, one after another; `Incomplete` if no factor is left."""
    levels, left_out = {name: list(own) for name, own in found.levels.items()}, list(found.left_out)
    values = found.values
    while gaps := _gaps(replace(found, levels=levels, values=values)):
        lacking = {(name, value): sum(gap[name] == value for gap in gaps) * len(own)
                   for name, own in levels.items() for value in own}  # fmt: skip
        # The level of whose points most are missing; of equals the one farthest from the reference.
        name, value = max(lacking, key=lambda one: (lacking[one], levels[one[0]].index(one[1])))
        levels[name].remove(value)
        if not levels[name]:
            raise Incomplete(f"nothing is complete: {_named(gaps)}")
        values = values[values[name] != value]
        left_out.append(f"{name}={value} is left out: {_named([gap for gap in gaps if gap[name] == value])}")
    for name, own in list(levels.items()):
        if len(own) == 1:
            left_out.append(f"{name} is no factor: {own[0]} alone is left of it")
            del levels[name]
    if not levels:
        raise Incomplete(f"no knob has two values with all their points: {_named(_gaps(found))}")
    return replace(found, levels=levels, values=values, left_out=left_out)


def effects(found: Design) -> pd.DataFrame:
    """One row a main effect, an interaction of two, `LEFT`, `BLOCKS` and `NOISE`: the split of the sum of squares.

    Columns: effect ("bucket_mb", "bucket_mb x precision"), kind ("main", "interaction", "rest"), freedom, share (of the
    total sum of squares), p (of the F test against the noise; Holm's correction over the effects), beyond (p < 5 %).
    With one repeat there is no noise to test against: p is NaN, beyond false.

    Raises:
        Incomplete: points were not measured; `complete` finds what can be analysed.
    """
    from scipy.stats import f

    cube, names = _cube(found), list(found.levels)
    total = ((cube - cube.mean()) ** 2).sum()
    pooled = cube.mean(axis=-1)
    repeats = cube.shape[-1]
    parts, rows = {}, []
    for size in (1, 2):
        for chosen in itertools.combinations(range(len(names)), size):
            inside = [parts[one] for one in parts if set(one) < set(chosen)]
            parts[chosen] = _over(pooled, chosen) - pooled.mean() - sum(inside)
            freedom = int(np.prod([cube.shape[axis] - 1 for axis in chosen]))
            squares = float((np.broadcast_to(parts[chosen], pooled.shape) ** 2).sum() * repeats)
            kind = "main" if size == 1 else "interaction"
            rows.append(_row(" x ".join(names[axis] for axis in chosen), kind, freedom, squares))
    rest = pooled - pooled.mean() - sum(parts.values())
    spent = sum(row["freedom"] for row in rows)
    if len(names) > 2:
        rows.append(_row(LEFT, "interaction", pooled.size - 1 - spent, float((rest**2).sum() * repeats)))
    noise, freedom = _noise(cube)
    blocks = (cube.mean(axis=tuple(range(cube.ndim - 1))) - cube.mean()) ** 2
    rows += [
        _row(BLOCKS, "rest", repeats - 1, float(blocks.sum() * pooled.size)),
        _row(NOISE, "rest", freedom, noise),
    ]
    table = pd.DataFrame(rows)
    table["share"] = table.squares / total if total else 0.0
    tested = table.kind != "rest"
    table["p"] = np.nan
    if freedom and noise > 0:
        ratio = table.squares[tested] / table.freedom[tested] / (noise / freedom)
        table.loc[tested, "p"] = _holm(f.sf(ratio, table.freedom[tested], freedom))
    table["beyond"] = table.p < 1 - CONFIDENCE
    return table[["effect", "kind", "freedom", "share", "p", "beyond"]]


def main_effects(found: Design) -> pd.DataFrame:
    """One row a factor's level: `gain` over the factor's first level, geometric mean over all other knobs' values.

    Columns: factor, level, gain (a factor of throughput), low, high (95 %; NaN at the first level, and of one repeat).
    """
    cube, rows = _cube(found), []
    for axis, (name, levels) in enumerate(found.levels.items()):
        means = cube.mean(axis=tuple(other for other in range(cube.ndim) if other != axis))
        half = _half(cube, 2 / (cube.size / len(levels)))
        for number, level in enumerate(levels):
            log = means[number] - means[0]
            ends = np.exp([log - half, log + half]) if number else (np.nan, np.nan)
            rows.append({"factor": name, "level": level, "gain": np.exp(log), "low": ends[0], "high": ends[1]})
    return pd.DataFrame(rows)


def interactions(found: Design) -> pd.DataFrame:
    """One row a pair of factors' levels: geometric mean of throughput over the rest, and how far from the product of both.

    Columns: first, first_level, second, second_level; throughput (sample/s); gain (over both factors' first levels);
    beyond: that gain over the product of what each level gives alone, from the first levels, with low and high (95 %).
    """
    cube, rows, names = _cube(found), [], list(found.levels)
    for one, other in itertools.combinations(range(len(names)), 2):
        means = cube.mean(axis=tuple(axis for axis in range(cube.ndim) if axis not in (one, other)))
        half = _half(cube, 4 / (cube.size / means.size))
        for i, j in itertools.product(*map(range, means.shape)):
            log = means[i, j] - means[i, 0] - means[0, j] + means[0, 0]
            ends = np.exp([log - half, log + half]) if i and j else (np.nan, np.nan)
            rows.append(
                {
                    "first": names[one], "first_level": found.levels[names[one]][i],
                    "second": names[other], "second_level": found.levels[names[other]][j],
                    "throughput": np.exp(means[i, j]), "gain": np.exp(means[i, j] - means[0, 0]),
                    "beyond": np.exp(log), "low": ends[0], "high": ends[1],
                }
            )  # fmt: skip
    names = ["first", "first_level", "second", "second_level", "throughput", "gain", "beyond", "low", "high"]
    return pd.DataFrame(rows, columns=names)


def best_table(found: Design, target: float) -> pd.DataFrame:
    """`best` in one row: point and reference in words, gain, low, high, repeats, verdict, why, target (the gain it asks for), runs."""
    chosen = best(found, target)
    point, reference = (", ".join(f"{k}={v}" for k, v in own.items()) for own in (chosen.point, chosen.reference))
    row = {"point": point, "reference": reference, "gain": chosen.gain, "low": chosen.low, "high": chosen.high}
    row |= {
        "repeats": found.values.repeat.nunique(),
        "verdict": chosen.verdict,
        "why": chosen.why,
        "target": 1 + target,
    }
    return pd.DataFrame([row | {"runs": tuple(found.values.run_id)}])


def best(found: Design, target: float) -> Best:
    """The fastest point against the reference (each factor's first level), and whether that gains `target` (0.2: 20 %).

    It is chosen among all by the runs that judge it: so the interval holds for all points at once (Bonferroni). "missed" is
    said where no point can reach the target by these intervals. If the reference was left out as incomplete, the target is
    undecided, and the gain one over the first levels that are left.
    """
    cube = _cube(found)
    logs = cube.mean(axis=-1)
    at = np.unravel_index(int(logs.argmax()), logs.shape)
    log = float(logs[at] - logs.flat[0])
    half = _half(cube, 2 / cube.shape[-1], tests=logs.size - 1)
    point = {name: levels[number] for (name, levels), number in zip(found.levels.items(), at, strict=True)}
    reference = {name: levels[0] for name, levels in found.levels.items()}
    low, high = (float(np.exp(log + side * half)) if any(at) else np.nan for side in (-1, 1))
    most = float(np.exp(logs.flat[1:].max() - logs.flat[0] + half))  # of any other point
    given_up = {name: value for name, value in found.reference.items() if value not in found.values[name].tolist()}
    if given_up:
        named = ", ".join(f"{name}={value}" for name, value in given_up.items())
        verdict, why = UNDECIDED, f"the reference ({named}) was not measured completely"
    elif np.isnan(half):
        verdict, why = UNDECIDED, "a single repeat: nobody knows how sure that is"
    elif low >= 1 + target:
        verdict, why = MET, "the interval lies above it"
    elif most < 1 + target:
        verdict, why = MISSED, "every point's interval lies below it"
    else:
        verdict, why = UNDECIDED, "the interval straddles it, more repeats narrow it"
    return Best(point, reference, float(np.exp(log)), low, high, verdict, why)


# -- the cube of logs -------------------------------------------------------------------------------------------


def _cube(found: Design) -> np.ndarray:
    """Logs of throughput, an axis a factor and the last one the repeats; `Incomplete` names what is missing."""
    if gaps := _gaps(found):
        raise Incomplete(f"not measured: {_named(gaps)}")
    order = [
        found.values[name].map({value: at for at, value in enumerate(own)}) for name, own in found.levels.items()
    ]
    repeats = sorted(set(found.values.repeat))
    order.append(found.values.repeat.map({repeat: at for at, repeat in enumerate(repeats)}))
    cube = np.full([*map(len, found.levels.values()), len(repeats)], np.nan)
    cube[tuple(own.to_numpy(dtype=int) for own in order)] = np.log(found.values.throughput.to_numpy(dtype=float))
    return cube


def _gaps(found: Design) -> list[dict[str, Any]]:
    """The points that some repeat lacks, or all do."""
    names, repeats = list(found.levels), set(found.values.repeat)
    each = found.values.groupby(names).repeat.agg(set).to_dict() if len(found.values) else {}
    points = itertools.product(*found.levels.values())
    lacking = [
        point for point in points if each.get(point if len(names) > 1 else point[0], set()) != (repeats or {1})
    ]
    return [dict(zip(names, point, strict=True)) for point in lacking]


def _over(pooled: np.ndarray, chosen: tuple[int, ...]) -> np.ndarray:
    """Means over all axes but `chosen`, those kept as 1."""
    return pooled.mean(axis=tuple(axis for axis in range(pooled.ndim) if axis not in chosen), keepdims=True)


def _noise(cube: np.ndarray) -> tuple[float, int]:
    """(sum of squares, freedom) of what neither the point nor the repeat explains."""
    points = cube.mean(axis=-1, keepdims=True)
    blocks = cube.mean(axis=tuple(range(cube.ndim - 1)), keepdims=True)
    left = cube - points - blocks + cube.mean()
    return float((left**2).sum()), (points.size - 1) * (cube.shape[-1] - 1)


def _half(cube: np.ndarray, parts: float, tests: int = 1) -> float:
    """Half an interval of a contrast of means whose variance is `parts` times the noise's; NaN of one repeat."""
    from scipy.special import stdtrit

    noise, freedom = _noise(cube)
    if not freedom:
        return np.nan
    return float(stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2 / max(tests, 1)) * np.sqrt(noise / freedom * parts))


def _holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down correction (1979, Scand. J. Stat. 6:65)."""
    order = np.argsort(p)
    raised = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    found = np.empty_like(p)
    found[order] = np.minimum(raised, 1)
    return found


def _row(effect: str, kind: str, freedom: int, squares: float) -> dict[str, Any]:
    return {"effect": effect, "kind": kind, "freedom": freedom, "squares": squares}


def _distinct(values: Any) -> list[Any]:
    found = []
    return [found.append(value) or value for value in values if value not in found]


def _named(points: list[dict[str, Any]]) -> str:
    """The first few points in words."""
    told = [", ".join(f"{name}={value}" for name, value in point.items()) for point in points[:3]]
    return "; ".join(told) + (f" and {len(points) - 3} more" if len(points) > 3 else "")
