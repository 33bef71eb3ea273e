"""Our own profiled runs by configuration, the runs of the same configuration without a profiler, and their monitors."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hpc_utils.plural import counted
from hpc_utils.records import identity, packed
from hpc_utils.records.folder import MONITOR

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


@dataclass(frozen=True)
class Profile:
    """What was profiled of a configuration, and the verdicts on it. Files are read when they are first asked for.

    Attributes:
        name, what: the configuration and its description.
        paths: the files or folders of each run, by its id; of other people's profiles, one run under "".
        plain: of the same without a profiler, by repeat: the run's id and its throughput (samples/s); None for other people's.
    """

    name: str
    what: str
    paths: Mapping[str, Sequence[Path]]
    plain: Mapping[int, tuple[str, float]] | None = None

    @functools.cached_property
    def _read(self) -> tuple[dict[str, Reports], str]:
        reports, missing = {}, []
        for run, own in self.paths.items():
            try:
                reports[run] = gather(own)
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

    @functools.cached_property
    def verdicts(self) -> dict[str, Verdict]:
        return {run: judge(own) for run, own in self.reports.items()}

    @property
    def first(self) -> Reports:
        """The profiles of the first run; empty ones if none can be read."""
        return next(iter(self.reports.values()), Reports())

    @property
    def timelines(self) -> Sequence[Timeline]:
        return self.first.timelines

    @property
    def verdict(self) -> Verdict:
        """On the first run."""
        return next(iter(self.verdicts.values()), undecided(f"not read: {self.missing}", (), ()))


def configurations(results: Path, runs: pd.DataFrame, asked: Iterable[Mapping[str, Any]]) -> dict[str, Profile]:
    """The configurations in which any of `runs` was profiled, by name, in the order of the studies.

    A name is that of the series, with what else identifies the configuration in it, in small letters, digits and dashes.

    Args:
        runs: as of `records.load(results)`. asked: the runs of the studies: run_id, series, ranks, parameters, as their indices
            have them. A profiled run of no study is a configuration of its own, by its id.
    """
    known = runs.set_index("run_id").to_dict("index")
    asked = {one["run_id"]: one for one in asked if one["run_id"] in known}
    for run, row in known.items():
        if pd.notna(row["profile"]):
            asked.setdefault(run, {"run_id": run, "series": run, "ranks": 0, "parameters": {"run": run}})
    profiled: dict[str, list[Mapping[str, Any]]] = {}
    plain: dict[str, dict[int, tuple[str, float]]] = {}
    for run, one in asked.items():
        row = known[run]
        if pd.notna(row["profile"]):
            profiled.setdefault(_key(one, REPEATS), []).append(one)
        else:
            plain.setdefault(_key(one, REPEATS + PROFILING), {})[row["repeat"]] = run, row["throughput"]
    found, firsts = {}, [own[0] for own in profiled.values()]
    for first, own in zip(firsts, profiled.values(), strict=True):
        name, row = _name(first, firsts), known[first["run_id"]]
        ranks = counted(row["world_size"], "rank")
        what = f"{identity.task(row)}, {row['precision']}, {ranks}, {row['global_batch']} samples a step"
        paths = {one["run_id"]: [results / "runs" / one["run_id"]] for one in own}
        found[name] = Profile(name, f"{name}: {what}", paths, plain.get(_key(first, REPEATS + PROFILING), {}))
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
    """What the monitors of these runs recorded (`records.folder.MONITOR`), of runs with at least `least` samples of a device.

    {run: {host's processors or device (`node1, cuda:0`): seconds since the run's first sample, utilisation (%),
    memory_bytes, power_watts, temperature (°C; NaN: not known)}}.
    """
    found = {}
    for run in runs:
        folder = packed.unpacked(results / "runs" / run) / MONITOR
        files = [file for file in sorted(folder.glob("*.csv")) if file.stat().st_size]
        if not files:
            continue
        every = pd.concat(map(pd.read_csv, files), ignore_index=True)
        every = every.dropna(subset=["time", "host", "device"])  # a truncated last line
        every = (
            every[~every.device.str.startswith("rank")]
            .assign(seconds=every.time - every.time.min())
            .rename(columns=SAMPLES)
        )
        places = every.groupby(["host", "device"])
        if places.size().max() >= least:
            found[run] = {", ".join(place): own[["seconds", *SAMPLES.values()]] for place, own in places}
    return found
