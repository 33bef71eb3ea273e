"""Tables of profiles and their verdicts: one row per profile, with an interval where there are repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze import ablation, stats

from . import phases
from . import thresholds as limits
from .devices import FEW_OPERATIONS, Devices
from .profiled_runs import Profile
from .timeline import Timeline

NS = 1e-9  # s
PLACES = ("first", "second", "third")  # of advice
SHARES = ("busy", "computing", "exposed", "wire", "waiting", "loader", "outside", "remaining", "copies")
PHASES = (*phases.PARTS, "communication")


def thresholds() -> pd.DataFrame:
    """The shares that verdicts are decided by: settings, not measurements."""
    kept = {name: limits.LIMITS[name] for name in ("wire", "waiting", "loader", "copies")}
    return pd.DataFrame([{"busy": limits.UTILISATION} | kept | {"few_operations": limits.LOW_INTENSITY}])


def profiles(found: Iterable[Profile]) -> pd.DataFrame:
    """One row per profile: by the devices of its first run where their work was recorded, else by the phases of all its runs;
    profiles with neither are omitted.

    Columns: name, what, runs. By devices: as of `_devices`. By phases: shares of the step in `PHASES`, and step (s): medians over
    repeats, each with `_low` and `_high`; repeats. Of both: verdict, certainty (a word) and confidence of the least
    certain of the repeats with the commonest verdict, agreeing (how many these are) of judged; of each advice
    try_<place> and at_most_<place> (throughput over today's, with its interval). What is not known is NaN.
    """
    rows = []
    for one in found:
        runs = tuple(run for run, own in one.reports.items() if own.phases)
        if worked := one.first.worked:
            runs = tuple(one.reports)[:1]
            row = _devices(worked)
        elif runs:
            row = _phases([one.reports[run].phases for run in runs])
        else:
            continue
        judged = _judged(one, runs)
        rows.append({"name": one.name, "what": one.what} | row | judged | ({"runs": runs} if any(runs) else {}))
    return pd.DataFrame(rows)


def _devices(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """`SHARES`, idle, few_operations (of the compute kernels' time), launched_late (of the idle time without other reason);
    step (s, the median); straggler, and how it and the others wait."""
    devices = Devices(timelines)
    shares, one = devices.shares, devices.straggler
    row = {name: shares[name] for name in SHARES} | {"few_operations": devices.class_share(FEW_OPERATIONS)}
    row["idle"] = 1 - shares["busy"]
    if len(steps := np.concatenate(devices.steps)):
        row["step"] = np.median(steps) * NS
    if shares["remaining"] and shares["late"] is not None:
        row["launched_late"] = shares["late"] / shares["remaining"]
    if one is not None:
        own, *others = devices.of_straggler("idle_ns")
        row |= {"straggler": one.label, "caused": one.caused, "last": one.last, "turns": one.of}
        row |= {"behind": one.behind_ns * NS, "straggler_idle": own * NS, "others_idle": median(others) * NS}
    return row


def _phases(repeats: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """`repeats`: seconds a step in each phase."""
    spent = pd.DataFrame(repeats)
    step = spent.sum(axis=1)
    row: dict[str, Any] = {"repeats": len(spent)} | stats.median(step).columns("step")
    for phase in PHASES:
        if phase in spent and spent[phase].notna().all():
            row |= stats.median(spent[phase] / step).columns(phase)
    return row


def _judged(one: Profile, runs: Sequence[str]) -> dict[str, Any]:
    found = [one.verdicts[run] for run in runs]
    bound, times = Counter(verdict.bound for verdict in found).most_common(1)[0]
    chosen = [verdict for verdict in found if verdict.bound == bound]
    least = min(chosen, key=lambda verdict: verdict.confidence)
    row = {"verdict": bound, "certainty": least.certainty, "confidence": least.confidence}
    row |= {"agreeing": times, "judged": len(found)}
    for number, (place, advice) in enumerate(zip(PLACES, least.advice, strict=False)):
        row[f"try_{place}"] = advice.action
        most = [verdict.advice[number].at_most for verdict in chosen if len(verdict.advice) > number]
        if None not in most:
            row |= stats.median(most).columns(f"at_most_{place}")
    return row


def gains(profiles: pd.DataFrame, found: Mapping[str, Profile], tried: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Measured gains of changes, and the upper bounds of the verdicts before them.

    Args:
        profiles: as of `profiles`. found: the profiles by name. tried: (name, name of the same with a change, the advice that
            was followed, of `PLACES` or "", the change in words). Pairs that were not both measured are omitted.

    Columns: name, other, which, change; before (the verdict), at_most (NaN: no advice was followed); and of runs without a
    profiler gain (throughput over that before, the median of the ratios within a repeat), low, high, repeats, verdict, runs;
    of other people's profiles gain (steps a second over those before, by their mean) and median_gain (by the median).
    """
    promised = {row["name"]: row for row in profiles.to_dict("records")}
    rows = []
    for name, other, which, change in tried:
        if not {name, other} <= found.keys():
            continue
        before, after = found[name], found[other]
        gain = _profiled_gain(before, after) if before.plain is None else _measured_gain(before.plain, after.plain)
        if gain:
            own = promised.get(name, {})
            row = {"name": name, "other": other, "which": which, "change": change, "before": own.get("verdict")}
            rows.append(row | gain | {"at_most": own.get(f"at_most_{which}", np.nan)})
    return pd.DataFrame(rows)


def _measured_gain(before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]]) -> dict[str, Any]:
    """`before`, `after`: run id and samples/s by repeat."""
    pairs = [(before[repeat], after[repeat]) for repeat in sorted(before.keys() & after.keys())]
    if not pairs:
        return {}
    found = stats.median([faster / slower for (_, slower), (_, faster) in pairs])
    runs = tuple(run for pair in pairs for run, _ in pair)
    return found.measure("gain") | {"verdict": ablation.verdict(found.low, found.high), "runs": runs}


def _profiled_gain(before: Profile, after: Profile) -> dict[str, Any]:
    first, second = (
        [ns for one in own.timelines for ns in np.subtract(*phases.steps(one.ranges)[::-1])]
        for own in (before, after)
    )
    if not first or not second:
        return {}
    unrepeated = {"low": np.nan, "high": np.nan, "repeats": np.nan, "verdict": None}
    gain = {"gain": np.mean(first) / np.mean(second), "median_gain": median(first) / median(second)}
    return unrepeated | gain
