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

from hpc_utils.analyze import stats
from hpc_utils.analyze.decide import Verdict, decide
from hpc_utils.analyze.points import POINT, SAME, STATE, barred, memory, number
from hpc_utils.records.study import Targets

AGREE, DIFFER, UNKNOWN, NOT_JUDGED = "agree", "differ", "inconclusive", "not judged"
TOLERANCE = 0.1  # of times and memory: within a factor of 1.1, either way
NAN = float("nan")
# The configuration of a run, without the software and machine that measured it.
KIND = [name for name in [*SAME, *POINT] if name not in STATE]
COUNTS = {"samples": "sample", "steps": "step"}  # columns of epochs with their units


class Side(NamedTuple):
    """Runs and their epochs, as of `records.load`."""

    runs: pd.DataFrame
    epochs: pd.DataFrame

    @classmethod
    def of(cls, runs: pd.DataFrame, epochs: pd.DataFrame) -> Side:
        """`runs` with those of `epochs` that are theirs."""
        return cls(runs, epochs[epochs.run_id.isin(runs.run_id)])

    def by_epoch(self, name: str, runs: Sequence[str]) -> list[pd.Series]:
        """The column `name` of each of these runs by epoch, where it was recorded."""
        recorded = self.epochs.assign(value=pd.to_numeric(self.epochs.get(name))).dropna(subset="value")
        return [recorded[recorded.run_id == run].set_index("epoch").value.astype(float).sort_index() for run in runs]


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
    candidates = pd.concat([run.to_frame().T, runs]).assign(link_gbit=lambda rows: pd.to_numeric(rows.link_gbit))
    numbers = number(candidates.astype(object), [*KIND, "profile", *(STATE if one_state else ())])
    return runs[numbers[1:] == numbers[0]]


def compare(
    chosen: str, then: Side, now: Side, *, tolerance: float = TOLERANCE, margins: Targets | None = None
) -> list[Judgement]:
    """Each quantity of the run `chosen`, judged.

    Counts must be equal. Losses and accuracies (of runs with the run's own seed) must be bit-equal in every epoch, or
    differ by no more than another seed does, or than `margins` allow. Times and memory are judged by their interval, if
    hardware and software let them agree.

    Args:
        then: `chosen` and its repeats. now: the repeated runs, at least one.
        tolerance: 0.1 is within a factor of 1.1, either way. margins: by default as of `Targets`.
    """
    run = then.runs[then.runs.run_id == chosen].iloc[0]
    return [*_computed(run, then, now, margins or Targets()), *_measured(run, then, now, tolerance)]


def overall(judgements: Sequence[Judgement]) -> str:
    """DIFFER if any quantity does; UNKNOWN if any is inconclusive; else AGREE."""
    verdicts = {judgement.verdict for judgement in judgements}
    return next((verdict for verdict in (DIFFER, UNKNOWN) if verdict in verdicts), AGREE)


def within(estimate: stats.Estimate, tolerance: float) -> tuple[str, str]:
    """(verdict, why) of a ratio that should be 1 within a factor of 1 + `tolerance`, either way."""
    demand = f"within {100 * tolerance:.2g}% is asked"
    if not np.isfinite(estimate.low):
        return UNKNOWN, f"single runs have no interval; {demand}"
    verdict = decide(estimate, at_least=1 / (1 + tolerance), at_most=1 + tolerance)
    if verdict == Verdict.UNDECIDED:
        return UNKNOWN, f"interval too wide; {demand}"
    return AGREE if verdict == Verdict.MET else DIFFER, demand


def _computed(run: pd.Series, then: Side, now: Side, margins: Targets) -> Iterator[Judgement]:
    """Counts, and each metric that the run recorded: those of training and test, a workload's own too."""
    same_seed = now.runs[now.runs.seed == run.seed].run_id
    seeds = then.runs.drop_duplicates("seed").run_id
    metrics = [name for name in then.epochs if name.startswith(("train_", "test_"))]
    for name in [*COUNTS, *metrics]:
        (old,) = then.by_epoch(name, [run.run_id])
        if old.empty:
            continue
        count = name in COUNTS
        new = now.by_epoch(name, now.runs.run_id if count else same_seed)
        allowed = 0 * old
        if not count:
            by_seed = pd.concat(then.by_epoch(name, seeds), axis=1).reindex(old.index)
            margin = margins.accuracy_margin if name.endswith("accuracy") else margins.loss_margin * old.abs()
            allowed = np.fmax(by_seed.max(axis=1) - by_seed.min(axis=1), margin)
        recorded = [old, *(values for values in new if len(values))]
        ends = [float(values.sum() if count else values.iloc[-1]) for values in recorded]
        median = float(np.median(ends[1:] or NAN))
        verdict, why = _equal(old, new, allowed)
        yield Judgement(name, COUNTS.get(name, ""), ends[0], median, NAN, NAN, NAN, 1, len(new), verdict, why)


def _equal(old: pd.Series, new: Sequence[pd.Series], allowed: pd.Series) -> tuple[str, str]:
    """(verdict, why) of values by epoch that may differ by `allowed`."""
    if not new:
        return UNKNOWN, "no run was made again with its seed"
    if any(not values.index.equals(old.index) for values in new):
        return DIFFER, "it was recorded in other epochs"
    if all(values.equals(old) for values in new):
        return AGREE, "bit-equal in each epoch"
    apart = pd.concat([(values - old).abs() for values in new], axis=1).max(axis=1)
    epoch = (apart - allowed).idxmax()
    why = f"not bit-equal; by {apart[epoch]:.2g} in epoch {epoch}, where {allowed[epoch]:.2g} is allowed"
    return (AGREE if (apart <= allowed).all() else DIFFER), why


def _measured(run: pd.Series, then: Side, now: Side, tolerance: float) -> Iterator[Judgement]:
    """Times and memory; what is not expected to agree is shown and not judged."""
    hardware = _other(run, now.runs, "hardware_id")
    time_reasons = {
        f"it ran with a profiler ({run.profile})": pd.notna(run.profile),
        "a run was continued from a checkpoint": run.restarts or now.runs.restarts.fillna(0).any(),
        "there were more ranks than cores, or a shared machine, but not both times":
            (barred(now.runs) != barred(pd.DataFrame([run]))).any(),
    }  # fmt: skip
    times = "; ".join([*hardware, *(reason for reason, holds in time_reasons.items() if holds)])
    yield _ratio("throughput", "sample/s", then.runs.throughput, now.runs.throughput, tolerance, times)
    yield _ratio("step_p50", "s", then.runs.step_p50, now.runs.step_p50, tolerance, times)
    old = memory(then.runs)
    new = memory(now.runs)
    why = "; ".join([*hardware, *_other(run, now.runs, "torch")])
    if set(old.memory) != set(new.memory):
        why = "resident memory of a process is not memory of an accelerator"
    yield _ratio(f"peak {old.memory.iloc[0]} memory", "B", old.peak_bytes, new.peak_bytes, tolerance, why)


def _ratio(name: str, unit: str, then: pd.Series, now: pd.Series, tolerance: float, why: str) -> Judgement:
    """`why`: why these are not expected to agree, if they are not."""
    old = pd.to_numeric(then).dropna().astype(float)
    new = pd.to_numeric(now).dropna().astype(float)
    estimate = stats.UNKNOWN
    verdict = NOT_JUDGED
    if old.empty or new.empty:
        why = "not recorded on both sides"
    else:
        estimate = _ratio_or_one(new.tolist(), old.tolist())
        if not why:
            verdict, why = within(estimate, tolerance)
            if verdict != UNKNOWN and estimate.repeats == 1:
                why += "; a single run is taken to vary as the others do"
    return Judgement(name, unit, old.median(), new.median(), *estimate[:3], len(old), len(new), verdict, why)


def _ratio_or_one(new: Sequence[float], old: Sequence[float]) -> stats.Estimate:
    """`stats.ratio`, but a single run on one side is assumed to vary as the repeats on the other side do.

    The interval is then the t interval of the difference of mean logs with a common variance.
    """
    estimate = stats.ratio(new, old)
    several = max(new, old, key=len)
    if estimate.repeats > 1 or len(several) < 2:
        return estimate
    half = stats.t_quantile(len(several) - 1) * np.log(several).std(ddof=1) * np.sqrt(1 + 1 / len(several))
    low, high = estimate.value * np.exp(half * stats.SIDES)
    return estimate._replace(low=low, high=high)


def _other(run: pd.Series, now: pd.DataFrame, name: str) -> list[str]:
    new_values = sorted({str(value) for value in now[name]} - {str(run[name])})
    return [f"other {name}: {run[name]} then, {', '.join(new_values)} now"] if new_values else []
