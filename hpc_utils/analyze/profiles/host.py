"""Verdicts without the events of a GPU: from the phases that the host marked, or from counters of single kernels.

Both see less than a timeline does, and have medium confidence at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from . import intervals, phases
from .devices import Counters
from .phases import PARTS, Phase
from .rules import communicating, computing, moving_bytes, nothing_seen, unexplained, waiting_for_data
from .thresholds import BACKWARD, EFFICIENCY, EXPOSED, LOADER, Bound
from .timeline import Timeline
from .verdict import Advice, Doubt, Loss, Verdict, beyond, percent, undecided, within

COMMUNICATION = "communication"  # that the backward pass does not hide, beside the phases of the host
RECORDED = (*PARTS, COMMUNICATION)


def checked(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds under `RECORDED`, without those that are not known (NaN).

    Raises:
        ValueError: another name, or a time that is negative or infinite.
    """
    for name, value in seconds.items():
        if name not in RECORDED or value < 0 or math.isinf(value):
            raise ValueError(f"phase {name!r} of {value} s: expected seconds of {', '.join(RECORDED)}")
    return {name: float(seconds[name]) for name in RECORDED if name in seconds and not math.isnan(seconds[name])}


def phases_of(timelines: Sequence[Timeline]) -> dict[str, float]:
    """Seconds under each part of a step that the host's ranges mark, the mean over the ranks that mark phases."""
    found = [spent for one in timelines if (spent := {phase.phase: phase.host_ns for phase in phases.spent(one)})]
    return {
        name: sum(spent.get(name, 0) / 1e9 for spent in found) / len(found)
        for name in PARTS
        if any(name in spent for spent in found)
    }


def unmarked(timelines: Sequence[Timeline]) -> float:
    """Seconds of marked steps that are in no other phase, the mean as of `phases_of`: PyTorch marks loader and optimizer by
    itself, forward and backward only the program does."""
    rest = [
        intervals.difference(phases.windows(one.ranges, Phase.STEP), phases.windows(one.ranges, *PARTS))
        for one in timelines
        if phases.marked(one.ranges)
    ]
    return sum(map(intervals.length, rest)) / 1e9 / max(len(rest), 1)


def by_phases(
    seconds: Mapping[str, float], timelines: Sequence[Timeline], remarks: tuple[str, ...], rest: float = 0.0
) -> Verdict:
    """`seconds`: under `RECORDED`; `rest`: of the step in none of them. Shares are of all of it."""
    total = sum(seconds.values()) + rest
    remarks = (*remarks, "no GPU events: the host's phases decide, and waiting inside a phase is not visible")
    if not total:
        return undecided("the phases take no time", (), nothing_seen(), remarks)
    shares = {name: value / total for name, value in seconds.items()}
    data, wire, other = shares.get(Phase.DATA), shares.get(COMMUNICATION), rest / total
    forward, backward, optimizer = (shares.get(name, 0.0) for name in PARTS[1:])
    work = forward + backward + optimizer
    limits = {Phase.DATA: LOADER, COMMUNICATION: EXPOSED}
    evidence = [
        percent(f"{name} phase, of the step", share, "<" if name in limits else "", limits.get(name))
        for name, share in shares.items()
    ]
    if other:
        evidence.append(percent("in no phase, of the step", other))
    doubts, losses = [Doubt(0.6, "from the phases of the host only")], []
    if data is None:
        doubts.append(Doubt(0.7, "waits for data are not marked"))
    elif data >= LOADER:
        losses.append(waiting_for_data(data, beyond(data, LOADER), data))
    if wire is not None and wire >= EXPOSED:
        losses.append(communicating(wire, Doubt(0.7, "waiting for slower ranks is counted too")))
    if wire is None and forward and _several(timelines):
        excess = max(backward - BACKWARD * forward, 0.0)
        evidence.append(percent("backward beyond two forward passes", excess, "<", EXPOSED))
        doubts.append(Doubt(0.7, "the all-reduce is inside the backward phase"))
        if excess >= EXPOSED:
            losses.append(communicating(excess, Doubt(0.6, "guessed from the length of the backward phase")))
    if not losses and not work:
        reason = "neither forward nor backward nor optimizer is among the phases"
        return undecided(reason, evidence, unexplained(), remarks)
    if not losses and other > work:
        reason = f"{other:.0%} of the step is in no marked phase"
        return undecided(reason, evidence, unexplained(), remarks)
    if not losses:
        reason = f"forward, backward and optimizer take {work:.0%} of the step"
        inside = Advice(
            "profile what the phases are made of: -p profile=torch, or cpu", "tells where the time goes inside"
        )
        advice = [inside, Advice("more devices: computing takes the time", "at most in proportion")]
        losses.append(Loss(Bound.COMPUTE, work, within([(data, LOADER), (wire, EXPOSED)]), "", reason, advice))
    chosen = max(losses, key=lambda loss: loss.share)
    return chosen.verdict(doubts, evidence, remarks, of="step")


def by_counters(measured: Counters, remarks: tuple[str, ...]) -> Verdict:
    """What limits the kernels that were measured, which is not what limits the run."""
    evidence = measured.evidence()
    whole = Advice("profile whole steps too: -p profile=torch, or nsys", "tells what the run waits for")
    if measured.moving is None:
        sections = "collect ncu's sections SpeedOfLight and MemoryWorkloadAnalysis"
        reason = "the report has no utilisation of the SMs or of the memory"
        return undecided(reason, evidence, [Advice(sections, "tells what they reach"), whole], remarks)
    if not measured.efficiency > EFFICIENCY:
        larger = "a larger batch, or fewer and fused kernels: more work a launch"
        reason = "the measured kernels reach less than half of every peak: latency limits them, or they are too small"
        return undecided(reason, evidence, [Advice(larger, "as far as they are too small"), whole], remarks)
    bound, best, what, advice = Bound.COMPUTE, measured.sm, "what the SMs can do", computing()
    if measured.moving:
        bound, best, what, advice = Bound.MEMORY, measured.dram, "the memory's bandwidth", moving_bytes(1.0)
    reason = f"the measured kernels reach {best:.0%} of {what}; the rest of the run was not measured"
    advice = [*(Advice(one.action, "of the measured kernels' time only") for one in advice[:2]), whole]
    return Loss(bound, best, beyond(best, EFFICIENCY), "", reason, advice).verdict([Doubt(0.5)], evidence, remarks)


def _several(timelines: Sequence[Timeline]) -> bool:
    return any((one.world_size or 1) > 1 for one in timelines) or len({one.place for one in timelines}) > 1
