"""Whether a repeated run gives the same numbers: agree, differ, or inconclusive.

Computed numbers must be equal; times must be shown to be equal within a tolerance that was stated beforehand. Finding no
difference shows nothing (see `ablation`): times agree if the whole 95 % interval of their ratio is within the tolerance,
differ if it is outside, and are inconclusive otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records.study import Targets

from . import stats
from .points import POINT, SAME, STATE, memory_bytes, number, oversubscribed

AGREE, DIFFER, UNKNOWN, NOT_JUDGED = "agree", "differ", "inconclusive", "not judged"
TOLERANCE = 0.1  # of times and memory: within a factor of 1.1, either way
NAN = float("nan")
# The configuration of a run, without the software and machine that measured it.
KIND = [name for name in [*SAME, *POINT] if name not in STATE]


class Side(NamedTuple):
    """Runs and their epochs, as of `records.load`."""

    runs: pd.DataFrame
    epochs: pd.DataFrame

    @classmethod
    def of(cls, runs: pd.DataFrame, epochs: pd.DataFrame) -> Side:
        """`runs` with those of `epochs` that are theirs."""
        return cls(runs, epochs[epochs.run_id.isin(runs.run_id)])


class Judgement(NamedTuple):
    """One quantity then and now.

    Attributes:
        quantity, unit: what is compared. then, now: medians, or of a loss the last epoch's; NaN: not recorded.
        ratio, low, high: now / then with its 95 % interval; NaN where none is formed.
        then_runs, now_runs: how many runs are behind them. verdict: AGREE, DIFFER, UNKNOWN or NOT_JUDGED. why: in words.
    """

    quantity: str
    unit: str
    then: float
    now: float
    ratio: float
    low: float
    high: float
    then_runs: int
    now_runs: int
    verdict: str
    why: str


def alike(runs: pd.DataFrame, run: pd.Series, *, one_state: bool) -> pd.DataFrame:
    """The rows of `runs` with the configuration of `run`, any seed and repeat; with `one_state` also with its torch and machine."""
    both = pd.concat([run.to_frame().T, runs]).assign(link_gbit=lambda rows: pd.to_numeric(rows.link_gbit))
    numbers = number(both.astype(object), [*KIND, "profile", *(STATE if one_state else ())])
    return runs[numbers[1:] == numbers[0]]


def compare(
    chosen: str, then: Side, now: Side, *, tolerance: float = TOLERANCE, margins: Targets | None = None
) -> list[Judgement]:
    """Each quantity of the run `chosen`, judged.

    Counts must be equal. Losses and accuracies (of runs with the run's own seed) must be bit-equal in every epoch, or
    differ by no more than another seed does, or than `margins` allow. Times and memory are judged by their interval, if
    hardware and software let them agree.

    Args:
        then: `chosen` and its repeats. now: the repeated runs.
        tolerance: 0.1 is within a factor of 1.1, either way. margins: by default as of `Targets`.

    Raises:
        ValueError: no run was repeated, or the tolerance is not positive.
    """
    if now.runs.empty:
        raise ValueError("there is no run to compare with")
    if not is_tolerance(tolerance):
        raise ValueError(f"tolerance={tolerance:g}: a tolerance is a positive number")
    run = then.runs[then.runs.run_id == chosen].iloc[0]
    return [
        *_counts(run, then, now),
        *_learning(run, then, now, margins or Targets()),
        *_speed(run, then, now, tolerance),
        _memory(run, then, now, tolerance),
    ]


def is_tolerance(tolerance: object) -> bool:
    """Whether times can be judged by it: a positive, finite number."""
    return isinstance(tolerance, int | float) and 0 < tolerance < float("inf")


def overall(judgements: Sequence[Judgement]) -> str:
    """DIFFER if any quantity does; UNKNOWN if any is inconclusive; else AGREE."""
    verdicts = {one.verdict for one in judgements}
    return next((verdict for verdict in (DIFFER, UNKNOWN) if verdict in verdicts), AGREE)


def within(estimate: stats.Estimate, tolerance: float) -> tuple[str, str]:
    """(verdict, why) of a ratio that should be 1 within a factor of 1 + `tolerance`, either way."""
    asked = f"within {100 * tolerance:.2g}% is asked"
    if not np.isfinite(estimate.low):
        return UNKNOWN, f"single runs have no interval; {asked}"
    least, most = 1 / (1 + tolerance), 1 + tolerance
    if least <= estimate.low and estimate.high <= most:
        return AGREE, asked
    if estimate.high < least or estimate.low > most:
        return DIFFER, asked
    return UNKNOWN, f"interval too wide; {asked}"


def _counts(run: pd.Series, then: Side, now: Side) -> Iterator[Judgement]:
    for name, unit in (("samples", "sample"), ("steps", "step")):
        old = _by_epoch(then.epochs, run.run_id, name)
        new = [_by_epoch(now.epochs, one, name) for one in now.runs.run_id]
        equal = all(one.equals(old) for one in new)
        why = f"in each of {_count(len(old), 'epoch')}" if equal else "they must be equal in each epoch"
        yield _exact(name, unit, old.sum(), np.median([one.sum() for one in new]), len(new), equal, why)
    if pd.notna(run.parameters):
        found = pd.to_numeric(now.runs.parameters)
        equal = bool((found == run.parameters).all())
        why = "" if equal else "it is another model"
        yield _exact("parameters", "", run.parameters, found.median(), len(found), equal, why)


def _exact(name: str, unit: str, old: float, new: float, runs: int, equal: bool, why: str) -> Judgement:
    return Judgement(name, unit, float(old), float(new), NAN, NAN, NAN, 1, runs, AGREE if equal else DIFFER, why)


def _learning(run: pd.Series, then: Side, now: Side, margins: Targets) -> Iterator[Judgement]:
    """One for each metric that the run recorded: those of training and test, a workload's own too."""
    own, seeds = now.runs[now.runs.seed == run.seed].run_id, then.runs.drop_duplicates("seed").run_id
    for name in (column for column in then.epochs if column.startswith(("train_", "test_"))):
        old = _by_epoch(then.epochs, run.run_id, name)
        if old.empty:
            continue
        new = [_by_epoch(now.epochs, one, name) for one in own]
        verdict, why = UNKNOWN, f"no run was made again with its seed, {run.seed}"
        if new:
            others = pd.DataFrame({one: _by_epoch(then.epochs, one, name) for one in seeds})
            margin = margins.accuracy_margin if name.endswith("accuracy") else margins.loss_margin * old.abs()
            verdict, why = _learned(old, new, others, margin)
        last = float(np.median([one.iloc[-1] for one in new if len(one)] or [NAN]))
        yield Judgement(name, "", float(old.iloc[-1]), last, NAN, NAN, NAN, 1, len(new), verdict, why)


def _learned(old: pd.Series, new: list[pd.Series], seeds: pd.DataFrame, margin: float | pd.Series) -> tuple[str, str]:
    """(verdict, why); `seeds`: the metric by epoch (rows), one column per seed of the former runs."""
    if any(not one.index.equals(old.index) for one in new):
        return DIFFER, "it was recorded in other epochs"
    if all(one.equals(old) for one in new):
        return AGREE, f"bit-equal in {_count(len(old), 'epoch')} of {_count(len(new), 'run')}"
    apart = pd.concat([(one - old).abs() for one in new], axis=1).max(axis=1)
    spread = (seeds.max(axis=1) - seeds.min(axis=1)).reindex(old.index).fillna(0)
    allowed = np.maximum(spread, margin)
    epoch = (apart - allowed).idxmax()
    bound = "another seed makes" if spread[epoch] >= allowed[epoch] else "the margin is"
    why = f"not bit-equal; by {apart[epoch]:.2g} in epoch {epoch}, {bound} {allowed[epoch]:.2g}"
    return (AGREE if (apart <= allowed).all() else DIFFER), why


def _speed(run: pd.Series, then: Side, now: Side, tolerance: float) -> Iterator[Judgement]:
    reasons = [*_other(run, now.runs, "hardware_id", "hardware")]
    if pd.notna(run.profile):
        reasons.append(f"it ran with a profiler ({run.profile})")
    if run.restarts or now.runs.restarts.fillna(0).any():
        reasons.append("a run was continued from a checkpoint")
    if (oversubscribed(now.runs) != bool(run.oversubscribed)).any():
        reasons.append("there were more ranks than cores, but not both times")
    for name, unit in (("throughput", "sample/s"), ("step_p50", "s")):
        yield _ratio(name, unit, then.runs[name], now.runs[name], tolerance, "; ".join(reasons))


def _memory(run: pd.Series, then: Side, now: Side, tolerance: float) -> Judgement:
    why = "; ".join([*_other(run, now.runs, "hardware_id", "hardware"), *_other(run, now.runs, "torch", "torch")])
    old, new = memory_bytes(then.runs), memory_bytes(now.runs)
    if set(old["of"]) != set(new["of"]):
        why = "resident memory of a process is not memory of an accelerator"
    return _ratio(f"peak {old['of'][0]} memory", "B", old["peak"], new["peak"], tolerance, why)


def _ratio(name: str, unit: str, then: Sequence, now: Sequence, tolerance: float, why: str) -> Judgement:
    """`why`: why these are not expected to agree; then their ratio is shown and not judged."""
    old, new = (pd.to_numeric(pd.Series(list(side))).dropna().astype(float).to_numpy() for side in (then, now))
    middle = [float(np.median(side)) if len(side) else NAN for side in (old, new)]
    if not len(old) or not len(new):
        why = f"it was not recorded {'now' if len(old) else 'then' if len(new) else 'either time'}"
        return Judgement(name, unit, *middle, NAN, NAN, NAN, len(old), len(new), NOT_JUDGED, why)
    found = stats.ratio_or_one(new, old)
    verdict, reason = (NOT_JUDGED, why) if why else within(found, tolerance)
    if not why and np.isfinite(found.low) and 1 in (len(old), len(new)):
        reason += f"; one run {'then' if len(old) == 1 else 'now'}, with the spread of the others"
    return Judgement(name, unit, *middle, *found[:3], len(old), len(new), verdict, reason)


def _other(run: pd.Series, now: pd.DataFrame, name: str, called: str) -> Iterator[str]:
    others = sorted({str(value) for value in now[name]} - {str(run[name])})
    if others:
        yield f"other {called}: {run[name]} then, {', '.join(others)} now"


def _by_epoch(epochs: pd.DataFrame, run: str, name: str) -> pd.Series:
    """A run's `name` by epoch, where it was recorded."""
    own = epochs[epochs.run_id == run].set_index("epoch").get(name, pd.Series(dtype=float))
    return pd.to_numeric(own).dropna().astype(float).sort_index()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
