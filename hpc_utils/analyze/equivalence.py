"""Whether a faster run learns as well as the plain one: shown, refuted, or not known.

That a test finds no difference shows nothing: with few repeats it finds none of any size. Two one-sided tests do
(Schuirmann 1987, J. Pharmacokinet. Biopharm. 15:657): equal within a margin, said beforehand, if the 90 % interval of the
difference lies inside it, which is wrong in at most 5 % of cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records.study import StudyIndex, Targets

from . import ladder
from .stats import CONFIDENCE

EQUAL, DIFFERS, UNKNOWN = "equal", "differs", "not enough evidence"
TWO_ONE_SIDED = 0.90  # confidence of the interval that must lie in the margin: each side may err in 5 %
COLUMNS = [
    "step",
    "measure",
    "plain",
    "changed",
    "difference",
    "low",
    "high",
    "margin",
    "repeats",
    "verdict",
    "words",
    "runs",
]


class Judged(NamedTuple):
    """Mean of paired differences with its 90 % interval, in the unit of the margin; verdict: `EQUAL` ..., `DIFFERS`, `UNKNOWN`."""

    difference: float
    low: float
    high: float
    repeats: int
    verdict: str


def judge(differences: np.ndarray, margin: float) -> Judged:
    """Two one-sided t tests of paired `differences` (changed - plain, a seed each) against -margin and margin, at 5 %.

    "differs" if the 95 % interval leaves out zero, and the difference is not shown to be within the margin; one pair
    alone is "not enough evidence".

    Raises:
        ValueError: no margin: then nothing can be shown to be equal.
    """
    if not margin > 0:
        raise ValueError(f"margin={margin:g}: a margin is positive; equal to the last bit is no statistical question")
    differences = np.asarray(differences, dtype=float)
    mean = float(differences.mean()) if len(differences) else np.nan
    if len(differences) < 2:
        return Judged(mean, np.nan, np.nan, len(differences), UNKNOWN)
    low, high = _interval(differences, TWO_ONE_SIDED)
    wide = _interval(differences, CONFIDENCE)
    verdict = DIFFERS if wide[0] > 0 or wide[1] < 0 else UNKNOWN
    if -margin < low and high < margin:
        verdict = EQUAL
    return Judged(mean, low, high, len(differences), verdict)


def table(
    runs: pd.DataFrame,
    epochs: pd.DataFrame,
    study: StudyIndex,
    targets: Targets | None = None,
    labels: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """One row a rung of `labels` ({series: step}; default: the cumulative ones) and measure, against the plain loop, paired by
    repeat (one seed each).

    Columns: step; measure ("accuracy": of the test samples, at the end, a share; "loss": of the test samples, or where
    none were evaluated of the last epoch's training, differences relative to the plain loop's); plain, changed (means);
    difference, low, high (90 % interval), margin, repeats; verdict, and in words; runs. Empty where neither was recorded.
    """
    targets, rungs = targets or study.targets, final(runs, epochs, study)
    rows, plain = [], rungs[rungs.series == study.ablation.plain].set_index("repeat")
    for series, step in (labels or {series: step for step, series in ladder.path(study)[1:]}).items():
        own = rungs[rungs.series == series].set_index("repeat")
        for measure, margin in (("accuracy", targets.accuracy_margin), ("loss", targets.loss_margin)):
            both = pd.concat({"changed": own[measure], "plain": plain[measure]}, axis=1).astype(float).dropna()
            behind = tuple(dict.fromkeys([*plain.run_id.reindex(both.index), *own.run_id.reindex(both.index)]))
            if len(both):
                differences = both.changed - both.plain
                relative = differences / both.plain if measure == "loss" else differences
                found = judge(relative.to_numpy(), margin)._asdict()
                means = {name: both[name].mean() for name in both}
                rows.append({"step": step, "measure": measure, "margin": margin, "runs": behind} | means | found)
    return pd.DataFrame([row | {"words": words(row)} for row in rows], columns=COLUMNS)


def with_best(
    runs: pd.DataFrame, epochs: pd.DataFrame, study: Mapping[str, Any], best: ladder.Best | None
) -> pd.DataFrame:
    """`table` of the cumulative rungs, and of the fastest (as of `ladder.best`) under its name."""
    found = table(runs, epochs, study)
    if best is None:
        return found
    return pd.concat([found, table(runs, epochs, study, labels={best.series: best.name})], ignore_index=True)


def final(runs: pd.DataFrame, epochs: pd.DataFrame, study: StudyIndex) -> pd.DataFrame:
    """series, repeat, accuracy and loss at the end of each of the ladder's runs; NaN: not evaluated."""
    found = ladder.rungs(runs, study)[["series", "repeat", "run_id"]]
    ordered = epochs.sort_values("epoch").groupby("run_id")
    last = ordered[["test_accuracy", "test_loss", "train_loss"]].last()
    last = last.apply(pd.to_numeric).assign(loss=lambda own: own.test_loss.fillna(own.train_loss))
    columns = last.rename(columns={"test_accuracy": "accuracy"})[["accuracy", "loss"]]
    return found.merge(columns, left_on="run_id", right_index=True, how="left")


def words(row: Mapping[str, Any]) -> str:
    """A row's verdict as people say it: `equal within 0.5 points`, `differs by -1.2 points`."""
    unit = (
        (lambda value: f"{100 * value:.2g} points")
        if row["measure"] == "accuracy"
        else (lambda value: f"{100 * value:.2g} %")
    )
    if row["verdict"] == EQUAL:
        return f"{EQUAL} within {unit(row['margin'])}"
    return f"{DIFFERS} by {unit(row['difference'])}" if row["verdict"] == DIFFERS else UNKNOWN


def _interval(differences: np.ndarray, confidence: float) -> tuple[float, float]:
    from scipy.special import stdtrit

    size = len(differences)
    half = stdtrit(size - 1, (1 + confidence) / 2) * differences.std(ddof=1) / np.sqrt(size)
    return float(differences.mean() - half), float(differences.mean() + half)
