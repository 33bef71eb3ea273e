"""What a profile and the verdict on it say, as one row of a table: a column a quantity, with its interval where repeats give one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze import stats

from . import phases
from . import thresholds as bounds
from .devices import FEW_OPERATIONS, Devices
from .readers import Reports
from .timeline import Timeline
from .verdict import Verdict

NS = 1e-9  # s
PLACES = ("first", "second", "third")  # of advice
SHARES = {  # column: attribute of `Devices`, a share of the devices' time
    "busy": "busy", "computing": "computing", "exposed": "exposed", "wire": "wire", "waiting": "waiting", "loader": "loader",
    "outside": "outside", "remaining": "remaining", "copies": "copies",
}  # fmt: skip
PHASES = ("data", "forward", "backward", "optimizer", "communication")


def thresholds() -> pd.DataFrame:
    """The shares that verdicts are decided by: settings, not measurements."""
    row = {
        "busy": bounds.UTILISATION, "wire": bounds.EXPOSED, "waiting": bounds.WAITING, "loader": bounds.LOADER,
        "copies": bounds.COPIES, "few_operations": bounds.LOW_INTENSITY,
    }  # fmt: skip
    return pd.DataFrame([row])


def of_devices(name: str, what: str, timelines: Sequence[Timeline], found: Verdict) -> dict[str, Any]:
    """The row of a profile whose devices were recorded.

    Columns: name, what; `SHARES`, idle, few_operations (of the compute kernels' time), launched_late (of the idle time without
    other reason); median_kernel, span, step (s, the median of the host's marks); ranks, world, steps, pageable; straggler and what it
    costs the others; as of `judged`. What is not known is absent.
    """
    devices = Devices.of([one for one in timelines if one.worked])
    ranks = len({one.place for one in timelines})
    seconds = step_seconds(timelines)
    row: dict[str, Any] = {"name": name, "what": what}
    row |= {column: getattr(devices, attribute) for column, attribute in SHARES.items()}
    row |= {
        "idle": 1 - devices.busy, "few_operations": devices.class_share(FEW_OPERATIONS),
        "median_kernel": devices.median_kernel * NS, "span": max(part.span_ns for part in devices.parts) * NS, "ranks": ranks,
        "world": max(ranks, *(one.world_size or 1 for one in timelines)), "steps": devices.steps,
        "pageable": devices.pageable_copies, "step": median(seconds) if seconds else None,
    }  # fmt: skip
    if devices.remaining and devices.late is not None:
        row["launched_late"] = devices.late / devices.remaining
    if devices.matched is not None and devices.matched.bus_bandwidth:
        row["bus_bandwidth"] = devices.matched.bus_bandwidth
    if (one := devices.straggler) is not None:
        others = [part.idle_ns * NS for part in devices.parts]
        own = others.pop(one.column)
        row |= {
            "straggler": one.label, "caused": one.caused, "last": one.last, "turns": one.of, "behind": one.behind_ns * NS,
            "straggler_idle": own, "others_idle": median(others),
        }  # fmt: skip
    return {column: value for column, value in (row | judged([found])).items() if value is not None}


def of_phases(name: str, what: str, runs: Mapping[str, tuple[Mapping[str, float], Verdict]]) -> dict[str, Any]:
    """The row of one configuration's runs on a processor: medians over repeats, with intervals.

    `runs`: by id, seconds a step in each phase (`readers.Reports.phases`), and the verdict. Columns: name, what; shares of
    the step in `PHASES`, and step (s), each with `_low` and `_high`; repeats, runs; as of `judged`.
    """
    row: dict[str, Any] = {"name": name, "what": what, "repeats": len(runs), "runs": tuple(runs)}
    totals = [sum(seconds.values()) for seconds, _ in runs.values()]
    measured = {"step": totals}
    for phase in PHASES:
        if all(phase in seconds for seconds, _ in runs.values()):
            each = zip(runs.values(), totals, strict=True)
            measured[phase] = [seconds[phase] / total for (seconds, _), total in each]
    for column, values in measured.items():
        found = (
            stats.median(values) if min(values) > 0 else stats.Estimate(median(values), float("nan"), float("nan"), 0)
        )
        row |= {column: found.value, f"{column}_low": found.low, f"{column}_high": found.high}
    return row | judged([found for _, found in runs.values()])


def of_configuration(name: str, what: str, found: Mapping[str, tuple[Reports, Verdict]]) -> dict[str, Any]:
    """The row of one configuration's profiled runs: by the devices of the first run where any were recorded, else by phases; {}
    without either. `found`: by run id."""
    first, (reports, decided) = next(iter(found.items()))
    if any(one.worked for one in reports.timelines):
        return of_devices(name, what, reports.timelines, decided) | {"runs": (first,)}
    phased = {run: (own.phases, decided) for run, (own, decided) in found.items() if own.phases}
    return of_phases(name, what, phased) if phased else {}


def judged(found: Sequence[Verdict]) -> dict[str, Any]:
    """The commonest verdict of repeats: verdict, certainty (a word) and confidence of the least sure, agreeing (repeats that come to
    it) of judged; of each advice try_<place> and at_most_<place> (throughput over today's, with its interval)."""
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
            column = f"at_most_{place}"
            several = stats.median(most) if len(found) > 1 else stats.Estimate(most[0], float("nan"), float("nan"), 1)
            row |= {column: several.value, f"{column}_low": several.low, f"{column}_high": several.high}
    return row


def advised(found: Verdict) -> dict[str, Any]:
    """The verdict, how sure it is, what to try first and what that gives at most, in words."""
    first = found.advice[0] if found.advice else None
    row = {"verdict": found.bound, "certainty": found.certainty, "try_first": first.action if first else ""}
    return row | {"gain_at_most": first.gain if first else ""}


def with_promises(gains: Sequence[Mapping[str, Any]], profiles: pd.DataFrame) -> pd.DataFrame:
    """`gains` (name, other, which, change, and as of `measured_gain` or `profiled_gain`) with `before`, the verdict on the profile `name`,
    and at_most, what its advice `which` promises (NaN: none was followed)."""
    rows = []
    for one in gains:
        own = profiles[profiles.name == one["name"]].iloc[0] if (profiles.name == one["name"]).any() else pd.Series()
        rows.append(
            dict(one) | {"before": own.get("verdict"), "at_most": own.get(f"at_most_{one['which']}", float("nan"))}
        )
    found = pd.DataFrame(rows)
    lacking = [name for name in ("low", "high", "repeats", "verdict") if name not in found]
    return found.reindex(columns=[*found, *lacking]) if rows else found


def measured_gain(before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]]) -> dict[str, Any]:
    """Throughput after a change over that before, of runs that no profiler watched: gain (the median of the ratios within a repeat),
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
    mean = sum(first) / len(first) / (sum(second) / len(second))
    return {"gain": mean, "median_gain": median(first) / median(second)}


def step_seconds(timelines: Sequence[Timeline]) -> list[float]:
    """Times (s) of the steps that the host marked."""
    return [ns * NS for one in timelines for ns in np.subtract(*phases.steps(one.ranges)[::-1]).tolist()]
