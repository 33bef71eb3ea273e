"""Runs that a profiler watched, by configuration, and the same configurations where none did."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

# What may differ between repeats of one configuration, and between a run that is watched and one that is not.
REPEATS = ("seed", "repeat")
WATCHING = ("profile", "profile_steps", "monitor_seconds")


@dataclass(frozen=True)
class Configuration:
    """One configuration that was profiled.

    Attributes:
        name: of its series, and of what else tells it from the series' others, in small letters, digits and dashes.
        what: it in words.
        runs: ids of its profiled runs, a repeat each.
        plain: of the same without profile, by repeat, the run's id and its throughput (samples/s).
    """

    name: str
    what: str
    runs: tuple[str, ...]
    plain: Mapping[int, tuple[str, float]]


def configurations(runs: pd.DataFrame, asked: Iterable[Mapping[str, Any]]) -> list[Configuration]:
    """The configurations that any of `runs` was profiled in, in the order in which they were asked for.

    Args:
        runs: as of `records.load`. asked: what studies asked for: run_id, series, ranks, parameters, as their indices
            have it. A profiled run that no study asked for is a configuration of its own, by its id.
    """
    known = runs.set_index("run_id")
    asked = {one["run_id"]: one for one in asked if one["run_id"] in known.index}
    asked |= {run: _alone(run) for run in known.index[known.profile.notna()] if run not in asked}
    watched: dict[str, list[str]] = {}
    for run, one in asked.items():
        if pd.notna(known.profile[run]):
            watched.setdefault(_key(one, REPEATS), []).append(run)
    plain: dict[str, dict[int, tuple[str, float]]] = {}
    for run, one in asked.items():
        if pd.isna(known.profile[run]):
            own = plain.setdefault(_key(one, REPEATS + WATCHING), {})
            own[int(known["repeat"][run])] = run, float(known.throughput[run])
    first = {key: asked[own[0]] for key, own in watched.items()}
    names = _names(list(first.values()))
    return [
        Configuration(name, _what(name, known.loc[own[0]]), tuple(own), plain.get(_key(one, REPEATS + WATCHING), {}))
        for name, (key, own), one in zip(names, watched.items(), first.values(), strict=True)
    ]


def _alone(run: str) -> dict[str, Any]:
    return {"run_id": run, "series": run, "ranks": 0, "parameters": {"run": run}}


def _key(one: Mapping[str, Any], free: Iterable[str]) -> str:
    parameters = {name: value for name, value in one["parameters"].items() if name not in free}
    return json.dumps([one["ranks"], parameters], sort_keys=True, default=str)


def _names(firsts: list[Mapping[str, Any]]) -> list[str]:
    """The series; behind it the ranks and parameters in which it has several."""
    found = []
    for one in firsts:
        of_series = [other for other in firsts if other["series"] == one["series"]]
        parts = [one["series"]]
        if len({other["ranks"] for other in of_series}) > 1:
            parts.append(str(one["ranks"]))
        for name, value in one["parameters"].items():
            if name not in REPEATS and any(other["parameters"].get(name) != value for other in of_series):
                parts.append(str(value))
        found.append(re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-"))
    return found


def _what(name: str, run: pd.Series) -> str:
    ranks = f"{run.world_size} rank{'s' if run.world_size > 1 else ''}"
    return f"{name}: {run.workload} on {run.dataset}, {run.precision}, {ranks}, {run.global_batch} samples a step"
