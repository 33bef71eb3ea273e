"""What profiles and the verdicts on them say, as named values: `profile.<name>.<quantity>`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from hpc_utils.analyze import stats
from hpc_utils.analyze.profiles import phases
from hpc_utils.analyze.profiles.devices import FEW_OPERATIONS, Devices
from hpc_utils.analyze.profiles.readers import Reports
from hpc_utils.analyze.profiles.thresholds import CITED
from hpc_utils.analyze.profiles.timeline import Timeline
from hpc_utils.analyze.profiles.verdict import Verdict
from hpc_utils.analyze.value import Value

NS = 1e-9  # s
PLACES = ("first", "second", "third")  # of advice

# Quantity: attribute of `Devices`, and what goes on in that share of their time.
SHARES = {
    "busy": ("busy", "the device does anything at all"),
    "compute": ("computing", "kernels run that do not communicate"),
    "exposed-communication": ("exposed", "communication runs and nothing is computed beside it"),
    "exposed-wire": ("wire", "communication that nothing hides is moving bytes"),
    "exposed-waiting": ("waiting", "communication that nothing hides is waiting for other ranks"),
    "loader-wait": ("loader", "the device is idle while the host is known to wait for data"),
    "between-steps": ("outside", "the device is idle between marked steps, where nothing else is marked"),
    "idle-otherwise": ("remaining", "the device is idle for no reason that the marks tell"),
    "input-copies": ("copies", "input is copied to the device with nothing beside it"),
}
PHASES = {
    "data": "the rank waits for data",
    "forward": "the forward pass runs",
    "backward": "the backward pass computes",
    "optimizer": "the optimizer runs",
    "communication": "communication runs that the backward pass does not hide",
}


def thresholds() -> list[Value]:
    """What verdicts are told by: settings of ours, not measurements."""
    return [
        Value(f"profile.threshold.{name}", share, "share", f"A threshold of the verdict: {says}.")
        for name, (share, says) in CITED.items()
    ]


def of_devices(
    name: str,
    timelines: Sequence[Timeline],
    found: Verdict,
    *,
    what: str,
    runs: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
) -> list[Value]:
    """Of a run whose devices were seen: what their time went to, who is waited for, and the verdict.

    Args:
        what: the run in words, as they stand behind "of". runs, files: the evidence.
    """
    devices = Devices.of([one for one in timelines if one.worked])
    ranks = len({one.place for one in timelines})
    told = _Teller(name, what, runs=runs, files=files)
    for quantity, (attribute, says) in SHARES.items():
        told.add(quantity, getattr(devices, attribute), "share", f"Share of the devices' time in which {says}")
    told.add("idle", 1 - devices.busy, "share", "Share of the devices' time in which nothing runs")
    told.add("few-operations", devices.class_share(FEW_OPERATIONS), "share",
             "Share of the compute kernels' time that is in kernels of few operations a byte")  # fmt: skip
    if devices.remaining and devices.late is not None:
        told.add("launched-late", devices.late / devices.remaining, "share",
                 "Share of the idle time without other reason in which what comes next was not launched yet")  # fmt: skip
    told.add("median-kernel", devices.median_kernel * NS, "s", "Median time of a kernel that computes")
    told.add("span", max(part.span_ns for part in devices.parts) * NS, "s", "Time watched, of the device with most")
    told.add("ranks", ranks, "count", "Ranks whose profile is at hand")
    told.add("world", max(ranks, *(one.world_size or 1 for one in timelines)), "count", "Ranks that train together")
    told.add("steps", devices.steps, "count", "Marked steps that were watched, of the rank with fewest")
    told.add("pageable", devices.pageable_copies, "count",
             "Copies from or to memory of the host that is not pinned")  # fmt: skip
    if seconds := _steps(timelines):
        told.add("step", median(seconds), "s", "Median time of a step, by the host's marks")
    told.ranks_apart(devices)
    told.straggler(devices)
    told.verdict([found])
    return told.values


def of_phases(name: str, runs: Mapping[str, tuple[Mapping[str, float], Verdict]], *, what: str) -> list[Value]:
    """Of one configuration's runs on a processor: what their steps went to, medians over repeats, and the verdict.

    Args:
        runs: by run id, seconds a step under data, forward and so on (`reports.Reports.phases`), and the verdict on it.
    """
    told = _Teller(name, what, runs=tuple(runs))
    totals = [sum(seconds.values()) for seconds, _ in runs.values()]
    for phase, says in PHASES.items():
        if all(phase in seconds for seconds, _ in runs.values()):
            shares = [seconds[phase] / total for (seconds, _), total in zip(runs.values(), totals, strict=True)]
            told.add(phase, shares, "share", f"Share of the step in which {says}")
    told.add("step", totals, "s", "Time of a step, the mean over a run that a profiler watched")
    told.verdict([found for _, found in runs.values()])
    return told.values


def of_configuration(
    name: str, found: Mapping[str, tuple[Reports, Verdict]], *, what: str, results: Path
) -> list[Value]:
    """Of one configuration's profiled runs: by their devices, those of the first run, where any were seen, else by phases.

    Args:
        found: by run id, what its profilers left, and the verdict on it. results: the result set they lie in.
    """
    first, (told, judged) = next(iter(found.items()))
    if any(one.worked for one in told.timelines):
        files = tuple(Path(one.source).relative_to(results).as_posix() for one in told.timelines)
        return of_devices(name, told.timelines, judged, what=what, runs=(first,), files=tuple(dict.fromkeys(files)))
    phased = {run: (told.phases, judged) for run, (told, judged) in found.items() if told.phases}
    return of_phases(name, phased, what=what) if phased else []


def measured_gain(
    name: str,
    other: str,
    before: Mapping[int, tuple[str, float]],
    after: Mapping[int, tuple[str, float]],
    *,
    change: str,
    what: str,
) -> list[Value]:
    """`profile.<name>.gain.<other>`: throughput with `change` over that without, of runs that no profiler watched; and
    `...told`: whether that is faster or slower, as far as the interval tells. Nothing without a repeat of both.

    `before`, `after`: run id and samples/s by repeat. Ratios are formed within a repeat, whose runs lie closest in time, and
    the median of them is told.
    """
    pairs = [(before[repeat], after[repeat]) for repeat in sorted(before.keys() & after.keys())]
    if not pairs:
        return []
    told = _Teller(name, what, runs=tuple(run for pair in pairs for run, _ in pair))
    found = stats.median([faster / slower for (_, slower), (_, faster) in pairs])
    told.say(f"gain.{other}", found.value, "ratio", f"Measured throughput {change} over that without", found)
    words = "faster" if found.low > 1 else "slower" if found.high < 1 else "not told from no change"
    told.say(f"gain.{other}.told", words, "text", f"Whether training is faster or slower {change}")
    return told.values


def watched_gain(
    name: str, other: str, before: Sequence[Timeline], after: Sequence[Timeline], *, change: str, what: str, files: tuple[str, ...]
) -> list[Value]:  # fmt: skip
    """`profile.<name>.gain.<other>`, and the same with `.median`: steps a second with `change` over those without, of two
    profiles; by the mean of their marked steps, and by the median. Nothing where one of them marks none."""
    told = _Teller(name, what, files=files)
    first, second = _steps(before), _steps(after)
    if first and second:
        says = f"Steps a second {change} over those without"
        mean = sum(first) / len(first) / (sum(second) / len(second))
        told.add(f"gain.{other}", mean, "ratio", f"{says}, by the mean of the steps watched")
        told.add(f"gain.{other}.median", median(first) / median(second), "ratio", f"{says}, by their median")
    return told.values


def _steps(timelines: Sequence[Timeline]) -> list[float]:
    return [ns * NS for one in timelines for ns in np.subtract(*phases.steps(one.ranges)[::-1]).tolist()]


class _Teller:
    """Collects the values of one profile, which all have the same evidence."""

    def __init__(self, name: str, what: str, *, runs: tuple[str, ...] = (), files: tuple[str, ...] = ()) -> None:
        self.stem, self.what, self.runs, self.files = f"profile.{name}", what, runs, files
        self.values: list[Value] = []

    def say(
        self, quantity: str, value: float | str, unit: str, says: str, estimate: stats.Estimate | None = None
    ) -> None:
        once = 0 if unit in ("count", "text") else 1  # a single profile
        _, low, high, repeats = estimate or (0, math.nan, math.nan, once)
        name, says = f"{self.stem}.{quantity}", f"{says}; of {self.what}."
        self.values.append(Value(name, value, unit, says, low, high, repeats, self.runs, self.files))

    def add(self, quantity: str, value: float | Sequence[float] | None, unit: str, says: str) -> None:
        """What is not known is left out; a sequence holds repeats, of which the median counts."""
        if isinstance(value, Sequence):
            some = all(one > 0 for one in value)
            estimate = stats.median(value) if some else stats.Estimate(median(value), math.nan, math.nan, len(value))
            self.say(quantity, estimate.value, unit, says, estimate)
        elif value is not None:
            self.say(quantity, value if unit == "count" else float(value), unit, says)

    def verdict(self, found: Sequence[Verdict]) -> None:
        """The commonest of the repeats' verdicts, its certainty where that is least, and what it says to try."""
        bound, times = Counter(one.bound for one in found).most_common(1)[0]
        chosen = [one for one in found if one.bound == bound]
        least = min(chosen, key=lambda one: one.confidence)
        self.say("verdict", str(bound), "text", "What limits")
        self.say("certainty", str(least.certainty), "text", "How sure the verdict is, in a word")
        self.add("confidence", least.confidence, "share", "How sure the verdict is, by the least sure repeat")
        self.add("agreeing", times, "count", "Profiled repeats that come to this verdict")
        self.add("judged", len(found), "count", "Profiled repeats")
        for number, (place, advice) in enumerate(zip(PLACES, least.advice, strict=False)):
            self.say(f"try-{place}", advice.action, "text", f"What the verdict says to try {place}")
            most = [one.advice[number].at_most for one in chosen if len(one.advice) > number]
            if None not in most:
                name = "gain-at-most" if place == "first" else f"gain-at-most.{place}"
                says = f"Throughput that the {place} thing to try gives at most, over today's"
                self.add(name, most if len(found) > 1 else most[0], "ratio", says)

    def ranks_apart(self, devices: Devices) -> None:
        """How far apart the ranks are."""
        for quantity, attribute in (("busy", "busy_ns"), ("exposed-communication", "exposed_communication_ns")):
            known = [part for part in devices.parts if getattr(part, attribute) is not None]
            shares = [getattr(part, attribute) / part.span_ns for part in known]
            for word, choose in (("lowest", min), ("highest", max)) if len(shares) > 1 else ():
                says = f"Share of its time in which {SHARES[quantity][1]}, {word} of any rank"
                self.add(f"{quantity}.{word}", choose(shares), "share", says)

    def straggler(self, devices: Devices) -> None:
        """Whom the ranks wait for, if it is one."""
        if devices.matched is not None and devices.matched.bus_bandwidth:
            says = "Bandwidth of the bus, of the wire time of all collectives"
            self.add("bus-bandwidth", devices.matched.bus_bandwidth, "B/s", says)
        one = devices.straggler
        if one is None:
            return
        others = [part.idle_ns * NS for part in devices.parts]
        own = others.pop(one.column)
        self.say("straggler", one.label, "text", "The rank that the others wait for most")
        self.add("straggler.caused", one.caused, "share", "Share of all waiting that is for this rank")
        self.add("straggler.last", one.last, "count", f"How many {one.per}s this rank is the last in")
        self.add("straggler.turns", one.of, "count", f"How many {one.per}s there are")
        says = f"What the others wait for this rank in such a {one.per}, on average; the median"
        self.add("straggler.behind", one.behind_ns * NS, "s", says)
        self.add("straggler.idle", own, "s", "Time that this rank's device is idle")
        self.add("straggler.others-idle", median(others), "s", "Time that the other ranks' devices are idle, median")
