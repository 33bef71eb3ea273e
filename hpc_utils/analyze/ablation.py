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
    "step", "measure", "plain", "changed", *stats.columns("difference"), "margin", "repeats", "verdict", "words", "runs",
]  # fmt: skip


class Best(NamedTuple):
    """The fastest configuration: its series, its name ("up to NAME", "NAME alone") and steps, its throughput over the plain
    loop's, and the ids of the runs behind that."""

    series: str
    name: str
    steps: tuple[str, ...]
    gain: stats.Estimate
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ladder:
    """A study with an ablation and its records: what is found of it, each computed once."""

    records: Records
    study: StudyIndex

    @cached_property
    def path(self) -> dict[str, str]:
        """{step: series} of the cumulative configurations, the plain loop first: without the steps that cannot run there."""
        ablation = self.study.ablation
        return {ablation.plain: ablation.plain} | {step.name: step.upto for step in ablation.steps if step.upto}

    @cached_property
    def planned(self) -> pd.DataFrame:
        """series (plain, alone-NAME, upto-NAME) and run_id of each configuration and repeat; one run may stand for several."""
        plain, *upto = self.path.values()
        order = [plain, *(step.alone for step in self.study.ablation.steps), *upto]
        runs = [run for run in self.study.runs if run.series in order]
        runs.sort(key=lambda run: (order.index(run.series), run.repeat))
        return pd.DataFrame([(run.series, run.run_id) for run in runs], columns=["series", "run_id"])

    @cached_property
    def measured(self) -> tuple[pd.DataFrame, list[str]]:
        """The ablation's runs by one torch and machine, each once, without profiled ones, and remarks (`points.of_one_state`)."""
        runs = self.records.runs
        return of_one_state(unprofiled(runs[runs.run_id.isin(self.planned.run_id)]))

    @cached_property
    def configurations(self) -> pd.DataFrame:
        """Of those `planned` what was `measured`: series, the columns of `runs`, step_seconds, warmup (s), and memory_bytes (of tensors
        on the accelerator where there is one, else resident)."""
        table = self.planned.merge(self.measured[0], on="run_id")
        return table.assign(
            step_seconds=step_seconds(table),
            warmup=pd.to_numeric(table.warmup_seconds),
            memory_bytes=memory(table).peak_bytes,
        )

    def rows(self, series: str) -> pd.DataFrame:
        """Those of `configurations` of one series."""
        return self.configurations[self.configurations.series == series]

    def gain(self, series: str, against: str, column: str = "throughput") -> tuple[stats.Estimate, tuple[str, ...]]:
        """`paired` of two series."""
        return paired(self.rows(series), self.rows(against), column)

    def about(self) -> str:
        """How many runs on what, what is left out, and the study's own text."""
        runs = self.records.runs
        remarks = [f"{len(runs)} complete runs on {', '.join(sorted(set(runs.device_name.dropna())))}"]
        return f"{'; '.join([*remarks, *self.measured[1]])}. {self.study.about}"

    @cached_property
    @tabled(
        "gains",
        "What each change gives.",
    )
    def gains(self) -> pd.DataFrame:
        """One row per step, in their order.

        Columns: step, about, parameters (`name=value`); why (it cannot run there, or ""); before (the nearest step below that was
        measured); its gain `alone` over the plain loop, `marginal` over the configuration before, and of all up to it
        `together`, factors of throughput, each with `_low`, `_high` and `_verdict`; repeats (pairs behind `together`); its cost in
        the cumulative order: memory (factor of the peak of the configuration before), warmup (s more than that before the clock
        starts, compilation included); <gain>_runs (ids). NaN: not measured.
        """
        starts = self.configurations.groupby("series").warmup.median()
        plain = self.study.ablation.plain
        rows = []
        before = plain  # the nearest step below
        for step in self.study.ablation.steps:
            row = {"about": step.about, "parameters": options(step.parameters), "why": step.why}
            row |= {"step": step.name, "before": before}
            pairs = {"alone": (step.alone, plain)}
            if step.upto:
                below = self.path[before]
                pairs |= {"marginal": (step.upto, below), "together": (step.upto, plain)}
                row["memory"] = self.gain(step.upto, below, "memory_bytes")[0].value
                row["warmup"] = starts.get(step.upto, np.nan) - starts.get(below, np.nan)
            for name, pair in pairs.items():
                gain, row[f"{name}_runs"] = self.gain(*pair)
                row |= gain.measure(name)  # repeats: of the last, together
                row[f"{name}_verdict"] = verdict(gain.low, gain.high) if gain.repeats else None
            if step.upto and len(self.rows(step.upto)):
                before = step.name
            rows.append(row)
        return pd.DataFrame(rows, columns=COLUMNS)

    @cached_property
    def best(self) -> Best | None:
        """The configuration of the highest median gain, the plain loop among them; None if that was not measured.

        The runs that judge it also chose it: its gain is slightly too high.
        """
        (_, plain), *cumulative = self.path.items()
        steps = [name for name, _ in cumulative]
        choices = [(plain, "plain loop", ())]
        choices += [
            (series, f"up to {name}", tuple(steps[:place])) for place, (name, series) in enumerate(cumulative, 1)
        ]
        choices += [(step.alone, f"{step.name} alone", (step.name,)) for step in self.study.ablation.steps]
        candidates = [Best(*choice, *self.gain(choice[0], plain)) for choice in choices]
        measured = [candidate for candidate in candidates if candidate.gain.repeats]
        return max(measured, key=lambda candidate: candidate.gain.value, default=None)

    @tabled(
        "best",
        "The fastest configuration over the plain loop.",
        measure="gain",
    )
    def best_table(self) -> pd.DataFrame:
        """`best` in one row: name, steps; gain, gain_low, gain_high, repeats, verdict; of accuracy and loss, where they were recorded,
        `<measure>_verdict` and `<measure>` in words; runs."""
        best = self.best
        row = {"name": best.name, "steps": " + ".join(best.steps) or "none"} | best.gain.measure("gain")
        row |= {"verdict": verdict(*best.gain[1:3]), "runs": best.runs}
        for judgement in self.learnt_of_best.to_dict("records"):
            row |= {f"{judgement['measure']}_verdict": judgement["verdict"], judgement["measure"]: judgement["words"]}
        return pd.DataFrame([row])

    @tabled(
        "speeds",
        "Throughput, time of a step, start and memory.",
        "study label throughput step_seconds warmup memory_bytes repeats",
        measure="throughput",
        missing="`hpc study run optimization-cpu`",
    )
    def speeds(self) -> pd.DataFrame:
        """One row per configuration of `path`: label, series;
        throughput (sample/s), throughput_low, throughput_high (95 %), repeats; step_seconds, warmup (s) and memory_bytes, medians; runs."""
        medians = ["step_seconds", "warmup", "memory_bytes"]
        rows = []
        for label, series in self.path.items():
            series_runs = self.rows(series)
            if len(series_runs):
                row = {"label": label, "series": series, "runs": tuple(series_runs.run_id)}
                row |= stats.median(series_runs.throughput).measure("throughput")
                rows.append(row | series_runs[medians].median().to_dict())
        names = ["label", "series", *stats.columns("throughput"), "repeats", *medians, "runs"]
        return pd.DataFrame(rows, columns=names)

    @cached_property
    @tabled(
        "phases",
        "Where the time of a mean step goes.",
    )
    def phases(self) -> pd.DataFrame:
        """The phases of a mean step of each cumulative configuration: step, then seconds of `PARTS` (<part>_seconds), medians over the repeats; runs.

        Where only the wait for data is known, as of a captured step, the rest of the step is `undivided`. Otherwise each epoch's
        mean step is split as its sampled steps are, the epochs weighted by their steps. An epoch's first step is always sampled,
        so its own work (starting a loader) weighs too much in the split, but not in the sum.
        """
        epochs = self.records.epochs
        sampled = epochs[[f"{name}_seconds" for name in PHASES]].astype(float)
        mean = epochs.step_mean.astype(float)
        scale = (mean / sampled.sum(axis=1)).where(sampled.notna().all(axis=1), 1.0)
        weighted = sampled.mul(epochs.steps * scale, axis=0)
        undivided = mean - sampled.data_seconds
        weighted["undivided_seconds"] = (undivided * epochs.steps).where(sampled.forward_seconds.isna())
        steps = epochs.groupby("run_id").steps.sum()
        means = weighted.groupby(epochs.run_id).sum(min_count=1).div(steps, axis=0)
        rows = []
        for step, series in self.path.items():
            series_means = means[means.index.isin(self.rows(series).run_id)]
            if len(series_means):
                rows.append({"step": step} | series_means.median().to_dict() | {"runs": tuple(series_means.index)})
        return pd.DataFrame(rows, columns=["step", *PARTS, "runs"])

    def learning(self) -> pd.DataFrame:
        """Learning curves of the plain loop and of the fastest configuration: label, run_id, epoch, seconds (T so far), loss (of
        the test samples; without evaluation, of training), accuracy (of the test samples)."""
        epochs = self.records.epochs.sort_values(["run_id", "epoch"])
        ends = {"plain loop": self.study.ablation.plain, self.best.name: self.best.series}
        run_ids = {label: self.rows(series).run_id for label, series in ends.items()}
        parts = [epochs[epochs.run_id.isin(ids)].assign(label=label) for label, ids in run_ids.items()]
        curves = pd.concat(parts, ignore_index=True)
        tested = pd.to_numeric(curves.test_loss)
        return curves.assign(
            seconds=curves.groupby(["label", "run_id"]).seconds.cumsum(),
            loss=tested if tested.notna().any() else pd.to_numeric(curves.train_loss),
            accuracy=pd.to_numeric(curves.test_accuracy),
        )[["label", "run_id", "epoch", "seconds", "loss", "accuracy"]]

    @cached_property
    @tabled(
        "learnt",
        "Whether each change learns as well as the plain loop.",
        "study step measure plain changed difference margin verdict",
        missing="an evaluation",
    )
    def learnt(self) -> pd.DataFrame:
        """One row per cumulative configuration (and the best, under its name) and measure, against the plain loop, paired by repeat
        (one seed each).

        Columns: step; measure ("accuracy": of the test samples, at the end, a share; "loss": of the test samples, or without
        evaluation of the last epoch's training, differences relative to the plain loop's); plain, changed (means);
        difference, difference_low, difference_high (90 % interval), margin, repeats; verdict, and in words; runs. Empty where neither was recorded.
        """
        final = self.configurations[["series", "repeat", "run_id"]].merge(
            _final(self.records.epochs), on="run_id", how="left"
        )
        final = final.set_index("repeat")
        (_, plain), *configurations = self.path.items()
        configurations += [(self.best.name, self.best.series)] if self.best else []
        rows = []
        for step, series in configurations:
            compared = _compared(final[final.series == series], final[final.series == plain], self.study.targets)
            rows += [{"step": step} | row for row in compared]
        return pd.DataFrame(rows, columns=LEARNT)

    @property
    def learnt_of_best(self) -> pd.DataFrame:
        return self.learnt[self.learnt.step == self.best.name]


def verdict(low: float, high: float) -> str:
    """The meaning of a factor's 95 % interval: `FASTER`, `SLOWER`, `NOISE` (it contains 1), or `SINGLE` without one."""
    words = {Verdict.MET: FASTER, Verdict.MISSED: SLOWER}
    return SINGLE if np.isnan(low) else words.get(decide(stats.Estimate(low, low, high, 0), at_least=1), NOISE)


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
    return pd.DataFrame(rows, columns=[*keys, "throughput", *stats.columns("ratio"), "repeats", "runs"])


@tabled(
    "across-ranks",
    "Whether several ranks learn as well as one (plain).",
    "workload dataset precision global_batch parallel layout measure plain changed difference margin verdict",
    missing="`hpc study run accuracy`",
)
def across_ranks(runs: pd.DataFrame, epochs: pd.DataFrame, targets: Targets) -> pd.DataFrame:
    """As `Ladder.learnt`, several ranks with one rank of the same global batch and steps: one row per configuration and measure.

    Columns: workload, dataset, precision, settings, global_batch, parallel, layout; then as of `Ladder.learnt`, `plain` being one rank.
    """
    columns = ["workload", "dataset", "precision", "settings", "global_batch", "parallel", "layout"]
    rows = []
    runs = unprofiled(runs).merge(_final(epochs), on="run_id")
    for _, workload_runs in runs.groupby(number(runs, [*SAME, "global_batch", "steps_per_epoch"])):
        single = one_rank(workload_runs).set_index("repeat")
        several = workload_runs[workload_runs.world_size > 1].set_index("repeat")
        for layout, changed in several.groupby(["parallel", "nodes", "ranks_per_node"]):
            configuration = {**changed.iloc[0][columns[:-1]], "layout": "{1:g}x{2:g}".format(*layout)}
            rows += [configuration | row for row in _compared(changed, single, targets)]
    return pd.DataFrame(rows, columns=[*columns, *LEARNT[1:]])


def _final(epochs: pd.DataFrame) -> pd.DataFrame:
    """run_id, accuracy and loss at the end of each run."""
    last = epochs.sort_values("epoch").groupby("run_id")[["test_accuracy", "test_loss", "train_loss"]].last()
    last = last.astype(float)
    measures = {"accuracy": last.test_accuracy, "loss": last.test_loss.fillna(last.train_loss)}
    return pd.DataFrame(measures).reset_index()


def _compared(changed: pd.DataFrame, plain: pd.DataFrame, targets: Targets) -> Iterator[dict[str, Any]]:
    """A row for each measure of `_final`, paired by repeat, which is the index of both."""
    pairs = changed.join(plain.add_suffix("_plain"), how="inner")
    for measure, margin in (("accuracy", targets.accuracy_margin), ("loss", targets.loss_margin)):
        recorded = pairs.dropna(subset=[measure, f"{measure}_plain"])
        if recorded.empty:
            continue
        before = recorded[f"{measure}_plain"]
        after = recorded[measure]
        difference, verdict = judge((after - before) / (before if measure == "loss" else 1), margin)
        row = {"measure": measure, "margin": margin, "plain": before.mean(), "changed": after.mean()}
        row |= difference.measure("difference")
        row |= {"verdict": verdict, "runs": unique(recorded.run_id_plain, recorded.run_id)}
        yield row | {"words": _words(row)}


def judge(differences: Sequence[float], margin: float) -> tuple[stats.Estimate, str]:
    """Mean of paired `differences` (changed - plain, a seed each) with its 90 % interval, and the verdict of two one-sided t tests
    against -margin and margin, at 5 %: `EQUAL`, `DIFFERS`, `UNKNOWN`.

    "differs" if the 95 % interval leaves out zero, and the difference is not shown to be within the margin; one pair
    alone is "not enough evidence".
    """
    differences = np.asarray(differences, dtype=float)
    count = len(differences)
    mean = float(differences.mean()) if count else np.nan
    if count < 2:
        return stats.Estimate(mean, np.nan, np.nan, count), UNKNOWN
    error = differences.std(ddof=1) / np.sqrt(count)
    half = float(stats.t_quantile(count - 1, 0.95) * error)  # of the 90 % interval
    wide = float(stats.t_quantile(count - 1, stats.TAILS[1]) * error)  # of the 95 % interval
    verdict = DIFFERS if abs(mean) > wide else UNKNOWN
    if abs(mean) + half < margin:
        verdict = EQUAL
    return stats.Estimate(mean, mean - half, mean + half, count), verdict


def _words(row: Mapping[str, Any]) -> str:
    """A row's verdict in words: `equal within 0.5 points`, `differs by -1.2 points`."""
    unit = "points" if row["measure"] == "accuracy" else "%"
    if row["verdict"] == EQUAL:
        return f"{EQUAL} within {100 * row['margin']:.2g} {unit}"
    return f"{DIFFERS} by {100 * row['difference']:.2g} {unit}" if row["verdict"] == DIFFERS else UNKNOWN


def options(parameters: Mapping[str, Any]) -> str:
    """`precision=bf16`, as `hpc run -p` takes it."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in parameters.items()}
    return ", ".join(f"{name}={value}" for name, value in values.items())
