"""A ladder's gains: what each change gives alone, after the ones before it, and all together; and what it costs.

Every gain is the ratio of two runs of the same repeat and seed. `hpc study run` measures a repeat's runs one soon after the
other: what slows the machine for a while, slows both. On a cluster each run may be its own array task, beside the other or
on another node: then only the seed is shared, and what differs between nodes is in the interval. That (95 %) is
`stats.median`'s over these ratios, each by itself: of twenty intervals one may miss by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records.study import AblationIndex, StudyIndex

from . import stats
from .model.step import PHASES
from .points import memory_bytes, of_one_state, step_seconds, unprofiled

FASTER, SLOWER, NOISE, SINGLE = "faster", "slower", "not told from noise", "a single run"
GAINS = ["alone", "marginal", "together"]
COSTS = ["memory", "warmup"]
BEHIND = [f"{name}_runs" for name in GAINS]  # ids of the runs behind each gain
SPEED = ["throughput", "low", "high", "repeats"]
SEVERAL = [f"{name}{end}" for name in GAINS for end in ("", "_low", "_high", "_verdict")]
COLUMNS = [
    "step",
    "about",
    "parameters",
    "why",
    "before",
    *SEVERAL,
    "repeats",
    *COSTS,
    *BEHIND,
]


class Best(NamedTuple):
    """The fastest rung: its series, its name ("up to NAME", "NAME alone") and steps, its throughput over the plain loop's, and
    the ids of the runs behind that."""

    series: str
    name: str
    steps: tuple[str, ...]
    gain: stats.Estimate
    runs: tuple[str, ...] = ()


def rungs(runs: pd.DataFrame, study: StudyIndex) -> pd.DataFrame:
    """One row a rung and repeat, of a study's ladder: a run may be several rungs, if they are one configuration.

    Columns: `series` (plain, alone-NAME, upto-NAME) in front of those of `runs`, and memory_bytes (of tensors on the
    accelerator where there is one, else resident). Without the runs that a profiler watched, and those that `left_out`
    names.
    """
    ladder = study.ablation
    names = [
        ladder.plain,
        *(getattr(step, kind) for kind in ("alone", "upto") for step in ladder.steps if getattr(step, kind)),
    ]
    order = {name: number for number, name in enumerate(names)}
    index = [(run.series, run.run_id) for run in study.runs if run.series in order]
    found = pd.DataFrame(index, columns=["series", "run_id"]).merge(_measured(runs, study)[0], on="run_id")
    found["memory_bytes"] = memory_bytes(found)["peak"]
    return found.sort_values(["series", "repeat"], key=lambda own: own.map(order) if own.name == "series" else own)


def left_out(runs: pd.DataFrame, study: StudyIndex) -> list[str]:
    """What `rungs` leaves out because other code, another torch or another machine measured it, in a line; or nothing."""
    return _measured(runs, study)[1]


def path(study: StudyIndex) -> list[tuple[str, str]]:
    """(step, series) of the cumulative rungs, the plain loop in front: without the steps that the place cannot run."""
    ladder = study.ablation
    return [
        (ladder.plain, ladder.plain),
        *((one.name, one.upto) for one in ladder.steps if one.upto),
    ]


def paired(table: pd.DataFrame, series: str, against: str, column: str = "throughput") -> np.ndarray:
    """Ratio of `column` in each repeat that both rungs have, in the order of repeats; empty if there is none."""
    sides = [table[table.series == one].set_index("repeat")[column].astype(float) for one in (series, against)]
    return (sides[0] / sides[1]).dropna().sort_index().to_numpy()


def behind(table: pd.DataFrame, series: str, against: str) -> tuple[str, ...]:
    """Ids of the runs that `paired` compares."""
    own, other = (table[table.series == one] for one in (series, against))
    both = set(own.repeat) & set(other.repeat)
    return tuple(dict.fromkeys([*other.run_id[other.repeat.isin(both)], *own.run_id[own.repeat.isin(both)]]))


def gain(table: pd.DataFrame, series: str, against: str, column: str = "throughput") -> stats.Estimate:
    """Median of `paired` with its 95 % interval: t on the logs up to 5 repeats, from 6 on a bootstrap; NaN without a pair."""
    ratios = paired(table, series, against, column)
    return stats.median(ratios) if len(ratios) else stats.Estimate(np.nan, np.nan, np.nan, 0)


def verdict(low: float, high: float) -> str:
    """What a factor's 95 % interval tells: `FASTER`, `SLOWER`, `NOISE` (1 is in it), or of a single run nothing (`SINGLE`)."""
    if np.isnan(low):
        return SINGLE
    return FASTER if low > 1 else SLOWER if high < 1 else NOISE


def gains(runs: pd.DataFrame, study: StudyIndex) -> pd.DataFrame:
    """One row a step, in the ladder's order.

    Columns: step, about, parameters; why (it cannot be run there, or ""); before (the nearest rung below that was
    measured, by its step); its gain `alone` over the plain loop, `marginal` over the rung before, and of all up to it
    `together`, factors of throughput, each with `_low`, `_high` and `_verdict`; repeats (pairs behind `together`); what it costs in
    the cumulative order: memory (factor of the peak of the rung before), warmup (s more than that before the clock starts,
    compilation included); <gain>_runs (ids). NaN: not measured.
    """
    table, ladder = rungs(runs, study), study.ablation
    rows, below, before = [], ladder.plain, ladder.plain
    for step in ladder.steps:
        row = {name: getattr(step, name) for name in ("about", "parameters", "why")}
        row |= {"step": step.name, "before": before, "repeats": 0}
        pairs = {"alone": (step.alone, ladder.plain)}
        if step.upto:
            pairs |= {"marginal": (step.upto, below), "together": (step.upto, ladder.plain)}
            row["repeats"] = len(paired(table, *pairs["together"]))
            row["memory"] = gain(table, step.upto, below, "memory_bytes").value
            row["warmup"] = _median(table, step.upto, "warmup_seconds") - _median(table, below, "warmup_seconds")
            if (table.series == step.upto).any():
                below, before = step.upto, step.name
        for name, pair in pairs.items():
            found = gain(table, *pair)
            row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            row[f"{name}_verdict"] = verdict(found.low, found.high) if found.repeats else None
            row[f"{name}_runs"] = behind(table, *pair)
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def best(runs: pd.DataFrame, study: StudyIndex) -> Best | None:
    """The rung of the highest median gain, the plain loop among them; None if that was not measured.

    It is the best of several by the same runs that say how good it is: its gain is a little flattered.
    """
    table, ladder = rungs(runs, study), study.ablation
    made = [(ladder.plain, "plain loop", ())]
    for kind, name in (("upto", "up to {}"), ("alone", "{} alone")):
        for step in ladder.steps:
            if getattr(step, kind):
                steps = _up_to(ladder, step.name) if kind == "upto" else (step.name,)
                made.append((getattr(step, kind), name.format(step.name), steps))
    found = [Best(*rung, *(of(table, rung[0], ladder.plain) for of in (gain, behind))) for rung in made]
    measured = [one for one in found if one.gain.repeats]
    return max(measured, key=lambda one: one.gain.value) if measured else None


def best_table(found: Best, learnt: pd.DataFrame) -> pd.DataFrame:
    """`best` in one row: name, steps; gain, low, high, repeats, verdict; of accuracy and loss, where `learnt` (the rung's rows of
    `equivalence.table`) has them, `<measure>_verdict` and `<measure>` in words; runs."""
    row = {
        "name": found.name,
        "steps": " + ".join(found.steps) or "none",
        "gain": found.gain.value,
        "low": found.gain.low,
    }
    row |= {
        "high": found.gain.high,
        "repeats": found.gain.repeats,
        "verdict": verdict(*found.gain[1:3]),
        "runs": found.runs,
    }
    for one in learnt.to_dict("records"):
        row |= {f"{one['measure']}_verdict": one["verdict"], one["measure"]: one["words"]}
    return pd.DataFrame([row])


def speeds(runs: pd.DataFrame, study: StudyIndex, labels: Mapping[str, str] | None = None) -> pd.DataFrame:
    """One row a rung of `labels` ({series: label}; default: the cumulative ones, by their step): label, series; throughput
    (sample/s), low, high (95 %), repeats; step_ms, warmup (s) and memory_bytes, medians; runs."""
    table, rows = rungs(runs, study), []
    for series, label in (labels or {series: step for step, series in path(study)}).items():
        own = table[table.series == series]
        if own.empty:
            continue
        row = {"label": label, "series": series, "step_ms": 1e3 * step_seconds(own).median()}
        row |= dict(zip(SPEED, stats.median(own.throughput.tolist()), strict=True))
        rows.append(
            row
            | {"warmup": _median(table, series, "warmup_seconds"), "memory_bytes": own.memory_bytes.median()}
            | {"runs": tuple(own.run_id)}
        )
    return pd.DataFrame(rows, columns=["label", "series", *SPEED, "step_ms", "warmup", "memory_bytes", "runs"])


def profile(runs: pd.DataFrame, epochs: pd.DataFrame, study: StudyIndex) -> pd.DataFrame:
    """Where a mean step's time goes on each cumulative rung: step, then ms of `PHASES`, medians over the repeats; runs.

    Each epoch's mean step is split as its sampled steps are, the epochs weighted by their steps. An epoch's first step is
    always sampled: what it alone does (a loader that starts) weighs too much in the split, but not in the sum.
    """
    table, rows = rungs(runs, study), []
    for step, series in path(study):
        own = epochs[epochs.run_id.isin(table.run_id[table.series == series])]
        sampled = own[[f"{name}_seconds" for name in PHASES]].astype(float)
        whole = (own.step_mean.astype(float) / sampled.sum(axis=1)).where(sampled.notna().all(axis=1), 1.0)
        weighted = sampled.mul(own.steps * whole, axis=0)
        each = weighted.groupby(own.run_id).sum(min_count=1).div(own.groupby("run_id").steps.sum(), axis=0)
        if len(each):
            phases = {name: 1e3 * each[f"{name}_seconds"].median() for name in PHASES}
            rows.append({"step": step} | phases | {"runs": tuple(each.index)})
    return pd.DataFrame(rows, columns=["step", *PHASES, "runs"])


def learning(runs: pd.DataFrame, epochs: pd.DataFrame, study: StudyIndex, labels: Mapping[str, str]) -> pd.DataFrame:
    """What the rungs in `labels` ({series: label}) have learnt by when: label, run_id, epoch, seconds (T so far), loss (of
    the test samples; where they were never evaluated, while training), accuracy (of the test samples)."""
    table = rungs(runs, study)
    joined = table.loc[table.series.isin(labels), ["series", "run_id"]].merge(epochs, on="run_id")
    joined = joined.sort_values(
        ["series", "run_id", "epoch"], key=lambda own: own.map(list(labels).index) if own.name == "series" else own
    )
    tested = pd.to_numeric(joined.test_loss)
    return pd.DataFrame(
        {
            "label": joined.series.map(labels),
            "run_id": joined.run_id,
            "epoch": joined.epoch,
            "seconds": joined.groupby(["series", "run_id"]).seconds.cumsum(),
            "loss": tested if tested.notna().any() else pd.to_numeric(joined.train_loss),
            "accuracy": pd.to_numeric(joined.test_accuracy),
        }
    )  # fmt: skip


def _measured(runs: pd.DataFrame, study: StudyIndex) -> tuple[pd.DataFrame, list[str]]:
    """The ladder's runs by one state of the code and machine, each once; and what was left out."""
    series = {
        study.ablation.plain,
        *(getattr(step, kind) for step in study.ablation.steps for kind in ("alone", "upto")),
    }
    own = {run.run_id for run in study.runs if run.series in series}
    return of_one_state(unprofiled(runs[runs.run_id.isin(own)]))


def _up_to(ladder: AblationIndex, name: str) -> tuple[str, ...]:
    """The steps on the rung that ends with `name`."""
    names = [step.name for step in ladder.steps if step.upto]
    return tuple(names[: names.index(name) + 1])


def _median(table: pd.DataFrame, series: str, column: str) -> float:
    return pd.to_numeric(table[column][table.series == series]).median()
