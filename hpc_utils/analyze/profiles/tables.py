"""Tables of profiles and their verdicts: one row per profile, with an interval where there are repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from .. import ablation, stats
from ..compare import paired
from ..table import tabled
from . import phases
from . import verdict as limits
from .devices import FEW_OPERATIONS, Devices
from .profiled_runs import Profile
from .readers import Reports

NS = 1e-9  # s
PLACES = ("first", "second", "third")  # of advice
SHARES = ("busy", "computing", "exposed", "wire", "waiting", "loader", "outside", "remaining", "copies")
PHASES = (*phases.PARTS, "communication")


@tabled(
    "thresholds",
    "The shares that verdicts are decided by.",
)
def thresholds() -> pd.DataFrame:
    """The shares that verdicts are decided by: settings, not measurements."""
    loss_limits = {name: limits.LIMITS[name] for name in ("wire", "waiting", "loader", "copies")}
    return pd.DataFrame([{"busy": limits.UTILISATION} | loss_limits | {"few_operations": limits.LOW_INTENSITY}])


@tabled(
    "profiles",
    "What the time of each profile goes to, and the verdict on it.",
)
def profiles(read_profiles: Iterable[Profile]) -> pd.DataFrame:
    """One row per profile: by the devices of its first run where their work was recorded, else by the phases of all its runs;
    profiles with neither are omitted.

    Columns: name, what, runs. By devices: as of `_devices`. By phases: shares of the step in `PHASES`, and step (s): medians over
    repeats, each with `_low` and `_high`; repeats. Of both: verdict, certainty (a word) and confidence of the least
    certain of the repeats with the commonest verdict, agreeing (how many these are) of judged; of each advice
    try_<place> and at_most_<place> (throughput over today's, with its interval). What is not known is NaN.
    """
    rows = []
    for profile in read_profiles:
        runs = tuple(run for run, reports in profile.reports.items() if reports.phases)
        if profile.first.worked:
            runs = tuple(profile.reports)[:1]
            row = _devices(profile.first)
        elif runs:
            row = _phases([profile.reports[run].phases for run in runs])
        else:
            continue
        judged = _judged(profile, runs)
        rows.append(
            {"name": profile.name, "what": profile.what} | row | judged | ({"runs": runs} if any(runs) else {})
        )
    return pd.DataFrame(rows)


def _devices(reports: Reports) -> dict[str, Any]:
    """`SHARES`, idle, few_operations (of the compute kernels' time), launched_late (of the idle time without other reason);
    step (s, the median); straggler, and how it and the others wait."""
    devices = Devices(reports)
    shares = devices.shares
    straggler = devices.straggler
    row = {name: shares[name] for name in SHARES}
    row |= {"few_operations": devices.class_share(FEW_OPERATIONS), "idle": 1 - shares["busy"]}
    if len(steps := np.concatenate(devices.steps)):
        row["step"] = np.median(steps) * NS
    if shares["remaining"] and shares["late"] is not None:
        row["launched_late"] = shares["late"] / shares["remaining"]
    if straggler is not None:
        idle_ns, *others_idle_ns = devices.of_straggler("idle_ns")
        row |= {
            "straggler": straggler.label,
            "caused": straggler.caused,
            "last": straggler.last,
            "turns": straggler.of,
            "behind": straggler.behind_ns * NS,
            "straggler_idle": idle_ns * NS,
            "others_idle": median(others_idle_ns) * NS,
        }
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


def _judged(profile: Profile, runs: Sequence[str]) -> dict[str, Any]:
    verdicts = [profile.verdicts[run] for run in runs]
    bound, times = Counter(verdict.bound for verdict in verdicts).most_common(1)[0]
    chosen = [verdict for verdict in verdicts if verdict.bound == bound]
    least = min(chosen, key=lambda verdict: verdict.confidence)
    row = {
        "verdict": bound,
        "certainty": least.certainty,
        "confidence": least.confidence,
        "agreeing": times,
        "judged": len(verdicts),
    }
    for number, (place, advice) in enumerate(zip(PLACES, least.advice, strict=False)):
        row[f"try_{place}"] = advice.action
        most = [verdict.advice[number].at_most for verdict in chosen if len(verdict.advice) > number]
        if None not in most:
            row |= stats.median(most).columns(f"at_most_{place}")
    return row


@tabled(
    "promises",
    "What each change gave, beside what the verdict before it promises at most.",
    "change before gain repeats verdict at_most",
    measure="gain",
    missing="runs of a profiled configuration and of one with a change, without a profiler",
)
def gains(profiles: pd.DataFrame, by_name: Mapping[str, Profile], tried: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Measured gains of changes, and the upper bounds of the verdicts before them.

    Args:
        profiles: as of `profiles`. by_name: the profiles by name. tried: (name, name of the same with a change, the
            advice that was followed, of `PLACES` or "", the change in words).
            Pairs that were not both measured are omitted.

    Columns: name, other, which, change; before (the verdict), at_most (NaN: no advice was followed); and of runs without a
    profiler gain (throughput over that before, the median of the ratios within a repeat), gain_low, gain_high, repeats, verdict, runs;
    of other people's profiles gain (steps a second over those before, by their mean) and median_gain (by the median).
    """
    promised = {row["name"]: row for row in profiles.to_dict("records")}
    rows = []
    for name, changed, which, change in tried:
        if not {name, changed} <= by_name.keys():
            continue
        before = by_name[name]
        after = by_name[changed]
        gain = _profiled_gain(before, after) if before.plain is None else _measured_gain(before.plain, after.plain)
        if gain:
            verdict_row = promised.get(name, {})
            row = {
                "name": name,
                "other": changed,
                "which": which,
                "change": change,
                "before": verdict_row.get("verdict"),
            }
            rows.append(row | gain | {"at_most": verdict_row.get(f"at_most_{which}", np.nan)})
    return pd.DataFrame(rows)


def _measured_gain(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, Any]:
    """`before`, `after`: as of `Profile.plain`."""
    gain, run_ids = paired(after, before)
    if not gain.repeats:
        return {}
    return gain.measure("gain") | {"verdict": ablation.verdict(gain.low, gain.high), "runs": run_ids}


def _profiled_gain(before: Profile, after: Profile) -> dict[str, Any]:
    first, second = (
        [ns for timeline in profile.timelines for ns in np.subtract(*phases.steps(timeline.ranges)[::-1])]
        for profile in (before, after)
    )
    if not first or not second:
        return {}
    unrepeated = {"gain_low": np.nan, "gain_high": np.nan, "repeats": np.nan, "verdict": None}
    gain = {"gain": np.mean(first) / np.mean(second), "median_gain": median(first) / median(second)}
    return unrepeated | gain
