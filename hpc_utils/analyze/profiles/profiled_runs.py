"""Runs that were profiled, by configuration, and the runs of the same configuration without a profiler."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

# Parameters that may differ between repeats of one configuration, and between a profiled run and one that is not.
REPEATS = ("seed", "repeat")
PROFILING = ("profile", "profile_steps", "monitor_seconds")


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


def configurations(runs: pd.DataFrame, asked: Iterable[Mapping[str, Any]]) -> list[Configuration]:
    """The configurations in which any of `runs` was profiled, in the order of the studies.

    Args:
        runs: as of `records.load`. asked: the runs of the studies: run_id, series, ranks, parameters, as their indices have
            them. A profiled run of no study is a configuration of its own, by its id.
    """
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
    firsts = [own[0] for own in profiled.values()]
    found = []
    for first, own in zip(firsts, profiled.values(), strict=True):
        name, ids = _name(first, firsts), tuple(one["run_id"] for one in own)
        unprofiled = plain.get(_key(first, REPEATS + PROFILING), {})
        found.append(Configuration(name, _what(name, known.loc[ids[0]]), ids, unprofiled))
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


def _what(name: str, run: pd.Series) -> str:
    ranks = f"{run.world_size} rank{'s' if run.world_size > 1 else ''}"
    return f"{name}: {run.workload} on {run.dataset}, {run.precision}, {ranks}, {run.global_batch} samples a step"
