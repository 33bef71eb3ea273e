"""Our own profiled runs by configuration, the runs of the same configuration without a profiler, and their monitors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hpc_utils.records import packed
from hpc_utils.records.folder import MONITOR

from .judge import judge_reports
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


@dataclass(frozen=True)
class Configuration:
    """A configuration that was profiled.

    Attributes:
        name: of its series, with what else identifies it in the series, in small letters, digits and dashes.
        what: its description.
        runs: ids of its profiled runs, a repeat each.
        plain: of the same without a profiler, by repeat: the run's id and its throughput (samples/s).
    """

    name: str
    what: str
    runs: tuple[str, ...]
    plain: Mapping[int, tuple[str, float]]


@dataclass(frozen=True)
class Profile:
    """What was profiled of a configuration, and the verdicts on it.

    Attributes:
        name, what: the configuration and its description. reports, verdicts: by run id; of other people's profiles, one
            under "". missing: why runs cannot be read. plain: as of `Configuration`; None for other people's profiles.
    """

    name: str
    what: str
    reports: Mapping[str, Reports]
    verdicts: Mapping[str, Verdict]
    missing: str = ""
    plain: Mapping[int, tuple[str, float]] | None = None

    @classmethod
    def read(
        cls,
        name: str,
        what: str,
        paths: Mapping[str, Iterable[Path]],
        plain: Mapping[int, tuple[str, float]] | None = None,
    ) -> Profile:
        """`paths`: the files or folders of each run."""
        reports, verdicts, missing = {}, {}, []
        for run, own in paths.items():
            try:
                report = gather(own)
                reports[run], verdicts[run] = report, judge_reports(report)
            except ProfileError as error:
                missing.append(str(error))
        return cls(name, what, reports, verdicts, "; ".join(missing), plain)

    @property
    def first(self) -> Reports:
        """The profiles of the first run; empty ones if none can be read."""
        return next(iter(self.reports.values()), Reports([]))

    @property
    def timelines(self) -> list[Timeline]:
        return self.first.timelines

    @property
    def verdict(self) -> Verdict:
        """On the first run."""
        return next(iter(self.verdicts.values()), undecided(f"not read: {self.missing}", (), ()))


def read_all(results: Path, found: Iterable[Configuration]) -> dict[str, Profile]:
    """The profiles of the configurations in a result set, by name."""
    folder = results / "runs"
    return {
        one.name: Profile.read(one.name, one.what, {run: [folder / run] for run in one.runs}, one.plain)
        for one in found
    }


def configurations(runs: pd.DataFrame, asked: Iterable[Mapping[str, Any]]) -> list[Configuration]:
    """The configurations in which any of `runs` was profiled, in the order of the studies.

    Args:
        runs: as of `records.load`. asked: the runs of the studies: run_id, series, ranks, parameters, as their indices have
            them. A profiled run of no study is a configuration of its own, by its id.
    """
    if runs.empty:
        return []
    known = runs.set_index("run_id")
    asked = {one["run_id"]: one for one in asked if one["run_id"] in known.index}
    for run in known.index[known.profile.notna()]:
        asked.setdefault(run, {"run_id": run, "series": run, "ranks": 0, "parameters": {"run": run}})
    profiled: dict[str, list[Mapping[str, Any]]] = {}
    plain: dict[str, dict[int, tuple[str, float]]] = {}
    for run, one in asked.items():
        if pd.notna(known.profile[run]):
            profiled.setdefault(_key(one, REPEATS), []).append(one)
        else:
            own = plain.setdefault(_key(one, REPEATS + PROFILING), {})
            own[int(known["repeat"][run])] = run, float(known.throughput[run])
    found, firsts = [], [own[0] for own in profiled.values()]
    for first, own in zip(firsts, profiled.values(), strict=True):
        name, run = _name(first, firsts), known.loc[first["run_id"]]
        ranks = f"{run.world_size} rank{'s' if run.world_size > 1 else ''}"
        what = f"{name}: {run.workload} on {run.dataset}, {run.precision}, {ranks}, {run.global_batch} samples a step"
        unprofiled = plain.get(_key(first, REPEATS + PROFILING), {})
        found.append(Configuration(name, what, tuple(one["run_id"] for one in own), unprofiled))
    return found


def _key(one: Mapping[str, Any], free: Iterable[str]) -> str:
    parameters = {name: value for name, value in one["parameters"].items() if name not in free}
    return json.dumps([one["ranks"], parameters], sort_keys=True, default=str)


def _name(one: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> str:
    """The series, and the ranks and parameters in which its configurations differ."""
    of_series = [other for other in others if other["series"] == one["series"]]
    parts = [one["series"]]
    if len({other["ranks"] for other in of_series}) > 1:
        parts.append(str(one["ranks"]))
    for name, value in one["parameters"].items():
        if name not in REPEATS and any(other["parameters"].get(name) != value for other in of_series):
            parts.append(str(value))
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


def monitors(results: Path, runs: Iterable[str], least: int = 1) -> dict[str, dict[str, pd.DataFrame]]:
    """`monitor` of each run in a result set that has at least `least` samples of a device."""
    found = {run: monitor(results / "runs" / run) for run in runs}
    return {run: own for run, own in found.items() if max(map(len, own.values()), default=0) >= least}


def monitor(run: Path) -> dict[str, pd.DataFrame]:
    """The samples of the monitor beside a run (`records.folder.MONITOR`), of each host's processors and each device
    (`node1, cuda:0`): seconds since the run's first sample, and utilisation (%), memory_bytes, power_watts, temperature
    (°C; NaN: not known). Empty without a monitor.

    Raises:
        ProfileError: a file was not written by the monitor.
    """
    files = sorted((packed.unpacked(Path(run)) / MONITOR).glob("*.csv"))
    if not files:
        return {}
    try:
        every = pd.concat(map(pd.read_csv, files), ignore_index=True)
        every = every.dropna(subset=["time", "host", "device"])  # a truncated last line
        every = every.assign(seconds=every.time - every.time.min()).rename(columns=SAMPLES)
        columns = ["seconds", *SAMPLES.values()]
        return {f"{host}, {device}": own[columns] for (host, device), own in every.groupby(["host", "device"])}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ProfileError(f"{Path(run) / MONITOR}: not written by the monitor of a run: {error}") from None
