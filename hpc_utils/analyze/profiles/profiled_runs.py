"""Our own profiled runs by configuration, the runs of the same configuration without a profiler, and their monitors."""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze import points, stats
from hpc_utils.analyze.table import tabled
from hpc_utils.plural import counted
from hpc_utils.records import identity, packed, schema
from hpc_utils.records.folder import KERNELS, MONITOR

from . import kernels
from .judge import judge
from .readers import Reports, gather
from .timeline import ProfileError, Timeline
from .verdict import Verdict, undecided

# Parameters that may differ between repeats of one configuration, and between a profiled run and one without a profiler.
REPEATS = ("seed", "repeat")
PROFILING = ("profile", "profile_steps", "monitor_seconds")

SAMPLES = {
    "utilization_percent": "utilisation",
    "memory_used_bytes": "memory_bytes",
    "power_watts": "power_watts",
    "temperature_celsius": "temperature",
}


# How samples become a value of a run.
HOW = {"utilisation": "mean", "memory_bytes": "max", "power_watts": "mean", "temperature": "max"}


FEWEST = 8  # samples, two a quarter
GROWTH = 0.05  # of the memory, from the second to the last quarter of training


@dataclass(frozen=True)
class Profile:
    """What was profiled of a configuration, and the verdicts on it. Files are read on first use.

    Attributes:
        name, what: the configuration and its description.
        paths: the files or folders of each run, by its id; of other people's profiles, one run under "".
        plain: of the same without a profiler, a row each: repeat, run_id, throughput (samples/s); None for other people's.
    """

    name: str
    what: str
    paths: Mapping[str, Sequence[Path]]
    plain: pd.DataFrame | None = None

    @functools.cached_property
    def _read(self) -> tuple[dict[str, Reports], str]:
        reports, missing = {}, []
        for run, paths in self.paths.items():
            try:
                reports[run] = gather(paths)
            except ProfileError as error:
                missing.append(str(error))
        return reports, "; ".join(missing)

    @property
    def reports(self) -> dict[str, Reports]:
        """The profiles of the runs that can be read, by run id."""
        return self._read[0]

    @property
    def missing(self) -> str:
        """Why the other runs cannot be read."""
        return self._read[1]

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Of the runs that were read, and of those without a profiler."""
        return (*self.reports, *([] if self.plain is None else self.plain.run_id))

    @functools.cached_property
    def verdicts(self) -> dict[str, Verdict]:
        return {run: judge(reports) for run, reports in self.reports.items()}

    @property
    def first(self) -> Reports:
        """The profiles of the first run; empty ones if none can be read."""
        return next(iter(self.reports.values()), Reports())

    @property
    def timelines(self) -> Sequence[Timeline]:
        return self.first.timelines

    @property
    def verdict(self) -> Verdict:
        """The verdict on the first run."""
        return next(iter(self.verdicts.values()), undecided(f"not read: {self.missing}", (), ()))


def configurations(results: Path, runs: pd.DataFrame, planned: Iterable[Mapping[str, Any]]) -> dict[str, Profile]:
    """The configurations in which any of `runs` was profiled, by name, in the order of the studies.

    A name is that of the series, with what else identifies the configuration in it, in small letters, digits and dashes.

    Args:
        runs: as of `records.load(results)`. planned: the runs of the studies: run_id, series, ranks, parameters, as
            their indices have them. A profiled run of no study is a configuration of its own, by its id.
    """
    rows = runs.set_index("run_id").to_dict("index")
    planned = {study_run["run_id"]: study_run for study_run in planned if study_run["run_id"] in rows}
    for run, row in rows.items():
        if pd.notna(row["profile"]):
            planned.setdefault(run, {"run_id": run, "series": run, "ranks": 0, "parameters": {"run": run}})
    profiled: dict[str, list[Mapping[str, Any]]] = {}
    plain: dict[str, list[str]] = {}
    for run, study_run in planned.items():
        row = rows[run]
        if pd.notna(row["profile"]):
            profiled.setdefault(_key(study_run, REPEATS), []).append(study_run)
        else:
            plain.setdefault(_key(study_run, REPEATS + PROFILING), []).append(run)
    profiles = {}
    firsts = [repeats[0] for repeats in profiled.values()]
    for first, repeats in zip(firsts, profiled.values(), strict=True):
        name = _name(first, firsts)
        row = rows[first["run_id"]]
        ranks = counted(row["world_size"], "rank")
        what = f"{identity.task(row)}, {row['precision']}, {ranks}, {row['global_batch']} samples a step"
        paths = {study_run["run_id"]: [results / "runs" / study_run["run_id"]] for study_run in repeats}
        is_plain = runs.run_id.isin(plain.get(_key(first, REPEATS + PROFILING), []))
        plain_runs = runs.loc[is_plain, ["repeat", "run_id", "throughput"]]
        profiles[name] = Profile(name, f"{name}: {what}", paths, plain_runs)
    return profiles


def _key(study_run: Mapping[str, Any], free: Iterable[str]) -> str:
    parameters = {name: value for name, value in study_run["parameters"].items() if name not in free}
    return json.dumps([study_run["ranks"], parameters], sort_keys=True, default=str)


def _name(study_run: Mapping[str, Any], firsts: Iterable[Mapping[str, Any]]) -> str:
    """The series, and the ranks and parameters in which its configurations differ."""
    of_series = [sibling for sibling in firsts if sibling["series"] == study_run["series"]]
    parts = [study_run["series"]]
    if len({sibling["ranks"] for sibling in of_series}) > 1:
        parts.append(str(study_run["ranks"]))
    for name, value in study_run["parameters"].items():
        if name not in REPEATS and any(sibling["parameters"].get(name) != value for sibling in of_series):
            parts.append(str(value))
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


@tabled(
    "kinds",
    "Time in kernels by their kind.",
    missing="a run with a profile (`-p profile=torch`), or an import with `kernels`",
)
def kernel_kinds(results: Path, runs: pd.DataFrame) -> pd.DataFrame:
    """`kernels.kinds` of the first run of each precision, number of ranks and batch that was profiled, or imported with a table of
    its kernels; and `runs`."""
    tables = {}
    run_ids = {}
    for run in runs.itertuples():
        name = f"{run.precision}, {counted(run.world_size, 'rank')}, batch {run.global_batch:g}"
        folder = results / run.path
        if name in tables or not (pd.notna(run.profile) or KERNELS in packed.names(folder)):
            continue
        if pd.isna(run.profile):
            table = pd.read_csv(io.BytesIO(packed.content(folder / KERNELS)))
        else:
            table = kernels.kernel_table(Profile(name, name, {run.run_id: [folder]}).timelines, "kind")
        tables[name] = table
        run_ids[name] = (run.run_id,)
    kinds = kernels.kinds(tables)
    return kinds.assign(runs=kinds.configuration.map(run_ids))


def monitors(results: Path, runs: Iterable[str], least: int = 1) -> dict[str, pd.DataFrame]:
    """{run: what its monitors recorded (`records.folder.MONITOR`)}, of runs with at least `least` samples of a device.

    Columns: seconds since the run's first sample, utilisation, memory_bytes, power_watts, temperature (°C; NaN: not known), device
    (a host's processors or a device, `node1, cuda:0`).
    """
    logs_by_run = {}
    for run in runs:
        log = read_log(results, run).sort_values(["host", "device"], kind="stable")
        log = log.assign(device=log.host + ", " + log.device)
        if len(log) and log.device.value_counts().max() >= least:
            logs_by_run[run] = log[["seconds", *SAMPLES.values(), "device"]]
    return logs_by_run


def read_monitor(results: Path, run: str) -> pd.DataFrame:
    """All rows of a run's monitors, columns as in `schema.MONITOR`."""
    folder = packed.unpacked(results / "runs" / run) / MONITOR
    files = [file for file in sorted(folder.glob("*.csv")) if file.stat().st_size]
    if not files:
        return pd.DataFrame(columns=schema.names(schema.MONITOR))
    log = pd.concat(map(pd.read_csv, files), ignore_index=True)
    return log.dropna(subset=["time", "host", "device"])  # a truncated last line


def read_log(results: Path, run: str) -> pd.DataFrame:
    """What a run's monitors recorded of processors and devices: time, host, device, seconds (since the first sample), and the
    values of `SAMPLES`; empty without a monitor."""
    log = read_monitor(results, run)
    log = log[~log.device.astype(str).str.startswith("rank")].rename(columns=SAMPLES)
    return log.assign(seconds=log.time - log.time.min(), utilisation=log.utilisation / 100)


@tabled(
    "monitored",
    "Devices while training, by the monitor.",
    "parallel world_size global_batch precision utilisation memory_bytes power_watts temperature repeats",
    measure="utilisation",
    missing="`-p monitor_seconds=1`",
)
def monitored(results: Path, runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration of the monitored runs: over their training parts and GPUs, or on a CPU their hosts' processors, the mean
    utilisation (a share) and power (W), the largest memory (B, by all processes) and temperature (°C).

    Columns: those of `SAME` and `POINT`, layout; the values of `SAMPLES`, each with its interval; repeats, runs.
    """
    means = monitored_runs(results, runs, epochs)
    used = runs[runs.run_id.isin(means.index)]
    table = points.gather(used.join(means, on="run_id"), list(HOW))
    return table[[*points.SAME, *points.POINT, "layout", *stats.columns(*HOW), "repeats", "runs"]]


def monitored_runs(results: Path, runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """The values of `SAMPLES` as of `monitored`, a row for each monitored run, by its id."""
    rows = {}
    for run in runs.itertuples():
        log = read_log(results, run.run_id)
        of_run = epochs[epochs.run_id == run.run_id]
        samples = log[_is_training(log, of_run) & ((log.device == "cpu") == (run.device == "cpu"))]
        if len(samples):
            rows[run.run_id] = samples[[*SAMPLES.values()]].astype(float).agg(HOW)
    run_ids = pd.Index(list(rows), dtype=runs.run_id.dtype)
    return pd.DataFrame(list(rows.values()), index=run_ids, columns=list(HOW))


def _is_training(log: pd.DataFrame, epochs: pd.DataFrame) -> np.ndarray:
    """Whether each row of a run's log is from the training part of one of its `epochs`."""
    times = log.time.to_numpy(float)[:, None]
    begun = points.training_begun(epochs).to_numpy(float)
    return ((times >= begun) & (times <= epochs.ended.to_numpy(float))).any(axis=1)


@tabled(
    "memory-growth",
    "Memory of processes and GPUs while training, in the second and in the last quarter: does it go on growing?",
    "run_id host device second_quarter_bytes last_quarter_bytes growth is_leak",
    missing="a run of minutes with `-p monitor_seconds=1`",
)
def memory_growth(results: Path, runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """One row for each rank's processes (rank0) and each GPU (cuda:0) of the monitored runs with at least `FEWEST` samples while training.

    Columns: run_id, host, device; second_quarter_bytes, last_quarter_bytes (medians over quarters of the samples; the first warms caches
    up), growth (last over second, minus 1), is_leak (it grows from each quarter to the next, by more than `GROWTH` in all).
    """
    rows = []
    for run in runs.itertuples():
        log = read_monitor(results, run.run_id)
        samples = log[_is_training(log, epochs[epochs.run_id == run.run_id]) & (log.device != "cpu")]
        for (host, device), device_samples in samples.sort_values("time").groupby(["host", "device"]):
            sizes = device_samples.rss_bytes.fillna(device_samples.memory_used_bytes).to_numpy(float)
            if len(sizes) < FEWEST:
                continue
            _, second, third, last = map(np.median, np.array_split(sizes, 4))
            growth = last / second - 1
            rows.append((run.run_id, host, device, second, last, growth, second < third < last and growth > GROWTH))
    columns = ["run_id", "host", "device", "second_quarter_bytes", "last_quarter_bytes", "growth", "is_leak"]
    return pd.DataFrame(rows, columns=columns)
