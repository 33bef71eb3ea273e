"""What limits a training run, from what profilers saw of its ranks: a verdict with its evidence.

All shares are of the time from the first to the last work of the devices, summed over them. Each loss has a threshold;
of those beyond theirs the largest is the verdict:

- communication-bound: wire time beside which nothing is computed; straggler-bound: waiting for other ranks beside which
  nothing is computed. The two are told apart where several ranks were profiled (`timeline.collectives`), and never added up.
- input-bound: the GPU is idle while the host waits for data, or between marked steps, or only copies its input.
- launch-bound: the GPU is idle for lack of launched work.
- If nothing is beyond its threshold the GPU works: memory-bound if it mostly moves bytes, else compute-bound.

A GPU of which nothing tells why it is idle is "not enough evidence". Without events of a GPU, the host's phases decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from . import hostside, measures, peaks, remedies
from .measures import FEW_OPERATIONS, MATRIX, Counters, Devices
from .remedies import Advice
from .timeline import Timeline
from .timeline.breakdown import NO_COMMUNICATION
from .timeline.collectives import CAUSED
from .verdict import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    EFFICIENCY,
    EXPLAINED,
    EXPOSED,
    INPUT,
    LAUNCH,
    LOADER,
    LOST,
    LOW_INTENSITY,
    MANY,
    MEMORY,
    NOT_ENOUGH,
    SHORT_KERNEL,
    STRAGGLER,
    UTILISATION,
    WAITING,
    Doubt,
    Loss,
    Verdict,
    beyond,
    within,
)


def judge(
    timelines: Sequence[Timeline],
    *,
    kernels: Mapping | None = None,
    phase_seconds: Mapping[str, float] | None = None,
) -> Verdict:
    """What limits the run that these timelines are of, one a rank and device.

    Args:
        kernels: columns as of `ncu.read`, if some kernels were measured by Nsight Compute.
        phase_seconds: seconds a step under data, forward, backward, optimizer, and communication if that is known (exposed
            seconds), as a run's own records have them. They decide where the profiles have no events of a GPU.

    Raises:
        ValueError: a phase of another name, or a time that is negative or not finite.
    """
    timelines = list(timelines)
    told = hostside.checked(phase_seconds or {})
    measured = None if kernels is None else Counters.of(kernels)
    worked = [one for one in timelines if one.ops is not None and len(one.ops)]
    if worked:
        return _by_devices(worked, timelines, measured, told)
    remarks = _remarks(timelines)
    rest = 0.0 if told else hostside.unmarked(timelines)
    told = told or hostside.phases_of(timelines)
    if told:
        found = hostside.by_phases(told, timelines, remarks, rest)
        seen = () if measured is None else tuple(measures.counted(measured))
        return replace(found, evidence=(*found.evidence, *seen))
    if measured is not None:
        return hostside.by_counters(measured, remarks)
    reason = "no events of a GPU, no phases of the host and no counters: nothing to judge by"
    return Verdict(NOT_ENOUGH, 0.0, reason, (), tuple(remedies.nothing_seen()), remarks)


def _by_devices(
    worked: list[Timeline], timelines: list[Timeline], measured: Counters | None, told: Mapping[str, float]
) -> Verdict:
    found, remarks = Devices.of(worked), ()
    if found.loader is None and sum(told.values()) and "data" in told:
        found = found.but(loader=told["data"] / sum(told.values()))
        remarks = ("no data ranges in the profile: loader idle is the data phase of the run's own records",)
    remarks = (*_remarks(timelines, found), *remarks)
    if not found.span:
        advice = tuple(remedies.nothing_seen())
        return Verdict(NOT_ENOUGH, 0.0, "the devices' work takes no time", advice=advice, remarks=remarks)
    evidence = measures.evidence(found, measured)
    losses = sorted(_losses(found), key=lambda loss: -loss.share)
    if not losses and found.busy < UTILISATION:
        reason = f"the GPU is idle {1 - found.busy:.0%} of the time, and nothing tells what for"
        return Verdict(NOT_ENOUGH, 0.0, reason, evidence, tuple(remedies.unexplained(1 - found.busy)), remarks)
    chosen = losses[0] if losses else _working(found, measured)
    doubts = _doubts(found, timelines)
    if len(losses) > 1 and losses[1].share > 0.7 * chosen.share:
        doubts.append(Doubt(0.8, f"nearly as much is lost {LOST[losses[1].bound]}"))
    advice = _advice(chosen, found)
    return chosen.verdict(_reason(chosen, found), doubts, evidence=evidence, advice=advice, remarks=remarks)


def _losses(found: Devices) -> list[Loss]:
    """Those beyond their thresholds."""
    return [*_communication(found), *_input(found), *_launch(found), *_copying(found)]


def _communication(found: Devices) -> list[Loss]:
    if found.wire is None:
        if (found.exposed or 0.0) < EXPOSED:
            return []
        doubt = Doubt(
            0.7, "nothing tells the wire from waiting for other ranks: that takes collectives of several ranks"
        )
        return [Loss(COMMUNICATION, found.exposed, beyond(found.exposed, EXPOSED), (doubt,))]
    losses = []
    if found.wire >= EXPOSED:
        losses.append(Loss(COMMUNICATION, found.wire, beyond(found.wire, EXPOSED)))
    if found.waiting >= WAITING and found.waiting > found.wire:
        losses.append(Loss(STRAGGLER, found.waiting, beyond(found.waiting, WAITING), _who(found)))
    return losses


def _who(found: Devices) -> tuple[Doubt, ...]:
    one = found.straggler
    if one is None or one.caused <= CAUSED:
        return (Doubt(0.6, "no rank is behind most of it: they take turns"),)
    if not one.systematic:
        return (Doubt(0.8, f"{one.of} {one.per}s are too few to tell {one.label} from chance"),)
    return ()


def _input(found: Devices) -> list[Loss]:
    loader, outside = found.loader or 0.0, found.outside or 0.0
    copies = found.copies if found.copies >= COPIES else 0.0
    if loader + outside < LOADER and not copies:
        return []
    doubts = ()
    if loader < LOADER and not copies:
        doubts = (Doubt(0.7, "the GPU idles between steps, where nothing is marked: usually that is the loader"),)
    margin = max(beyond(loader + outside, LOADER), beyond(found.copies, COPIES))
    return [Loss(INPUT, loader + outside + copies, margin, doubts)]


def _launch(found: Devices) -> list[Loss]:
    if found.busy >= UTILISATION or found.remaining < (1 - found.busy) / 2 or found.kernels < MANY:
        return []
    brief = found.median_kernel < SHORT_KERNEL and found.short > EXPLAINED * found.remaining
    late = found.late is not None and found.late > EXPLAINED * found.remaining
    if not brief and not late:
        return []
    doubts = []
    if not late:
        known = "do not confirm it" if found.late is not None else "are not known"
        doubts.append(Doubt(0.8, f"launch times {known}"))
    if not brief:
        doubts.append(Doubt(0.8, "kernels are long enough to hide launches: the host is busy with something else"))
    if any(NO_COMMUNICATION in one.remarks for one in found.parts):
        doubts.append(Doubt(0.5, "it may be communication, which was not seen"))
    margin = min(1.0, (UTILISATION - found.busy) / (1 - UTILISATION))
    return [Loss(LAUNCH, found.remaining, margin, tuple(doubts))]


def _copying(found: Devices) -> list[Loss]:
    return [Loss(MEMORY, found.moves, beyond(found.moves, EXPOSED))] if found.moves >= EXPOSED else []


def _working(found: Devices, measured: Counters | None) -> Loss:
    """Nothing is beyond its threshold: does the GPU compute, or move bytes?"""
    few = found.class_share(FEW_OPERATIONS)
    by_name = few > LOW_INTENSITY
    doubts, by_counters = [], measured.moving if measured is not None else None
    if by_counters is None:
        doubts.append(Doubt(0.9, "no counters tell how well the kernels use the GPU"))
    elif by_counters != by_name:
        doubts.append(Doubt(0.7, "counters and the classes of the kernels disagree"))
    if by_counters is not None and measured.efficiency <= EFFICIENCY:
        doubts.append(
            Doubt(0.8, "the measured kernels reach half of no peak: they wait for latency, or are too small")
        )
    if found.wire is not None and found.exposed >= EXPOSED:  # they are no bound together, but no good sign
        doubts.append(Doubt(0.6, f"the wire and waiting together leave {found.exposed:.0%} of the time exposed"))
    limits = [(1 - found.busy, 1 - UTILISATION), (found.loader, LOADER), (found.outside, LOADER)]
    limits += [(found.copies, COPIES), (found.moves, EXPOSED)]
    limits += [(found.exposed, EXPOSED)] if found.wire is None else [(found.wire, EXPOSED), (found.waiting, WAITING)]
    if by_name if by_counters is None else by_counters:
        margin = within(limits) if by_counters else min(within(limits), beyond(few, LOW_INTENSITY))
        return Loss(MEMORY, found.computing * few, margin, tuple(doubts))
    return Loss(COMPUTE, found.busy, within(limits), tuple(doubts))


def _doubts(found: Devices, timelines: list[Timeline]) -> list[Doubt]:
    """What holds whatever the bound is."""
    steps = f"{found.steps} step{'s' if found.steps > 1 else ''}"
    doubts = [
        Doubt(
            1.0 if found.steps >= 5 else 0.9 if found.steps > 1 else 0.8, steps if found.steps else "no steps marked"
        )
    ]
    seen = len({one.place for one in timelines})
    world = max((one.world_size or 0 for one in timelines), default=0)
    doubts.append(Doubt(0.85 if world > seen else 1.0, f"{seen} of {max(world, seen)} ranks"))
    if len(timelines) > seen:
        doubts.append(Doubt(0.5, "several profiles of one rank are judged together"))
    if found.exposed is None:
        doubts.append(Doubt(0.7, "communication was not seen"))
    if found.loader is None:
        doubts.append(Doubt(0.9, "waits for data are not marked"))
    unknown, busy = (sum(getattr(one, name) for one in found.parts) for name in ("unknown_ns", "busy_ns"))
    if unknown > 0.1 * busy:
        doubts.append(Doubt(0.7, f"{unknown / busy:.0%} of the work is of unknown kind"))
    return doubts


def _reason(chosen: Loss, found: Devices) -> str:
    one = found.straggler
    if chosen.bound == STRAGGLER and one is not None and one.caused > CAUSED:
        return (
            f"ranks wait {chosen.share:.0%} of the time, {one.caused:.0%} of that for {one.label}, which is the last in "
            f"{one.last} of {one.of} {one.per}s, by {one.behind_ns / 1e6:.3g} ms"
        )
    if chosen.bound == MEMORY and found.moves < EXPOSED:
        return (
            f"kernels that do few operations a byte take {found.class_share(FEW_OPERATIONS):.0%} of the compute time"
        )
    if chosen.bound == COMPUTE:
        return f"the GPU is busy {found.busy:.0%} of the time, and no loss is beyond its threshold"
    return f"{chosen.share:.0%} of the time is lost {LOST[chosen.bound]}"


def _advice(chosen: Loss, found: Devices) -> list[Advice]:
    if chosen.bound == COMMUNICATION:
        return remedies.communication(chosen.share)
    if chosen.bound == STRAGGLER:
        one = found.straggler
        if one is None or one.caused <= CAUSED:
            return remedies.taking_turns(chosen.share)
        return remedies.straggler(chosen.share * one.caused, one.label, _why_late(found))
    if chosen.bound == INPUT:
        pageable = sum(one.pageable_copies or 0 for one in found.parts)
        copies = found.copies if found.copies >= COPIES else 0.0
        loader, outside = found.loader or 0.0, found.outside or 0.0
        if copies and loader + outside < LOADER:
            loader = outside = 0.0
        return remedies.loading(loader, outside, copies, pageable)
    if chosen.bound == LAUNCH:
        return remedies.launching(chosen.share)
    if chosen.bound == MEMORY:
        return remedies.copying(found.moves) if found.moves >= EXPOSED else remedies.memory(chosen.share)
    name = next((one.device_name for one in found.timelines if one.device_name), "")
    return remedies.computing(found.computing * found.class_share(MATRIX), peaks.find(name))


def _why_late(found: Devices) -> str:
    """What the straggler's own profile says, against the others' median; "" if it says nothing."""
    one, column = found.straggler, found.matched.labels.index(found.straggler.label)
    for name, said in (
        ("loader_wait_ns", "it waits for data {:.3g} ms, the others {:.3g}"),
        ("compute_ns", "it computes {:.3g} ms, the others {:.3g}: clocks, temperature, or more work"),
        ("idle_ns", "its GPU is idle {:.3g} ms, the others' {:.3g}: its host is late"),
    ):
        values = [getattr(part, name) for part in found.parts]
        if None in values:
            continue
        others = float(np.median(values[:column] + values[column + 1 :]))
        if values[column] - others > 0.5 * one.behind_ns * one.last:  # half of what the others wait for it, or more
            return said.format(values[column] / 1e6, others / 1e6)
    return ""


def _remarks(timelines: list[Timeline], found: Devices | None = None) -> tuple[str, ...]:
    remarks = [remark for one in timelines for remark in one.remarks]
    if found is not None:
        remarks += [remark for one in found.parts for remark in one.remarks]
        if found.matched is not None:
            remarks += found.matched.remarks
        blind = [one.label for one in timelines if one.ops is None or not len(one.ops)]
        if blind:
            remarks.append(f"no work of a GPU was seen of {', '.join(blind)}: the verdict leaves them out")
    return tuple(dict.fromkeys(remarks))
