"""An ablation: the gain of each change alone, after the changes before it, and together; its costs; and equal learning.

Configurations are the plain loop, each change alone, and all changes up to one. Every gain is the ratio of two runs of the
same repeat and seed, which `hpc study run` measures soon after each other; on a cluster they may run on different nodes, and
the interval holds the nodes' differences. It is `stats.median`'s (95 %) over these ratios, not corrected for several gains.

A test that finds no difference shows nothing: with few repeats it finds little. Two one-sided tests show equality within a
margin that was stated beforehand (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15:657): the 90 % interval of the
difference is inside the margin, which is wrong in at most 5 % of cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.records import Records
from hpc_utils.records.identity import SAME
from hpc_utils.records.study import StudyIndex, Targets

from . import stats
from .compare import paired
from .decide import Verdict, decide
from .model.step import PHASES
from .points import memory, number, of_one_state, one_rank, step_seconds, unprofiled
from .scaling import unique
from .table import tabled

FASTER, SLOWER, NOISE, SINGLE = "faster", "slower", "within noise", "a single run"
EQUAL, DIFFERS, UNKNOWN = "equal", "differs", "not enough evidence"
PARTS = tuple(f"{phase}_seconds" for phase in (*PHASES, "undivided"))  # of a step
GAINS = ["alone", "marginal", "together"]
BEHIND = [f"{name}_runs" for name in GAINS]  # ids of the runs behind each gain
SEVERAL = [f"{name}{end}" for name in GAINS for end in ("", "_low", "_high", "_verdict")]
COLUMNS = ["step", "about", "parameters", "why", "before", *SEVERAL, "repeats", "memory", "warmup", *BEHIND]
LEARNT = [
    "step", "measure", "plain", "changed", *stats.columns(["difference"]), "margin", "repeats", "verdict", "words", "runs",
]  # fmt: skip


class Best(NamedTuple):
    """The fastest configuration: its series, its name ("up to NAME", "NAME alone") and steps, its throughput over the plain
    loop's, and the ids of the runs behind that."""

    series: str
    name: str
    steps: tuple[str, ...]
    gain: stats.Estimate
    runs: tuple[str, ...] = ()


class Judged(NamedTuple):
    """Mean of paired differences with its 90 % interval, in the unit of the margin; verdict: `EQUAL`, `DIFFERS`, `UNKNOWN`."""

    difference: stats.Estimate
    verdict: str


@dataclass(frozen=True)
class Ladder:
    """A study with an ablation and its records: what this module finds of it, each computed once."""

    records: Records
    study: StudyIndex

    @cached_property
    def gains(self) -> pd.DataFrame:
        return gains(self.records.runs, self.study)

    @cached_property
    def best(self) -> Best | None:
        return best(self.records.runs, self.study)

    @cached_property
    def phases(self) -> pd.DataFrame:
        return profile(self.records.runs, self.records.epochs, self.study)

    @cached_property
    def learnt(self) -> pd.DataFrame:
        return equivalence(self.records.runs, self.records.epochs, self.study, self.best)

    @cached_property
    def learnt_of_best(self) -> pd.DataFrame:
        return self.learnt[self.learnt.step == self.best.name]

    @cached_property
    def ends(self) -> dict[str, str]:
        """{series: label} of the plain loop and of the fastest configuration."""
        return {self.study.ablation.plain: "plain loop"} | {self.best.series: self.best.name}

    def best_table(self) -> pd.DataFrame:
        return best_table(self.best, self.learnt_of_best)

    def speeds(self, labels: Mapping[str, str] | None = None) -> pd.DataFrame:
        return speeds(self.records.runs, self.study, labels)

    def configurations(self) -> pd.DataFrame:
        return configurations(self.records.runs, self.study)

    def learning(self) -> pd.DataFrame:
        return learning(self.records.runs, self.records.epochs, self.study, self.ends)

    def about(self) -> str:
        """How many runs on what, what is left out, and the study's own text."""
        runs = self.records.runs
        remarks = [f"{len(runs)} complete runs on {', '.join(sorted(set(runs.device_name.dropna())))}"]
        return f"{'; '.join([*remarks, *left_out(runs, self.study)])}. {self.study.about}"


def configurations(runs: pd.DataFrame, study: StudyIndex) -> pd.DataFrame:
    """One row per configuration of the study's ablation and repeat; one run may stand for several configurations.

    Columns: `series` (plain, alone-NAME, upto-NAME) in front of those of `runs`, and memory_bytes (of tensors on the
    accelerator where there is one, else resident). Without profiled runs, and those that `left_out` names.
    """
    order = {name: number for number, name in enumerate(_series(study))}
    index = [(run.series, run.run_id) for run in study.runs if run.series in order]
    table = pd.DataFrame(index, columns=["series", "run_id"]).merge(_measured(runs, study)[0], on="run_id")
    table["memory_bytes"] = memory(table).peak_bytes

    def position(column: pd.Series) -> pd.Series:
        return column.map(order) if column.name == "series" else column

    return table.sort_values(["series", "repeat"], key=position)


def left_out(runs: pd.DataFrame, study: StudyIndex) -> list[str]:
    """Remarks on the runs that `configurations` leaves out because another torch or machine measured them, and on the code."""
    return _measured(runs, study)[1]


def path(study: StudyIndex) -> list[tuple[str, str]]:
    """(step, series) of the cumulative configurations, the plain loop first: without the steps that cannot run there."""
    plain = study.ablation.plain
    return [(plain, plain), *((step.name, step.upto) for step in study.ablation.steps if step.upto)]


def verdict(low: float, high: float) -> str:
    """The meaning of a factor's 95 % interval: `FASTER`, `SLOWER`, `NOISE` (it contains 1), or `SINGLE` without one."""
    words = {Verdict.MET: FASTER, Verdict.MISSED: SLOWER}
    return SINGLE if np.isnan(low) else words.get(decide(stats.Estimate(low, low, high, 0), at_least=1), NOISE)


@tabled(
    "gains",
    "What each change gives.",
)
def gains(runs: pd.DataFrame, study: StudyIndex) -> pd.DataFrame:
    """One row per step, in their order.

    Columns: step, about, parameters (`name=value`); why (it cannot run there, or ""); before (the nearest step below that was
    measured); its gain `alone` over the plain loop, `marginal` over the configuration before, and of all up to it
    `together`, factors of throughput, each with `_low`, `_high` and `_verdict`; repeats (pairs behind `together`); its cost in
    the cumulative order: memory (factor of the peak of the configuration before), warmup (s more than that before the clock
    starts, compilation included); <gain>_runs (ids). NaN: not measured.
    """
    table = configurations(runs, study)
    plain = study.ablation.plain
    rows = []
    below = before = plain  # series and name of the nearest step below
    for step in study.ablation.steps:
        row = {"about": step.about, "parameters": options(step.parameters), "why": step.why}
        row |= {"step": step.name, "before": before, "repeats": 0}
        pairs = {"alone": (step.alone, plain)}
        if step.upto:
            pairs |= {"marginal": (step.upto, below), "together": (step.upto, plain)}
            row["memory"] = _gain(table, step.upto, below, "memory_bytes")[0].value
            row["warmup"] = _median(table, step.upto, "warmup_seconds") - _median(table, below, "warmup_seconds")
        for name, pair in pairs.items():
            gain, row[f"{name}_runs"] = _gain(table, *pair)
            row |= gain.columns(name) | ({"repeats": gain.repeats} if name == "together" else {})
            row[f"{name}_verdict"] = verdict(gain.low, gain.high) if gain.repeats else None
        if step.upto and (table.series == step.upto).any():
            below = step.upto
            before = step.name
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def best(runs: pd.DataFrame, study: StudyIndex) -> Best | None:
    """The configuration of the highest median gain, the plain loop among them; None if that was not measured.

    The runs that judge it also chose it: its gain is slightly too high.
    """
    table = configurations(runs, study)
    plain = study.ablation.plain
    steps = study.ablation.steps
    choices = [(plain, "plain loop", ())]
    together = ()
    for step in steps:
        if step.upto:
            together = (*together, step.name)
            choices.append((step.upto, f"up to {step.name}", together))
    choices += [(step.alone, f"{step.name} alone", (step.name,)) for step in steps]
    candidates = [Best(*choice, *_gain(table, choice[0], plain)) for choice in choices]
    measured = [candidate for candidate in candidates if candidate.gain.repeats]
    return max(measured, key=lambda candidate: candidate.gain.value, default=None)


@tabled(
    "best",
    "The fastest configuration over the plain loop.",
    measure="gain",
    missing="`hpc study run optimization-cpu`",
)
def best_table(fastest: Best, learnt: pd.DataFrame) -> pd.DataFrame:
    """`best` in one row: name, steps; gain, gain_low, gain_high, repeats, verdict; of accuracy and loss, where `learnt` (its rows of
    `equivalence`) has them, `<measure>_verdict` and `<measure>` in words; runs."""
    row = {"name": fastest.name, "steps": " + ".join(fastest.steps) or "none"} | fastest.gain.measure("gain")
    row |= {"verdict": verdict(*fastest.gain[1:3]), "runs": fastest.runs}
    for judgement in learnt.to_dict("records"):
        row |= {f"{judgement['measure']}_verdict": judgement["verdict"], judgement["measure"]: judgement["words"]}
    return pd.DataFrame([row])


@tabled(
    "speeds",
    "Throughput, time of a step, start and memory.",
    "study label throughput step_seconds warmup memory_bytes repeats",
    measure="throughput",
    missing="`hpc study run optimization-cpu`",
)
def speeds(runs: pd.DataFrame, study: StudyIndex, labels: Mapping[str, str] | None = None) -> pd.DataFrame:
    """One row per configuration of `labels` ({series: label}; default: the cumulative ones, by their step): label, series;
    throughput (sample/s), throughput_low, throughput_high (95 %), repeats; step_seconds, warmup (s) and memory_bytes, medians; runs."""
    table = configurations(runs, study)
    table = table.assign(step_seconds=step_seconds(table), warmup=pd.to_numeric(table.warmup_seconds))
    medians = ["step_seconds", "warmup", "memory_bytes"]
    rows = []
    for series, label in (labels or {series: step for step, series in path(study)}).items():
        series_runs = table[table.series == series]
        if len(series_runs):
            row = {"label": label, "series": series, "runs": tuple(series_runs.run_id)}
            row |= stats.median(series_runs.throughput).measure("throughput")
            rows.append(row | series_runs[medians].median().to_dict())
    names = ["label", "series", *stats.columns(["throughput"]), "repeats", *medians, "runs"]
    return pd.DataFrame(rows, columns=names)


@tabled(
    "phases",
    "Where the time of a mean step goes.",
)
def profile(runs: pd.DataFrame, epochs: pd.DataFrame, study: StudyIndex) -> pd.DataFrame:
    """The phases of a mean step of each cumulative configuration: step, then seconds of `PARTS` (<part>_seconds), medians over the repeats; runs.

    Where only the wait for data is known, as of a captured step, the rest of the step is `undivided`. Otherwise each epoch's
    mean step is split as its sampled steps are, the epochs weighted by their steps. An epoch's first step is always sampled,
    so its own work (starting a loader) weighs too much in the split, but not in the sum.
    """
    table = configurations(runs, study)
    rows = []
    for step, series in path(study):
        series_epochs = epochs[epochs.run_id.isin(table.run_id[table.series == series])]
        sampled = series_epochs[[f"{name}_seconds" for name in PHASES]].astype(float)
        scale = (series_epochs.step_mean.astype(float) / sampled.sum(axis=1)).where(sampled.notna().all(axis=1), 1.0)
        weighted = sampled.mul(series_epochs.steps * scale, axis=0)
        undivided = series_epochs.step_mean.astype(float) - sampled.data_seconds
        weighted["undivided_seconds"] = (undivided * series_epochs.steps).where(sampled.forward_seconds.isna())
        steps = series_epochs.groupby("run_id").steps.sum()
        means = weighted.groupby(series_epochs.run_id).sum(min_count=1).div(steps, axis=0)
        if len(means):
            rows.append({"step": step} | means.median().to_dict() | {"runs": tuple(means.index)})
    return pd.DataFrame(rows, columns=["step", *PARTS, "runs"])


def learning(runs: pd.DataFrame, epochs: pd.DataFrame, study: StudyIndex, labels: Mapping[str, str]) -> pd.DataFrame:
    """Learning curves of the configurations in `labels` ({series: label}): label, run_id, epoch, seconds (T so far), loss (of
    the test samples; without evaluation, of training), accuracy (of the test samples)."""
    table = configurations(runs, study)
    joined = table.loc[table.series.isin(labels), ["series", "run_id"]].merge(epochs, on="run_id")
    joined = joined.assign(order=joined.series.map(list(labels).index)).sort_values(["order", "run_id", "epoch"])
    tested = pd.to_numeric(joined.test_loss)
    return joined.assign(
        label=joined.series.map(labels),
        seconds=joined.groupby(["series", "run_id"]).seconds.cumsum(),
        loss=tested if tested.notna().any() else pd.to_numeric(joined.train_loss),
        accuracy=pd.to_numeric(joined.test_accuracy),
    )[["label", "run_id", "epoch", "seconds", "loss", "accuracy"]]


@tabled(
    "learnt",
    "Whether each change learns as well as the plain loop.",
    "study step measure plain changed difference margin verdict",
    missing="an evaluation",
)
def equivalence(
    runs: pd.DataFrame,
    epochs: pd.DataFrame,
    study: StudyIndex,
    best: Best | None = None,
) -> pd.DataFrame:
    """One row per cumulative configuration (and `best`, under its name) and measure, against the plain loop, paired by repeat
    (one seed each).

    Columns: step; measure ("accuracy": of the test samples, at the end, a share; "loss": of the test samples, or without
    evaluation of the last epoch's training, differences relative to the plain loop's); plain, changed (means);
    difference, difference_low, difference_high (90 % interval), margin, repeats; verdict, and in words; runs. Empty where neither was recorded.
    """
    rows = []
    final = configurations(runs, study)[["series", "repeat", "run_id"]].merge(_final(epochs), on="run_id", how="left")
    sides = {series: series_rows.set_index("repeat") for series, series_rows in final.groupby("series")}
    plain = sides.get(study.ablation.plain, final[:0])
    for step, series in [*path(study)[1:], *([(best.name, best.series)] if best else [])]:
        rows += [{"step": step} | row for row in _compared(sides.get(series, final[:0]), plain, study.targets)]
    return pd.DataFrame(rows, columns=LEARNT)


@tabled(
    "process-group",
    "Throughput on one rank with a process group over that without.",
    "study series parallel precision global_batch throughput ratio repeats",
    measure="ratio",
    missing="`hpc study run gpu-ddp` on a GPU",
)
def process_group(runs: pd.DataFrame, study: StudyIndex) -> pd.DataFrame:
    """The overhead of a process group of one rank: one row per configuration that a series has with and without one.

    Columns: series, precision, global_batch, parallel; throughput (sample/s, median); ratio (to that without a group, paired
    by repeat), ratio_low, ratio_high (95 %), repeats; runs.
    """
    index = pd.DataFrame([(run.series, run.run_id) for run in study.runs], columns=["series", "run_id"])
    single = index.drop_duplicates().merge(unprofiled(runs[runs.world_size == 1]), on="run_id")
    keys = ["series", "precision", "global_batch", "parallel"]
    rows = []
    for _, alike in single.groupby(number(single, ["series", *SAME, "global_batch", "steps_per_epoch"])):
        ungrouped = alike[alike.parallel == "none"]
        for _, grouped in alike[alike.parallel != "none"].groupby("parallel", sort=False):
            ratio, run_ids = paired(grouped, ungrouped)
            row = grouped.iloc[0][keys].to_dict() | {"throughput": grouped.throughput.median(), "runs": run_ids}
            rows += [row | ratio.measure("ratio")] * bool(ratio.repeats)
    return pd.DataFrame(rows, columns=[*keys, "throughput", *stats.columns(["ratio"]), "repeats", "runs"])


@tabled(
    "across-ranks",
    "Whether several ranks learn as well as one (plain).",
    "dataset precision parallel layout measure plain changed difference margin verdict",
    missing="`hpc study run accuracy`",
)
def across_ranks(runs: pd.DataFrame, epochs: pd.DataFrame, targets: Targets) -> pd.DataFrame:
    """`equivalence` of several ranks with one rank, of the same global batch and steps: one row per configuration and measure.

    Columns: workload, dataset, precision, global_batch, parallel, layout; then as of `equivalence`, `plain` being one rank.
    """
    columns = ["workload", "dataset", "precision", "global_batch", "parallel", "layout"]
    rows = []
    runs = unprofiled(runs).drop(columns="test_accuracy").merge(_final(epochs), on="run_id")
    for _, workload_runs in runs.groupby(number(runs, [*SAME, "global_batch", "steps_per_epoch"])):
        single = one_rank(workload_runs).set_index("repeat")
        several = workload_runs[workload_runs.world_size > 1].set_index("repeat")
        for layout, changed in several.groupby(["parallel", "nodes", "ranks_per_node"]):
            configuration = {**changed.iloc[0][columns[:5]], "layout": "{1:g}x{2:g}".format(*layout)}
            rows += [configuration | row for row in _compared(changed, single, targets)]
    return pd.DataFrame(rows, columns=[*columns, *LEARNT[1:]])


def _final(epochs: pd.DataFrame) -> pd.DataFrame:
    """run_id, test_accuracy and loss at the end of each run."""
    last = epochs.sort_values("epoch").groupby("run_id")[["test_accuracy", "test_loss", "train_loss"]].last()
    last = last.astype(float)
    return last.assign(loss=last.test_loss.fillna(last.train_loss))[["test_accuracy", "loss"]].reset_index()


def _compared(changed: pd.DataFrame, plain: pd.DataFrame, targets: Targets) -> Iterator[dict[str, Any]]:
    """A row for each measure of `_final`, paired by repeat, which is the index of both."""
    pairs = changed.join(plain.add_suffix("_plain"), how="inner")
    for measure, column, margin in (
        ("accuracy", "test_accuracy", targets.accuracy_margin), ("loss", "loss", targets.loss_margin)
    ):  # fmt: skip
        recorded = pairs.dropna(subset=[column, f"{column}_plain"])
        if recorded.empty:
            continue
        before = recorded[f"{column}_plain"]
        after = recorded[column]
        judged = judge((after - before) / (before if measure == "loss" else 1), margin)
        row = {"measure": measure, "margin": margin, "plain": before.mean(), "changed": after.mean()}
        row |= judged.difference.measure("difference")
        row |= {"verdict": judged.verdict, "runs": unique(recorded.run_id_plain, recorded.run_id)}
        yield row | {"words": words(row)}


def judge(differences: Sequence[float], margin: float) -> Judged:
    """Two one-sided t tests of paired `differences` (changed - plain, a seed each) against -margin and margin, at 5 %.

    "differs" if the 95 % interval leaves out zero, and the difference is not shown to be within the margin; one pair
    alone is "not enough evidence".
    """
    differences = np.asarray(differences, dtype=float)
    count = len(differences)
    mean = float(differences.mean()) if count else np.nan
    if count < 2:
        return Judged(stats.Estimate(mean, np.nan, np.nan, count), UNKNOWN)
    error = differences.std(ddof=1) / np.sqrt(count)
    half = float(stats.t_quantile(count - 1, 0.95) * error)  # of the 90 % interval
    wide = float(stats.t_quantile(count - 1, stats.TAILS[1]) * error)  # of the 95 % interval
    verdict = DIFFERS if abs(mean) > wide else UNKNOWN
    if abs(mean) + half < margin:
        verdict = EQUAL
    return Judged(stats.Estimate(mean, mean - half, mean + half, count), verdict)


def words(row: Mapping[str, Any]) -> str:
    """A row's verdict in words: `equal within 0.5 points`, `differs by -1.2 points`."""
    unit = "points" if row["measure"] == "accuracy" else "%"
    if row["verdict"] == EQUAL:
        return f"{EQUAL} within {100 * row['margin']:.2g} {unit}"
    return f"{DIFFERS} by {100 * row['difference']:.2g} {unit}" if row["verdict"] == DIFFERS else UNKNOWN


def options(parameters: Mapping[str, Any]) -> str:
    """`precision=bf16`, as `hpc run -p` takes it."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in parameters.items()}
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _series(study: StudyIndex) -> list[str]:
    steps = study.ablation.steps
    return [study.ablation.plain, *(step.alone for step in steps), *(step.upto for step in steps if step.upto)]


def _measured(runs: pd.DataFrame, study: StudyIndex) -> tuple[pd.DataFrame, list[str]]:
    """The ablation's runs by one torch and machine, each once, and remarks (`points.of_one_state`)."""
    run_ids = {run.run_id for run in study.runs if run.series in _series(study)}
    return of_one_state(unprofiled(runs[runs.run_id.isin(run_ids)]))


def _gain(
    table: pd.DataFrame, series: str, against: str, column: str = "throughput"
) -> tuple[stats.Estimate, tuple[str, ...]]:
    """`paired` of two series of `configurations`."""
    return paired(table[table.series == series], table[table.series == against], column)


def _median(table: pd.DataFrame, series: str, column: str) -> float:
    return pd.to_numeric(table[column][table.series == series]).median()
