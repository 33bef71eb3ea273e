"""A full factorial: the effect of each option on throughput, and the options that depend on each other.

Logs of throughput are split into main effects, interactions of two, the rest of three and more, the repeats (measured one
after another, so each is a block), and noise (Montgomery, Design and Analysis of Experiments, chapters 4 and 5).
Intervals are t intervals (95 %) from the noise of all points together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records.study import StudyIndex

from .points import of_one_state, unprofiled
from .stats import CONFIDENCE, TAILS, holm, t_quantile
from .targets import MET, MISSED, UNDECIDED

LEFT, BLOCKS, NOISE = "three and more", "repeats", "noise"
NO_FACTOR = ("repeat", "seed")


class Incomplete(ValueError):
    """Runs of the design were not measured."""


@dataclass(frozen=True)
class Design:
    """A study's series as a full factorial.

    Attributes:
        levels: {factor: its values in the study file's order}.
        values: one row per measured point and repeat: the factors, repeat, run_id, throughput.
        reference: the first value of each factor as planned, measured or not.
        left_out: the levels, repeats or runs that were left out, and why, a line each.
    """

    levels: dict[str, list[Any]]
    values: pd.DataFrame
    reference: dict[str, Any]
    left_out: list[str] = field(default_factory=list)


class Best(NamedTuple):
    """The fastest point against the reference: gain (a factor of throughput) with its interval, wide enough for a choice
    among all points (NaN for one repeat, and for the reference itself); verdict on the study's target, and why."""

    point: dict[str, Any]
    reference: dict[str, Any]
    gain: float
    low: float
    high: float
    verdict: str
    why: str


def design(runs: pd.DataFrame, study: StudyIndex, series: str = "") -> Design:
    """The factorial of `series` (default: the study's first): its factors are the parameters in which its runs differ.

    Raises:
        ValueError: its runs do not differ.
    """
    series = series or next((run.series for run in study.runs), "")
    planned = [run for run in study.runs if run.series == series]
    names = [name for name in (planned[0].parameters if planned else ()) if name not in NO_FACTOR]
    levels = {name: _distinct(run.parameters[name] for run in planned) for name in names}
    levels = {name: own for name, own in levels.items() if len(own) > 1}
    if not levels:
        raise ValueError(f"the runs of series {series!r} differ in no parameter: that is no factorial")
    rows = [{"run_id": r.run_id, "repeat": r.repeat} | {n: r.parameters[n] for n in levels} for r in planned]
    index = pd.DataFrame(rows).drop_duplicates("run_id")
    measured, left_out = of_one_state(unprofiled(runs[runs.run_id.isin(index.run_id)]))
    barred = [point.values for point in study.not_applicable if point.series == series]
    gone = _distinct((name, point[name]) for point in barred for name in levels if name in point)
    left_out += [f"{name}={value} is not applicable there" for name, value in gone if value not in levels[name]]
    values = index.merge(measured[["run_id", "throughput"]], on="run_id")
    return Design(levels, values, {name: own[0] for name, own in levels.items()}, left_out)


def designs(runs: pd.DataFrame, study: StudyIndex) -> dict[str, Design]:
    """Every series of a study that combines at least two parameters on one number of ranks."""
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
    """The part of a design that was measured completely.

    The level or repeat with the largest share of missing runs is omitted until none is missing: of equals a repeat, then the
    level farthest from the reference. The last two repeats are kept, unless most of one is missing. `left_out` lists them.

    Raises:
        Incomplete: no factor is left.
    """
    axes = {name: list(own) for name, own in found.levels.items()} | {"repeat": sorted(set(found.values.repeat))}
    cube, left_out = _cells(found), list(found.left_out)
    while np.isnan(cube).any():
        shares = {}
        for axis, (name, own) in enumerate(axes.items()):
            share = np.isnan(cube).mean(axis=tuple(other for other in range(cube.ndim) if other != axis))
            repeat = name == "repeat"
            shares |= {(axis, i): (one, repeat, i) for i, one in enumerate(share)
                       if not repeat or len(own) > 2 or one > 0.5}  # fmt: skip
        axis, i = max(shares, key=shares.get)
        name, own = list(axes.items())[axis]
        there = ~np.isnan(np.take(cube, i, axis))
        left_out.append(f"{name}={own.pop(i)} is left out: {there.sum()} of its {there.size} runs were measured")
        cube = np.delete(cube, i, axis)
    if not cube.size:
        raise Incomplete("nothing is complete: no run of it was measured")
    values = found.values[np.logical_and.reduce([found.values[name].isin(own) for name, own in axes.items()])]
    left_out += [
        f"{n} is no factor: {own[0]} alone is left of it"
        for n, own in axes.items()
        if len(own) == 1 and n != "repeat"
    ]
    levels = {name: own for name, own in axes.items() if len(own) > 1 and name != "repeat"}
    if not levels:
        raise Incomplete(f"no parameter has two values with all their runs: {'; '.join(left_out[:3])}")
    return replace(found, levels=levels, values=values, left_out=left_out)


def effects(found: Design) -> pd.DataFrame:
    """One row per main effect, an interaction of two, `LEFT`, `BLOCKS` and `NOISE`: the split of the sum of squares.

    Columns: effect ("bucket_mb", "bucket_mb x precision"), kind ("main", "interaction", "rest"), freedom, share (of the
    total sum of squares), p (of the F test against the noise; Holm's correction over the effects), beyond (p < 5 %).
    With one repeat there is no noise to test against: p is NaN, beyond false.

    Raises:
        Incomplete: runs were not measured; `complete` finds the part that can be analysed.
    """
    from scipy.stats import f

    cube, names = _cube(found), list(found.levels)
    pooled, repeats = cube.mean(axis=-1), cube.shape[-1]
    parts, rows = {}, []
    for size in (1, 2):
        for chosen in itertools.combinations(range(len(names)), size):
            others = tuple(axis for axis in range(pooled.ndim) if axis not in chosen)
            inside = sum(parts[one] for one in parts if set(one) < set(chosen))
            parts[chosen] = pooled.mean(axis=others, keepdims=True) - pooled.mean() - inside
            squares = (np.broadcast_to(parts[chosen], pooled.shape) ** 2).sum() * repeats
            freedom = int(np.prod([cube.shape[axis] - 1 for axis in chosen]))
            name = " x ".join(names[axis] for axis in chosen)
            rows.append((name, "main" if size == 1 else "interaction", freedom, squares))
    if len(names) > 2:
        rest, spent = pooled - pooled.mean() - sum(parts.values()), sum(row[2] for row in rows)
        rows.append((LEFT, "interaction", pooled.size - 1 - spent, (rest**2).sum() * repeats))
    noise, freedom = _noise(cube)
    blocks = (cube.mean(axis=tuple(range(cube.ndim - 1))) - cube.mean()) ** 2
    rows += [(BLOCKS, "rest", repeats - 1, blocks.sum() * pooled.size), (NOISE, "rest", freedom, noise)]
    table = pd.DataFrame(rows, columns=["effect", "kind", "freedom", "squares"])
    total = ((cube - cube.mean()) ** 2).sum()
    table["share"] = table.squares / total if total else 0.0
    table["p"] = np.nan
    if freedom and noise > 0:
        tested = table[table.kind != "rest"]
        p = f.sf(tested.squares / tested.freedom / (noise / freedom), tested.freedom, freedom)
        table.loc[tested.index, "p"] = holm(p)
    table["beyond"] = table.p < 1 - CONFIDENCE
    return table[["effect", "kind", "freedom", "share", "p", "beyond"]]


def main_effects(found: Design) -> pd.DataFrame:
    """One row per factor's level: `gain` over the factor's first level, geometric mean over all other values.

    Columns: factor, level, gain (a factor of throughput), low, high (95 %; NaN at the first level, and for one repeat).
    """
    cube, rows = _cube(found), []
    for axis, (name, levels) in enumerate(found.levels.items()):
        means = _means(cube, axis)
        half = _half(cube, 2 / (cube.size / len(levels)))
        for number, level in enumerate(levels):
            rows.append([name, level, *_gain(means[number] - means[0], half if number else np.nan)])
    return pd.DataFrame(rows, columns=["factor", "level", "gain", "low", "high"])


def interactions(found: Design) -> pd.DataFrame:
    """One row per pair of factors' levels: geometric mean of throughput over the rest, and the gain beyond the product of both.

    Columns: first, first_level, second, second_level; throughput (sample/s); gain (over both factors' first levels);
    beyond: that gain over the product of each level's own gain, from the first levels, with low and high (95 %).
    """
    cube, rows = _cube(found), []
    for (one, (first, ours)), (other, (second, theirs)) in itertools.combinations(enumerate(found.levels.items()), 2):
        means = _means(cube, one, other)
        half = _half(cube, 4 / (cube.size / means.size))
        for i, j in itertools.product(*map(range, means.shape)):
            beyond = _gain(means[i, j] - means[i, 0] - means[0, j] + means[0, 0], half if i and j else np.nan)
            speed = [np.exp(means[i, j]), np.exp(means[i, j] - means[0, 0])]
            rows.append([first, ours[i], second, theirs[j], *speed, *beyond])
    names = ["first", "first_level", "second", "second_level", "throughput", "gain", "beyond", "low", "high"]
    return pd.DataFrame(rows, columns=names)


def best_table(found: Design, target: float) -> pd.DataFrame:
    """`best` in one row, point and reference in words; also repeats, target (the required gain) and runs."""
    row = best(found, target)._asdict()
    row |= {side: ", ".join(f"{k}={v}" for k, v in row[side].items()) for side in ("point", "reference")}
    more = {"repeats": found.values.repeat.nunique(), "target": 1 + target, "runs": tuple(found.values.run_id)}
    return pd.DataFrame([row | more])


def best(found: Design, target: float) -> Best:
    """The fastest point against the reference (each factor's first level), judged by the gain `target` (0.2: 20 %).

    The runs that judge the point also chose it: so the interval holds for all points at once (Bonferroni). "missed": no
    point can reach the target by these intervals. "undecided" if the reference was left out as incomplete; the gain is
    then one over the first levels that are left.
    """
    cube = _cube(found)
    logs = cube.mean(axis=-1)
    at = np.unravel_index(int(logs.argmax()), logs.shape)
    half = _half(cube, 2 / cube.shape[-1], tests=logs.size - 1)
    point = {name: levels[number] for (name, levels), number in zip(found.levels.items(), at, strict=True)}
    reference = {name: levels[0] for name, levels in found.levels.items()}
    gain, low, high = map(float, _gain(logs[at] - logs.flat[0], half if any(at) else np.nan))
    most = float(np.exp(logs.flat[1:].max() - logs.flat[0] + half))  # of any other point
    given_up = [
        f"{name}={value}" for name, value in found.reference.items() if value not in found.values[name].tolist()
    ]
    if given_up:
        verdict, why = UNDECIDED, f"the reference ({', '.join(given_up)}) was not measured completely"
    elif np.isnan(half):
        verdict, why = UNDECIDED, "a single repeat has no interval"
    elif low >= 1 + target:
        verdict, why = MET, "the interval lies above it"
    elif most < 1 + target:
        verdict, why = MISSED, "every point's interval lies below it"
    else:
        verdict, why = UNDECIDED, "the interval contains it, more repeats narrow it"
    return Best(point, reference, gain, low, high, verdict, why)


def _cells(found: Design) -> np.ndarray:
    """Logs of throughput, an axis a factor and the last one the repeats; NaN: not measured."""
    axes = found.levels | {"repeat": sorted(set(found.values.repeat))}
    cube = np.full([len(own) for own in axes.values()], np.nan)
    order = [found.values[name].map({value: at for at, value in enumerate(own)}) for name, own in axes.items()]
    cube[tuple(own.to_numpy(dtype=int) for own in order)] = np.log(found.values.throughput.to_numpy(dtype=float))
    return cube


def _cube(found: Design) -> np.ndarray:
    cube = _cells(found)
    if missing := int(np.isnan(cube).sum()):
        raise Incomplete(f"{missing} of {cube.size} runs were not measured")
    return cube


def _means(cube: np.ndarray, *kept: int) -> np.ndarray:
    return cube.mean(axis=tuple(axis for axis in range(cube.ndim) if axis not in kept))


def _gain(log: float, half: float) -> np.ndarray:
    """(gain, low, high) of a difference of logs with half its interval."""
    return np.exp([log, log - half, log + half])


def _noise(cube: np.ndarray) -> tuple[float, int]:
    """(sum of squares, freedom) of what neither the point nor the repeat explains."""
    points = cube.mean(axis=-1, keepdims=True)
    blocks = cube.mean(axis=tuple(range(cube.ndim - 1)), keepdims=True)
    left = cube - points - blocks + cube.mean()
    return float((left**2).sum()), (points.size - 1) * (cube.shape[-1] - 1)


def _half(cube: np.ndarray, parts: float, tests: int = 1) -> float:
    """Half an interval of a contrast of means whose variance is `parts` times the noise's; NaN for one repeat."""
    noise, freedom = _noise(cube)
    if not freedom:
        return np.nan
    return float(t_quantile(freedom, 1 - TAILS[0] / max(tests, 1)) * np.sqrt(noise / freedom * parts))


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:  # values may be unhashable
            found.append(value)
    return found
