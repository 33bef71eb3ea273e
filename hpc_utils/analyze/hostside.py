"""Verdicts without the events of a GPU: from what the host says of its phases, or from counters of some kernels.

Both see less than a timeline does, and are at most of medium confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from . import measures, remedies
from .measures import Counters, percent
from .timeline import Timeline, intervals, phases
from .verdict import (
    COMMUNICATION,
    COMPUTE,
    EFFICIENCY,
    EXPOSED,
    INPUT,
    LOADER,
    LOST,
    MEMORY,
    NOT_ENOUGH,
    Doubt,
    Loss,
    Verdict,
    beyond,
    within,
)

TOLD = ("data", "forward", "backward", "optimizer", "communication")
BACKWARD = 2.0  # forward passes that a backward pass takes: what it takes longer, on many ranks, may be communication


def checked(told: Mapping[str, float]) -> dict[str, float]:
    """Seconds under `TOLD`, without those that are not known (NaN).

    Raises:
        ValueError: another name, or a time that is negative or infinite.
    """
    for name, seconds in told.items():
        if name not in TOLD or seconds < 0 or math.isinf(seconds):
            raise ValueError(f"phase {name!r} of {seconds} s: expected seconds of {', '.join(TOLD)}")
    return {name: float(told[name]) for name in TOLD if name in told and not math.isnan(told[name])}


def phases_of(timelines: Sequence[Timeline]) -> dict[str, float]:
    """Seconds under each phase that the host's ranges mark but the step itself, the mean over the ranks that mark some."""
    marked = [{phase.name: phase.host_ns / 1e9 for phase in phases.phases(one)} for one in timelines]
    marked = [found for found in marked if found]
    names = [name for name in phases.PHASES if name != "step" and any(name in found for found in marked)]
    return {name: sum(found.get(name, 0.0) for found in marked) / len(marked) for name in names}


def unmarked(timelines: Sequence[Timeline]) -> float:
    """Seconds of marked steps that are in no other phase, the mean as of `phases_of`: PyTorch marks loader and optimizer by
    itself, and what a program does between them only if it says so."""
    marked = [one for one in timelines if phases.phases(one)]
    inside = [name for name in phases.PHASES if name != "step"]
    rest = [
        intervals.difference(phases.windows(one.ranges, "step"), phases.windows(one.ranges, *inside))
        for one in marked
    ]
    return sum(map(intervals.length, rest)) / 1e9 / max(len(marked), 1)


def by_phases(
    told: Mapping[str, float], timelines: Sequence[Timeline], remarks: tuple[str, ...], rest: float = 0.0
) -> Verdict:
    """`told`: seconds under `TOLD`, and `rest`: of the step in none of them; of all of it the shares are taken."""
    total = sum(told.values()) + rest
    remarks = (*remarks, "no events of a GPU: the phases of the host decide, and waiting inside a phase is not seen")
    if not total:
        return Verdict(
            NOT_ENOUGH, 0.0, "the phases take no time", advice=tuple(remedies.nothing_seen()), remarks=remarks
        )
    shares = {name: seconds / total for name, seconds in told.items()}
    data, wire, work = shares.get("data"), shares.get("communication"), sum(map(shares.get, TOLD[1:4], [0.0] * 3))
    limits = {"data": LOADER, "communication": EXPOSED}
    evidence = [
        percent(f"{name} phase, of the step", share, "<" if name in limits else "", limits.get(name))
        for name, share in shares.items()
    ]
    other = rest / total
    if other:
        evidence.append(percent("in no phase, of the step", other))
    doubts, losses = [Doubt(0.6, "from the phases of the host only")], []
    if data is None:
        doubts.append(Doubt(0.7, "waits for data are not marked"))
    elif data >= LOADER:
        losses.append(Loss(INPUT, data, beyond(data, LOADER)))
    if wire is not None and wire >= EXPOSED:
        waits = Doubt(0.7, "waiting for slower ranks is counted too")
        losses.append(Loss(COMMUNICATION, wire, beyond(wire, EXPOSED), (waits,)))
    if wire is None and _several(timelines) and shares.get("forward"):
        excess = max(shares.get("backward", 0.0) - BACKWARD * shares["forward"], 0.0)
        evidence.append(percent("backward beyond two forward passes", excess, "<", EXPOSED))
        doubts.append(Doubt(0.7, "the all-reduce is inside the backward phase"))
        if excess >= EXPOSED:
            guess = Doubt(0.6, "guessed from the length of the backward phase")
            losses.append(Loss(COMMUNICATION, excess, beyond(excess, EXPOSED), (guess,)))
    if not losses and not work:
        reason = "neither forward nor backward nor optimizer is among the phases"
        return Verdict(NOT_ENOUGH, 0.0, reason, tuple(evidence), tuple(remedies.unexplained(None)), remarks)
    if not losses and other > work:
        reason = f"{other:.0%} of the step is in no phase, and nothing tells what it is"
        return Verdict(NOT_ENOUGH, 0.0, reason, tuple(evidence), tuple(remedies.unexplained(None)), remarks)
    if losses:
        chosen = max(losses, key=lambda loss: loss.share)
        reason = f"{chosen.share:.0%} of the step is lost {LOST[chosen.bound]}"
    else:
        chosen = Loss(COMPUTE, work, within([(data, LOADER), (wire, EXPOSED)]))
        reason = f"forward, backward and optimizer take {work:.0%} of the step"
    advice = {
        INPUT: lambda: remedies.loading(chosen.share, 0.0, 0.0, 0),
        COMMUNICATION: lambda: remedies.communication(chosen.share),
        COMPUTE: remedies.computing_on_the_host,
    }[chosen.bound]()
    return chosen.verdict(reason, doubts, evidence=evidence, advice=advice, remarks=remarks)


def by_counters(measured: Counters, remarks: tuple[str, ...]) -> Verdict:
    """What limits the kernels that were measured; of the run they say nothing."""
    evidence = tuple(measures.counted(measured))
    if measured.moving is None or not measured.efficiency > EFFICIENCY:
        reason = "the measured kernels reach half of no peak: they wait for latency, or are too small"
        reason = reason if measured.moving is not None else "the report has neither the SMs' use nor the memory's"
        advice = tuple(remedies.slow_kernels(measured.moving is not None))
        return Verdict(NOT_ENOUGH, 0.0, reason, evidence, advice, remarks)
    best = measured.dram if measured.moving else measured.sm
    chosen = Loss(MEMORY if measured.moving else COMPUTE, best, beyond(best, EFFICIENCY))
    what = "the memory's bandwidth" if measured.moving else "what the SMs can do"
    reason = f"the measured kernels reach {best:.0%} of {what}; the rest of the run was not seen"
    advice = remedies.memory(1.0) if measured.moving else remedies.computing(0.0, None)
    advice = [one.of_part("of the measured kernels' time only") for one in advice[:2]]
    advice = (*advice, *remedies.around_the_kernels())
    return Verdict(chosen.bound, chosen.confidence([Doubt(0.5, "")]), reason, evidence, advice, remarks)


def _several(timelines: Sequence[Timeline]) -> bool:
    return any((one.world_size or 1) > 1 for one in timelines) or len({one.place for one in timelines}) > 1
