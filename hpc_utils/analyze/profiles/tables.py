"""Tables of profiles and their verdicts: one row per profile, with an interval where there are repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze import stats

from . import phases
from . import thresholds as limits
from .devices import FEW_OPERATIONS, Devices
from .profiled_runs import Profile
from .timeline import Timeline
from .verdict import Verdict

NS = 1e-9  # s
PLACES = ("first", "second", "third")  # of advice
SHARES = ("busy", "computing", "exposed", "wire", "waiting", "loader", "outside", "remaining", "copies")
PHASES = ("data", "forward", "backward", "optimizer", "communication")


def thresholds() -> pd.DataFrame:
    """The shares that verdicts are decided by: settings, not measurements."""
    row = {
        "busy": limits.UTILISATION,
        **{name: limits.LIMITS[name] for name in ("wire", "waiting", "loader", "copies")},
    }
    return pd.DataFrame([row | {"few_operations": limits.LOW_INTENSITY}])


def profiles(found: Iterable[Profile]) -> pd.DataFrame:
    """One row per profile: by the devices of its first run where their work was recorded, else by the phases of all its runs;
    profiles with neither are omitted. Columns as of `of_devices` and `of_phases`."""
    rows = []
    for one in found:
        first = next(iter(one.reports), "")
        if any(line.worked for line in one.timelines):
            row = of_devices(one.timelines, one.verdict) | ({"runs": (first,)} if first else {})
        else:
            row = of_phases({run: (own.phases, one.verdicts[run]) for run, own in one.reports.items() if own.phases})
        if row:
            rows.append({"name": one.name, "what": one.what} | row)
    return pd.DataFrame(rows)


def of_devices(timelines: Sequence[Timeline], found: Verdict) -> dict[str, Any]:
    """The row of a profile whose devices were recorded.

    Columns: `SHARES`, idle, few_operations (of the compute kernels' time), launched_late (of the idle time without
    other reason); median_kernel, span, step (s, the median of the host's marks); ranks, world, steps, pageable; straggler and what it
    costs the others; as of `judged`. What is not known is absent.
    """
    devices = Devices.of([one for one in timelines if one.worked])
    ranks = len({one.place for one in timelines})
    seconds = step_seconds(timelines)
    row: dict[str, Any] = {name: getattr(devices, name) for name in SHARES} | {
        "idle": 1 - devices.busy, "few_operations": devices.class_share(FEW_OPERATIONS),
        "median_kernel": devices.median_kernel * NS, "span": max(part.span_ns for part in devices.parts) * NS, "ranks": ranks,
        "world": max(ranks, *(one.world_size or 1 for one in timelines)), "steps": devices.steps,
        "pageable": devices.pageable_copies, "step": median(seconds) if seconds else None,
    }  # fmt: skip
    if devices.remaining and devices.late is not None:
        row["launched_late"] = devices.late / devices.remaining
    if devices.matched is not None:
        row["bus_bandwidth"] = devices.matched.bus_bandwidth
    if (one := devices.straggler) is not None:
        others = [part.idle_ns * NS for part in devices.parts]
        own = others.pop(one.column)
        row |= {
            "straggler": one.label, "caused": one.caused, "last": one.last, "turns": one.of, "behind": one.behind_ns * NS,
            "straggler_idle": own, "others_idle": median(others),
        }  # fmt: skip
    return {column: value for column, value in (row | judged([found])).items() if value is not None}


def of_phases(runs: Mapping[str, tuple[Mapping[str, float], Verdict]]) -> dict[str, Any]:
    """The row of one configuration's runs on a processor: medians over repeats, with intervals; {} without runs.

    `runs`: by id, seconds a step in each phase (`readers.Reports.phases`), and the verdict. Columns: shares of
    the step in `PHASES`, and step (s), each with `_low` and `_high`; repeats, runs; as of `judged`.
    """
    if not runs:
        return {}
    spent = pd.DataFrame([seconds for seconds, _ in runs.values()])
    step = spent.sum(axis=1)
    row: dict[str, Any] = {"repeats": len(runs), "runs": tuple(runs)} | _median("step", step)
    for phase in PHASES:
        if phase in spent and spent[phase].notna().all():
            row |= _median(phase, spent[phase] / step)
    return row | judged([found for _, found in runs.values()])


def _median(column: str, values: Sequence[float]) -> dict[str, float]:
    """With its interval, which logarithms of zero do not have."""
    found = stats.median(list(values)) if min(values) > 0 else stats.Estimate(median(values), np.nan, np.nan, 0)
    return {column: found.value, f"{column}_low": found.low, f"{column}_high": found.high}


def judged(found: Sequence[Verdict]) -> dict[str, Any]:
    """The commonest verdict of repeats: verdict, certainty (a word) and confidence of the least certain, agreeing (repeats with
    this verdict) of judged; of each advice try_<place> and at_most_<place> (throughput over today's, with its interval)."""
    bound, times = Counter(one.bound for one in found).most_common(1)[0]
    chosen = [one for one in found if one.bound == bound]
    least = min(chosen, key=lambda one: one.confidence)
    row = {
        "verdict": bound, "certainty": least.certainty, "confidence": least.confidence, "agreeing": times,
        "judged": len(found),
    }  # fmt: skip
    for number, (place, advice) in enumerate(zip(PLACES, least.advice, strict=False)):
        row[f"try_{place}"] = advice.action
        most = [one.advice[number].at_most for one in chosen if len(one.advice) > number]
        if None not in most:
            row |= _median(f"at_most_{place}", most)
    return row


def verdicts(found: Iterable[Profile]) -> pd.DataFrame:
    """The verdict on each profile, its certainty, what to try first and what that gives at most, in words."""
    rows = []
    for one in (one for one in found if one.reports):
        first = one.verdict.advice[0] if one.verdict.advice else None
        row = {"profile": one.name, "verdict": one.verdict.bound, "certainty": one.verdict.certainty}
        rows.append(row | {"try_first": first.action if first else "", "gain_at_most": first.gain if first else ""})
    return pd.DataFrame(rows)


def gains(profiles: pd.DataFrame, found: Mapping[str, Profile], tried: Iterable[Sequence[str]]) -> pd.DataFrame:
    """Measured gains of changes, and the upper bounds of the verdicts before them.

    Args:
        profiles: as of `profiles`. found: the profiles by name. tried: (name, name of the same with a change, the advice that
            was followed, of `PLACES` or "", the change in words). Pairs that were not both measured are omitted.

    Columns: name, other, which, change; as of `measured_gain`, or of `profiled_gain` for other people's profiles; before
    (the verdict), at_most (NaN: no advice was followed).
    """
    promised = {row["name"]: row for row in profiles.to_dict("records")}
    rows = []
    for name, other, which, change in tried:
        if not {name, other} <= found.keys():
            continue
        before, after = found[name], found[other]
        if before.plain is None:
            gain = profiled_gain(before.timelines, after.timelines)
        else:
            gain = measured_gain(before.plain, after.plain)
        if gain:
            row = {"name": name, "other": other, "which": which, "change": change}
            row |= {"gain": np.nan, "low": np.nan, "high": np.nan, "repeats": np.nan, "verdict": None} | gain
            own = promised.get(name, {})
            rows.append(row | {"before": own.get("verdict"), "at_most": own.get(f"at_most_{which}", np.nan)})
    return pd.DataFrame(rows)


def measured_gain(before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]]) -> dict[str, Any]:
    """Throughput after a change over that before, of runs without a profiler: gain (the median of the ratios within a repeat),
    low, high, repeats, verdict, runs; {} without a repeat of both. `before`, `after`: run id and samples/s by repeat."""
    pairs = [(before[repeat], after[repeat]) for repeat in sorted(before.keys() & after.keys())]
    if not pairs:
        return {}
    found = stats.median([faster / slower for (_, slower), (_, faster) in pairs])
    word = "faster" if found.low > 1 else "slower" if found.high < 1 else "not told from no change"
    row = {"gain": found.value, "low": found.low, "high": found.high, "repeats": found.repeats, "verdict": word}
    return row | {"runs": tuple(run for pair in pairs for run, _ in pair)}


def profiled_gain(before: Sequence[Timeline], after: Sequence[Timeline]) -> dict[str, Any]:
    """Steps a second of one profile over those of another: gain by the mean of their marked steps, median_gain by the median; {} where
    one of them marks none."""
    first, second = step_seconds(before), step_seconds(after)
    if not first or not second:
        return {}
    return {"gain": np.mean(first) / np.mean(second), "median_gain": median(first) / median(second)}


def step_seconds(timelines: Sequence[Timeline]) -> list[float]:
    """Times (s) of the steps that the host marked."""
    return [ns * NS for one in timelines for ns in np.subtract(*phases.steps(one.ranges)[::-1]).tolist()]
