"""A full factorial: the effect of each option on throughput, and the options that depend on each other.

Logs of throughput are split into main effects, interactions of two, the rest of three and more, the repeats (measured one
after another, so each is a block), and noise (Montgomery, Design and Analysis of Experiments, chapters 4 and 5).
Intervals are t intervals (95 %) from the noise of all points together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records.study import StudyIndex

from .decide import Verdict
from .points import of_one_state, unprofiled
from .stats import CONFIDENCE, TAILS, holm, t_quantile

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

    @property
    def axes(self) -> dict[str, list[Any]]:
        """`levels`, and the repeats as the last axis."""
        return self.levels | {"repeat": sorted(set(self.values.repeat))}

    def cells(self) -> np.ndarray:
        """Logs of throughput along `axes`; NaN: not measured."""
        cube = np.full([len(own) for own in self.axes.values()], np.nan)
        at = [[own.index(value) for value in self.values[name]] for name, own in self.axes.items()]
        cube[tuple(at)] = np.log(self.values.throughput.to_numpy(dtype=float))
        return cube


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


def designs(runs: pd.DataFrame, study: StudyIndex) -> dict[str, Design]:
    """Every series of a study that combines at least two parameters on one number of ranks; a factor is a parameter in which
    the series' runs differ."""
    found = {}
    for series in _distinct(run.series for run in study.runs):
        planned = [run for run in study.runs if run.series == series]
        names = [name for name in planned[0].parameters if name not in NO_FACTOR]
        levels = {name: _distinct(run.parameters[name] for run in planned) for name in names}
        levels = {name: own for name, own in levels.items() if len(own) > 1}
        if len(levels) < 2 or len({run.ranks for run in planned}) > 1:
            continue
        rows = [{"run_id": r.run_id, "repeat": r.repeat} | {n: r.parameters[n] for n in levels} for r in planned]
        index = pd.DataFrame(rows).drop_duplicates("run_id")
        measured, left_out = of_one_state(unprofiled(runs[runs.run_id.isin(index.run_id)]))
        barred = [point.values for point in study.not_applicable if point.series == series]
        gone = _distinct((name, point[name]) for point in barred for name in levels if name in point)
        left_out += [f"{name}={value} is not applicable there" for name, value in gone if value not in levels[name]]
        values = index.merge(measured[["run_id", "throughput"]], on="run_id")
        found[series] = Design(levels, values, {name: own[0] for name, own in levels.items()}, left_out)
    return found


def complete(found: Design) -> Design:
    """The part of a design that was measured completely.

    The level or repeat with the largest share of missing runs is omitted until none is missing: of equals a repeat, then the
    level farthest from the reference. The last two repeats are kept, unless most of one is missing. `left_out` lists them.

    Raises:
        Incomplete: no factor is left.
    """
    axes = {name: list(own) for name, own in found.axes.items()}
    cube, left_out = found.cells(), list(found.left_out)
    while (missing := np.isnan(cube)).any():
        shares = []
        for axis, (name, own) in enumerate(axes.items()):
            each = np.moveaxis(missing, axis, 0).reshape(len(own), -1).mean(axis=1)
            kept = name == "repeat" and len(own) < 3
            shares += [(s, name == "repeat", i, name, axis) for i, s in enumerate(each) if not kept or s > 0.5]
        share, _, i, name, axis = max(shares, key=lambda one: one[:3])
        cells = cube.size // len(axes[name])
        measured = f"{round((1 - share) * cells)} of its {cells} runs were measured"
        left_out.append(f"{name}={axes[name].pop(i)} is left out: {measured}")
        cube = np.delete(cube, i, axis)
    if not cube.size:
        raise Incomplete("nothing is complete: no run of it was measured")
    values = found.values[np.logical_and.reduce([found.values[name].isin(own) for name, own in axes.items()])]
    levels = {name: axes[name] for name in found.levels if len(axes[name]) > 1}
    left_out += [f"{n} is no factor: {axes[n][0]} alone is left of it" for n in found.levels if n not in levels]
    if not levels:
        raise Incomplete(f"no parameter has two values with all their runs: {'; '.join(left_out[:3])}")
    return Design(levels, values, found.reference, left_out)


def effects(found: Design) -> pd.DataFrame:
    """One row per main effect, an interaction of two, `LEFT`, `BLOCKS` and `NOISE`: the split of the sum of squares.

    Columns: effect ("bucket_mb", "bucket_mb x precision"), kind ("main", "interaction", "rest"), freedom, share (of the
    total sum of squares), p (of the F test against the noise; Holm's correction over the effects), beyond (p < 5 %).
    With one repeat there is no noise to test against: p is NaN, beyond false.

    Raises:
        Incomplete: runs were not measured; `complete` finds the part that can be analysed.
    """
    from scipy.special import fdtrc  # scipy.stats.f.sf without importing scipy.stats

    cube, names, rows = _cube(found), list(found.levels), []
    rest = _effect(cube, range(len(names)), whole=True)
    for size, kind in ((1, "main"), (2, "interaction")):
        for chosen in itertools.combinations(range(len(names)), size):
            part = _effect(cube, chosen)
            rest = rest - part
            freedom = int(np.prod([cube.shape[axis] - 1 for axis in chosen]))
            squares = (part**2).sum() * cube.size / part.size
            rows.append((" x ".join(names[axis] for axis in chosen), kind, freedom, squares))
    if len(names) > 2:
        freedom = rest.size - 1 - sum(row[2] for row in rows)
        rows.append((LEFT, "interaction", freedom, (rest**2).sum() * cube.shape[-1]))
    noise, freedom = _noise(cube)
    blocks = _effect(cube, [cube.ndim - 1])
    rows += [(BLOCKS, "rest", blocks.size - 1, (blocks**2).sum() * rest.size), (NOISE, "rest", freedom, noise)]
    table = pd.DataFrame(rows, columns=["effect", "kind", "freedom", "squares"])
    total = ((cube - cube.mean()) ** 2).sum()
    table = table.assign(share=table.squares / total if total else 0.0, p=np.nan)
    if freedom and noise > 0:
        tested = table[table.kind != "rest"]
        p = fdtrc(tested.freedom, freedom, tested.squares / tested.freedom / (noise / freedom))
        table.loc[tested.index, "p"] = holm(p)
    return table.assign(beyond=table.p < 1 - CONFIDENCE).drop(columns="squares")


def main_effects(found: Design) -> pd.DataFrame:
    """One row per factor's level: `gain` over the factor's first level, geometric mean over all other values.

    Columns: factor, level, gain (a factor of throughput), low, high (95 %; NaN at the first level, and for one repeat).
    """
    cube, rows = _cube(found), []
    for axis, (name, levels) in enumerate(found.levels.items()):
        means = _means(cube, [axis]).ravel()
        half = _half(cube, 2 / (cube.size / len(levels)))
        for number, level in enumerate(levels):
            rows.append([name, level, *_gain(means[number] - means[0], half if number else np.nan)])
    return pd.DataFrame(rows, columns=["factor", "level", "gain", "low", "high"])


def interactions(found: Design) -> pd.DataFrame:
    """One row per pair of factors' levels: geometric mean of throughput over the rest, and the gain beyond the product of both.

    Columns: first, first_level, second, second_level; throughput (sample/s); beyond: the gain over both factors' first
    levels, over the product of each level's own gain, with low and high (95 %).
    """
    cube, rows = _cube(found), []
    for (one, (first, ours)), (other, (second, theirs)) in itertools.combinations(enumerate(found.levels.items()), 2):
        means = _means(cube, [one, other]).reshape(len(ours), len(theirs))
        half = _half(cube, 4 / (cube.size / means.size))
        for i, j in itertools.product(*map(range, means.shape)):
            beyond = _gain(means[i, j] - means[i, 0] - means[0, j] + means[0, 0], half if i and j else np.nan)
            rows.append([first, ours[i], second, theirs[j], np.exp(means[i, j]), *beyond])
    names = ["first", "first_level", "second", "second_level", "throughput", "beyond", "low", "high"]
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
    lost = [f"{name}={value}" for name, value in found.reference.items() if value not in found.values[name].tolist()]
    verdict, why = Verdict.UNDECIDED, "the interval contains it, more repeats narrow it"
    if lost:
        why = f"the reference ({', '.join(lost)}) was not measured completely"
    elif np.isnan(half):
        why = "a single repeat has no interval"
    elif low >= 1 + target:
        verdict, why = Verdict.MET, "the interval lies above it"
    elif most < 1 + target:
        verdict, why = Verdict.MISSED, "every point's interval lies below it"
    return Best(point, reference, gain, low, high, verdict, why)


def _cube(found: Design) -> np.ndarray:
    cube = found.cells()
    if missing := int(np.isnan(cube).sum()):
        raise Incomplete(f"{missing} of {cube.size} runs were not measured")
    return cube


def _means(cube: np.ndarray, kept: Iterable[int]) -> np.ndarray:
    """Means over all axes but those `kept`, with as many axes as `cube`."""
    return cube.mean(axis=tuple(set(range(cube.ndim)) - set(kept)), keepdims=True)


def _effect(cube: np.ndarray, axes: Iterable[int], *, whole: bool = False) -> np.ndarray:
    """What these axes do together, beyond each of them alone; `whole`: beyond the mean of all."""
    part = _means(cube, axes)
    if whole:
        return part - part.mean()
    for axis in axes:
        part = part - part.mean(axis=axis, keepdims=True)
    return part


def _noise(cube: np.ndarray) -> tuple[float, int]:
    """(sum of squares, freedom) of what neither the point nor the repeat explains."""
    points, repeats = _means(cube, range(cube.ndim - 1)), cube.shape[-1]
    left = cube - points - _effect(cube, [cube.ndim - 1])
    return float((left**2).sum()), (points.size - 1) * (repeats - 1)


def _gain(log: float, half: float) -> np.ndarray:
    """(gain, low, high) of a difference of logs with half its interval."""
    return np.exp([log, log - half, log + half])


def _half(cube: np.ndarray, parts: float, tests: int = 1) -> float:
    """Half an interval of a contrast of means whose variance is `parts` times the noise's; NaN for one repeat."""
    noise, freedom = _noise(cube)
    if not freedom:
        return np.nan
    return float(t_quantile(freedom, 1 - TAILS[0] / max(tests, 1)) * np.sqrt(noise / freedom * parts))


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Each once, in their order; they may be unhashable."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
