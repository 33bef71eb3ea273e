"""A full factorial: the effect of each option on throughput, and the options that depend on each other.

Logs of throughput are split into main effects, interactions of two, the rest of three and more, the repeats (measured one
after another, so each is a block), and noise (Montgomery, Design and Analysis of Experiments, chapters 4 and 5).
Intervals are t intervals (95 %) from the noise of all points together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze.decide import Verdict, decide
from hpc_utils.analyze.points import of_one_state, unprofiled
from hpc_utils.analyze.stats import CONFIDENCE, TAILS, Estimate, columns, t_quantile
from hpc_utils.analyze.table import tabled
from hpc_utils.records.study import StudyIndex

LEFT, BLOCKS, NOISE = "three and more", "repeats", "noise"
NO_FACTOR = ("repeat", "seed")
WHY = {
    Verdict.MET: "the interval lies above it",
    Verdict.MISSED: "every point's interval lies below it",
    Verdict.UNDECIDED: "the interval contains it, more repeats narrow it",
}


@dataclass(frozen=True)
class Design:
    """A study's series as a full factorial.

    Attributes:
        levels: {factor: its values in the study file's order}.
        values: one row per measured point and repeat: the factors, repeat, run_id, throughput.
        reference: the first value of each factor as planned, measured or not.
        left_out: the levels, repeats or runs that were left out, and why, a line each. Without `levels` nothing is complete.
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
        cube = np.full([len(levels) for levels in self.axes.values()], np.nan)
        positions = [[levels.index(value) for value in self.values[name]] for name, levels in self.axes.items()]
        cube[tuple(positions)] = np.log(self.values.throughput.to_numpy(dtype=float))
        return cube


def designs(runs: pd.DataFrame, study: StudyIndex) -> dict[str, Design]:
    """The part that was measured completely of every series of a study that combines at least two parameters on one number of
    ranks; a factor is a parameter in which the series' runs differ."""
    by_series = {}
    for series in _distinct(run.series for run in study.runs):
        planned = [run for run in study.runs if run.series == series]
        parameters = [_flat(run.parameters) for run in planned]
        names = [name for name in parameters[0] if name not in NO_FACTOR]
        levels = {name: _distinct(values.get(name) for values in parameters) for name in names}
        levels = {name: factor_levels for name, factor_levels in levels.items() if len(factor_levels) > 1}
        if len(levels) < 2 or len({run.ranks for run in planned}) > 1:
            continue
        ids = ({"run_id": run.run_id, "repeat": run.repeat} for run in planned)
        rows = [values | run for values, run in zip(parameters, ids, strict=True)]
        index = pd.DataFrame(rows, dtype=object)[["run_id", "repeat", *levels]].drop_duplicates("run_id")
        measured, left_out = of_one_state(unprofiled(runs[runs.run_id.isin(index.run_id)]))
        barred = [point.values for point in study.not_applicable if point.series == series]
        gone = _distinct((name, point[name]) for point in barred for name in levels if name in point)
        left_out += [f"{name}={value} is not applicable there" for name, value in gone if value not in levels[name]]
        values = index.merge(measured[["run_id", "throughput"]], on="run_id")
        reference = {name: factor_levels[0] for name, factor_levels in levels.items()}
        by_series[series] = _complete(Design(levels, values, reference, left_out))
    return by_series


def _flat(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters, those of a user's own workload by their own names."""
    return {name: value for name, value in parameters.items() if name != "workload_args"} | (
        parameters.get("workload_args") or {}
    )


@tabled(
    "effects",
    "How much of the variance of throughput is due to what.",
    "study series effect kind share p beyond",
    measure="share",
)
def effects(design: Design) -> pd.DataFrame:
    """One row per main effect, an interaction of two, `LEFT`, `BLOCKS` and `NOISE`: the split of the sum of squares.

    Columns: effect ("bucket_mb", "bucket_mb x precision"), kind ("main", "interaction", "rest"), freedom, share (of the
    total sum of squares), p (of the F test against the noise; Holm's correction over the effects), beyond (p < 5 %).
    With one repeat there is no noise to test against: p is NaN, beyond false.
    """
    from scipy.special import fdtrc  # scipy.stats.f.sf without importing scipy.stats

    cube = design.cells()
    names = list(design.levels)
    rows = []
    for size in range(1, len(names) + 1):
        for axes in itertools.combinations(range(len(names)), size):
            effect = " x ".join(names[axis] for axis in axes) if size < 3 else LEFT
            rows.append([effect, "main" if size == 1 else "interaction", *_effect(cube, axes)])
    noise, freedom = _noise(cube)
    rows += [[BLOCKS, "rest", *_effect(cube, [cube.ndim - 1])], [NOISE, "rest", noise, freedom]]
    table = pd.DataFrame(rows, columns=["effect", "kind", "squares", "freedom"])
    table = table.groupby(["effect", "kind"], sort=False, as_index=False)[["freedom", "squares"]].sum()
    total = ((cube - cube.mean()) ** 2).sum()
    table = table.assign(share=table.squares / total if total else 0.0, p=np.nan)
    if freedom and noise > 0:
        tested = table[table.kind != "rest"]
        p = fdtrc(tested.freedom, freedom, tested.squares / tested.freedom / (noise / freedom))
        table.loc[tested.index, "p"] = _holm(p)
    return table.assign(beyond=table.p < 1 - CONFIDENCE).drop(columns="squares")


def main_effects(design: Design) -> pd.DataFrame:
    """One row per factor's level: `gain` over the factor's first level, geometric mean over all other values.

    Columns: factor, level, gain (a factor of throughput), gain_low, gain_high (95 %; NaN at the first level, and for one repeat).
    """
    cube = design.cells()
    rows = []
    for axis, (name, levels) in enumerate(design.levels.items()):
        means = _means(cube, [axis]).ravel()
        half = _half(cube, 2 / (cube.size / len(levels)))
        for number, level in enumerate(levels):
            rows.append([name, level, *_gain(means[number] - means[0], half if number else np.nan)])
    return pd.DataFrame(rows, columns=["factor", "level", *columns("gain")])


def interactions(design: Design) -> pd.DataFrame:
    """One row per pair of factors' levels: geometric mean of throughput over the rest, and the gain beyond the product of both.

    Columns: first, first_level, second, second_level; throughput (sample/s); beyond: the gain over both factors' first
    levels, over the product of each level's own gain, with beyond_low and beyond_high (95 %).
    """
    cube = design.cells()
    rows = []
    for (first_axis, first), (second_axis, second) in itertools.combinations(enumerate(design.levels), 2):
        ours = design.levels[first]
        theirs = design.levels[second]
        means = _means(cube, [first_axis, second_axis]).reshape(len(ours), len(theirs))
        half = _half(cube, 4 / (cube.size / means.size))
        for i, j in itertools.product(*map(range, means.shape)):
            beyond = _gain(means[i, j] - means[i, 0] - means[0, j] + means[0, 0], half if i and j else np.nan)
            rows.append([first, ours[i], second, theirs[j], np.exp(means[i, j]), *beyond])
    names = ["first", "first_level", "second", "second_level", "throughput", *columns("beyond")]
    return pd.DataFrame(rows, columns=names)


@tabled(
    "best-points",
    "The fastest point of a factorial over its reference; the 95 % intervals of all points hold simultaneously (Bonferroni), as the same runs chose the point.",
    measure="gain",
)
def best(design: Design, target: float) -> pd.DataFrame:
    """The fastest point against the reference (each factor's first level), judged by the gain `target` (0.2: 20 %), in one row.

    The runs that judge the point also chose it: so the interval holds for all points at once (Bonferroni). "missed": no
    point can reach the target by these intervals. "undecided" if the reference was left out as incomplete; the gain is
    then one over the first levels that are left.

    Columns: point, reference (in words); gain (a factor of throughput) with its interval (NaN for one repeat, and for the reference
    itself); verdict, why; repeats; target (the required gain); runs.
    """
    cube = design.cells()
    repeats = cube.shape[-1]
    logs = cube.mean(axis=-1).ravel()
    logs = logs - logs[0]
    place = int(logs.argmax())
    half = _half(cube, 2 / repeats, tests=logs.size - 1)
    gain = _gain(logs[place], half if place else np.nan)
    every_point = Estimate(gain[0], *np.exp([logs[place] - half, logs[1:].max() + half]), repeats)
    verdict = decide(every_point, at_least=1 + target)
    why = WHY[verdict]
    lost = {name: value for name, value in design.reference.items() if value not in design.values[name].tolist()}
    if lost:
        verdict, why = Verdict.UNDECIDED, f"the reference ({_words(lost)}) was not measured completely"
    elif np.isnan(half):
        why = "a single repeat has no interval"
    points = itertools.product(*design.levels.values())
    points = [_words(dict(zip(design.levels, values, strict=True))) for values in points]
    row = {"point": points[place], "reference": points[0]} | dict(zip(columns("gain"), gain, strict=True))
    row |= {"verdict": verdict, "why": why, "repeats": repeats, "target": 1 + target}
    return pd.DataFrame([row | {"runs": tuple(design.values.run_id)}])


def _complete(design: Design) -> Design:
    """The part of a design that was measured completely.

    The level or repeat with the largest share of missing runs is omitted until none is missing: of equals a repeat, then the
    level farthest from the reference. The last two repeats are kept, unless most of one is missing. `left_out` lists them.
    """
    axes = design.axes
    cube = design.cells()
    grid = pd.DataFrame(np.argwhere(np.ones(cube.shape)), columns=[*axes]).assign(missing=np.isnan(cube).ravel())
    left_out = list(design.left_out)
    while grid.missing.any():
        is_short = grid.repeat.nunique() < 3
        shares = [
            (share, name == "repeat", number, name)
            for name in axes
            for number, share in grid.groupby(name).missing.mean().items()
            if share > 0.5 or not (name == "repeat" and is_short)
        ]
        _, _, number, name = max(shares, key=lambda candidate: candidate[:3])
        cells = grid[grid[name] == number]
        measured = f"{(~cells.missing).sum()} of its {len(cells)} runs were measured"
        left_out.append(f"{name}={axes[name][number]} is left out: {measured}")
        grid = grid.drop(cells.index)
    axes = {name: [axis_levels[number] for number in sorted(set(grid[name]))] for name, axis_levels in axes.items()}
    in_axes = [design.values[name].isin(axis_levels) for name, axis_levels in axes.items()]
    values = design.values[np.logical_and.reduce(in_axes)]
    levels = {name: axes[name] for name in design.levels if len(axes[name]) > 1}
    left_out += [
        f"{name} is no factor: {axes[name][0]} alone is left of it" for name in design.levels if len(axes[name]) == 1
    ]
    if not levels:
        left_out.insert(0, "no parameter has two values with all their runs")
    return Design(levels, values, design.reference, left_out)


def _means(cube: np.ndarray, axes: Iterable[int]) -> np.ndarray:
    """Means along `axes`, over all other axes, with as many axes as `cube`."""
    return cube.mean(axis=tuple(set(range(cube.ndim)) - set(axes)), keepdims=True)


def _effect(cube: np.ndarray, axes: Iterable[int]) -> tuple[float, int]:
    """(sum of squares, freedom) of the joint effect of `axes` without that of fewer of them."""
    part = _means(cube, axes)
    for axis in axes:
        part = part - part.mean(axis=axis, keepdims=True)
    return (part**2).sum() * cube.size / part.size, math.prod(part.shape[axis] - 1 for axis in axes)


def _noise(cube: np.ndarray) -> tuple[float, int]:
    """(sum of squares, freedom) of what neither the point nor the repeat explains."""
    return _effect(cube.reshape(-1, cube.shape[-1]), [0, 1])


def _holm(p: np.ndarray) -> np.ndarray:
    """p values after Holm's step-down correction (1979, Scand. J. Stat. 6:65)."""
    order = np.argsort(p)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]), 1)
    return corrected


def _gain(log: float, half: float) -> np.ndarray:
    """(gain, low, high) of a difference of logs with half its interval."""
    return np.exp([log, log - half, log + half])


def _half(cube: np.ndarray, parts: float, tests: int = 1) -> float:
    """Half an interval of a contrast of means whose variance is `parts` times the noise's; NaN for one repeat."""
    noise, freedom = _noise(cube)
    if not freedom:
        return np.nan
    return float(t_quantile(freedom, 1 - TAILS[0] / max(tests, 1)) * np.sqrt(noise / freedom * parts))


def _words(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items())


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Each once, in their order; they may be unhashable."""
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct
