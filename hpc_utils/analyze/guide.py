"""Advice of guides to parallel training beside measurements: loader workers, and what saves memory."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from hpc_utils.records.study import StudyIndex

from . import points, stats

RULE = 8  # loader workers a GPU: "2 x GPUs x 4" processes in all
ALIKE = [name for name in (*points.SAME, *points.POINT) if name != "settings"]  # in the points of one comparison
MEMORY = ["accumulate", "activation_checkpointing"]
UNITS = {"warmup_seconds": "s", "gain": "ratio", "of_best": "share", "of_peak": "share", "longer": "ratio"}


def series(studies: Iterable[StudyIndex], runs: pd.DataFrame, name: str, options: list[str]) -> pd.DataFrame:
    """The runs of the series `name` on cores of their own, without a profiler, with the columns `options`: their parameters."""
    planned = {run.run_id: run.parameters for index in studies for run in index.runs if run.series == name}
    own = points.unprofiled(runs[runs.run_id.isin(planned) & ~points.barred(runs)])
    return own.assign(**{option: [planned[run].get(option) for run in own.run_id] for option in options})


def loader_workers(studies: Iterable[StudyIndex], runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each number of loader workers in the series `loader-workers`.

    Columns: loader_workers; threads_per_rank (cores of the rank and its workers); throughput; warmup_seconds (the start of the
    workers included); gain (throughput over that without workers), of_best (over the highest), each with <column>_low
    and <column>_high (95 %); repeats; runs.
    """
    measures = ["throughput", "warmup_seconds"]
    found = points.gather(series(studies, runs, "loader-workers", ["loader_workers"]), measures, ["loader_workers"])
    rows = []
    for _, own in found.groupby(points.number(found, ALIKE)):
        alone, best = own[own.loader_workers == 0], own.loc[own.throughput.idxmax()]
        for row in own.sort_values("loader_workers").to_dict("records"):
            gain = points.over(row, alone.iloc[0] if len(alone) else None, "throughput")
            rows.append(row | gain.columns("gain") | points.over(row, best, "throughput").columns("of_best"))
    ends = stats.columns([*measures, "gain", "of_best"])
    return pd.DataFrame(rows, columns=["device_name", "loader_workers", "threads_per_rank", *ends, "repeats", "runs"])


def judge_rule(table: pd.DataFrame) -> pd.DataFrame:
    """`RULE` judged by `loader_workers`: a row for each machine and number of cores that measured it.

    Columns: device_name, threads_per_rank; rule; enough (the fewest workers that the best is not faster than, beyond the
    interval); of_best (what the rule's number reaches), with its interval; verdict ("more than needed", "too few", "right",
    and "too many" if it is slower than the best); repeats, runs.
    """
    rows = []
    for _, own in table.groupby(["device_name", "threads_per_rank"], sort=False):
        ruled = own[own.loader_workers == RULE]
        if ruled.empty:
            continue
        reaches = own.of_best_high.fillna(own.of_best) >= 1
        enough, row = own.loader_workers[reaches].min(), ruled.iloc[0].to_dict()
        verdict = "right" if enough == RULE else "more than needed" if enough < RULE else "too few"
        if enough < RULE and not reaches[ruled.index[0]]:
            verdict = "too many"
        rows.append(row | {"rule": RULE, "enough": enough, "verdict": verdict, "runs": tuple(own.runs.explode())})
    ends = stats.columns(["of_best"])
    names = ["device_name", "threads_per_rank", "rule", "enough", *ends, "verdict", "repeats", "runs"]
    return pd.DataFrame(rows, columns=names)


def memory(studies: Iterable[StudyIndex], runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each number of micro-batches without and with activation checkpointing in the series `memory`.

    Columns: `MEMORY`; peak_bytes (of the process on a CPU, with interpreter and libraries; of tensors on a GPU), step_seconds;
    of_peak and longer (these over the plain step's), each with <column>_low and <column>_high (95 %); repeats; runs.
    """
    measures, rows = ["peak_bytes", "step_seconds"], []
    found = points.gather(series(studies, runs, "memory", MEMORY), measures, MEMORY)
    for _, own in found.groupby(points.number(found, ALIKE)):
        plain = own[(own.accumulate == 1) & ~own.activation_checkpointing.astype(bool)]
        base = plain.iloc[0] if len(plain) else None
        for row in own.sort_values(MEMORY[::-1]).to_dict("records"):
            less, longer = (points.over(row, base, name) for name in measures)
            rows.append(row | less.columns("of_peak") | longer.columns("longer"))
    ends = stats.columns([*measures, "of_peak", "longer"])
    return pd.DataFrame(rows, columns=["device_name", *MEMORY, *ends, "repeats", "runs"])
