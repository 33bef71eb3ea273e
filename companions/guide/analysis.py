"""Advice of guides to parallel training beside measurements: loader workers, and what saves memory."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from hpc_utils.analyze import points, stats
from hpc_utils.analyze.compare import compare
from hpc_utils.analyze.table import tabled
from hpc_utils.records.study import StudyIndex

RULE = 8  # loader workers a GPU: "2 x GPUs x 4" processes in all
ALIKE = [name for name in (*points.SAME, *points.POINT) if name != "settings"]  # in the points of one comparison
MEMORY = ["accumulate", "activation_checkpointing"]


def series(studies: Iterable[StudyIndex], runs: pd.DataFrame, name: str, options: list[str]) -> pd.DataFrame:
    """The runs of the series `name` on cores of their own, without a profiler, with the columns `options`: their parameters."""
    planned = {run.run_id: run.parameters for index in studies for run in index.runs if run.series == name}
    series_runs = points.unprofiled(runs[runs.run_id.isin(planned) & ~points.barred(runs)])
    values = {option: [planned[run_id].get(option) for run_id in series_runs.run_id] for option in options}
    return series_runs.assign(**values)


@tabled(
    "workers",
    "Throughput by loader workers.",
    "device_name threads_per_rank loader_workers throughput gain of_best warmup_seconds repeats",
    missing="`hpc study run loader-workers`",
)
def loader_workers(studies: Iterable[StudyIndex], runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each number of loader workers in the series `loader-workers`.

    Columns: loader_workers; threads_per_rank (cores of the rank and its workers); throughput; warmup_seconds (the start of the
    workers included); gain (throughput over that without workers), of_best (over the highest), each with <column>_low
    and <column>_high (95 %); repeats; runs.
    """
    measures = ["throughput", "warmup_seconds"]
    measured = points.gather(
        series(studies, runs, "loader-workers", ["loader_workers"]), measures, ["loader_workers"]
    )
    measured = measured.sort_values("loader_workers", kind="stable")
    fastest = measured.sort_values("throughput", ascending=False)
    gained = compare(measured, measured[measured.loader_workers == 0], ALIKE, over={"gain": "throughput"})
    gained = gained.assign(
        **compare(measured, fastest, ALIKE, over={"of_best": "throughput"})[stats.columns("of_best")]
    )
    ends = stats.columns(*measures, "gain", "of_best")
    return gained[["device_name", "loader_workers", "threads_per_rank", *ends, "repeats", "runs"]]


@tabled(
    "workers-rule",
    "The rule of eight loader workers a GPU, judged.",
    missing="`hpc study run loader-workers`",
)
def judge_rule(table: pd.DataFrame) -> pd.DataFrame:
    """`RULE` judged by `loader_workers`: a row for each machine and number of cores that measured it.

    Columns: device_name, threads_per_rank; rule; enough (the fewest workers that the best is not faster than, beyond the
    interval); of_best (what the rule's number reaches), with its interval; verdict ("more than needed", "too few", "right",
    and "too many" if it is slower than the best); repeats, runs.
    """
    rows = []
    for _, machine in table.groupby(["device_name", "threads_per_rank"], sort=False):
        ruled = machine[machine.loader_workers == RULE]
        if ruled.empty:
            continue
        reaches_best = machine.of_best_high.fillna(machine.of_best) >= 1
        enough = machine.loader_workers[reaches_best].min()
        verdict = "right" if enough == RULE else "more than needed" if enough < RULE else "too few"
        if enough < RULE and not reaches_best[ruled.index[0]]:
            verdict = "too many"
        judgement = {"rule": RULE, "enough": enough, "verdict": verdict, "runs": tuple(machine.runs.explode())}
        rows.append(ruled.iloc[0].to_dict() | judgement)
    ends = stats.columns("of_best")
    names = ["device_name", "threads_per_rank", "rule", "enough", *ends, "verdict", "repeats", "runs"]
    return pd.DataFrame(rows, columns=names)


@tabled(
    "memory",
    "Peak memory and time of a step with accumulation and activation checkpointing.",
    missing="`hpc study run memory`",
)
def memory(studies: Iterable[StudyIndex], runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each number of micro-batches without and with activation checkpointing in the series `memory`.

    Columns: `MEMORY`; peak_bytes (of the process on a CPU, with interpreter and libraries; of tensors on a GPU), step_seconds;
    of_peak and longer (these over the plain step's), each with <column>_low and <column>_high (95 %); repeats; runs.
    """
    measures = ["peak_bytes", "step_seconds"]
    measured = points.gather(series(studies, runs, "memory", MEMORY), measures, MEMORY)
    plain = measured[(measured.accumulate == 1) & ~measured.activation_checkpointing.astype(bool)]
    ratios = {"of_peak": "peak_bytes", "longer": "step_seconds"}
    compared = compare(measured.sort_values(MEMORY[::-1], kind="stable"), plain, ALIKE, over=ratios)
    ends = stats.columns(*measures, *ratios)
    return compared[["device_name", *MEMORY, *ends, "repeats", "runs"]]
