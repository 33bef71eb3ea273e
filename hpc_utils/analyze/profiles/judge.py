"""What limits a training run, from what profilers saw of its ranks: a verdict with its evidence.

Shares are of the time from the first to the last work of the devices, summed over them. Of the losses beyond their
thresholds the largest is the verdict (`thresholds.WHEN`); without any, the devices compute or move bytes. Where no work of
a GPU was seen the host's phases decide, else the counters of single kernels (`host`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from . import host
from .devices import Counters, Devices, evidence
from .rules import LOSSES, nothing_seen, unexplained, working
from .thresholds import UTILISATION
from .timeline import Timeline
from .verdict import Doubt, Verdict, undecided


def judge(
    timelines: Sequence[Timeline],
    *,
    kernels: Mapping | None = None,
    phase_seconds: Mapping[str, float] | None = None,
) -> Verdict:
    """What limits the run of these timelines, one per rank and device.

    Args:
        kernels: columns as of `ncu.read`, if some kernels were measured by Nsight Compute.
        phase_seconds: seconds a step under data, forward, backward, optimizer, and communication if that is known (exposed
            seconds), as the run's own records have them. They decide where the profiles have no events of a GPU.

    Raises:
        ValueError: a phase of another name, or a time that is negative or not finite.
    """
    recorded = host.checked(phase_seconds or {})
    measured = None if kernels is None else Counters.of(kernels)
    worked = [one for one in timelines if one.worked]
    if worked:
        return _by_devices(worked, timelines, measured, recorded)
    remarks = tuple(dict.fromkeys(remark for one in timelines for remark in one.remarks))
    rest = 0.0 if recorded else host.unmarked(timelines)
    if phases := recorded or host.phases_of(timelines):
        found = host.by_phases(phases, timelines, remarks, rest)
        return replace(found, evidence=(*found.evidence, *(measured.evidence() if measured else ())))
    if measured is not None:
        return host.by_counters(measured, remarks)
    reason = "the profiles have no GPU events, no phases and no counters"
    return undecided(reason, (), nothing_seen(), remarks)


def _by_devices(
    worked: Sequence[Timeline],
    timelines: Sequence[Timeline],
    measured: Counters | None,
    recorded: Mapping[str, float],
) -> Verdict:
    found = Devices.of(worked)
    remarks = _remarks(timelines, found)
    if found.loader is None and "data" in recorded and sum(recorded.values()):
        found = replace(found, loader=recorded["data"] / sum(recorded.values()))
        remarks = (
            *remarks,
            "no data ranges in the profile: loader idle is the data phase of the run's own records",
        )
    if not found.span:
        return undecided("the devices' work takes no time", (), nothing_seen(), remarks)
    known = evidence(found, measured)
    losses = sorted(filter(None, (rule(found) for rule in LOSSES)), key=lambda loss: -loss.share)
    if not losses and found.busy < UTILISATION:
        reason = f"the GPU is idle {1 - found.busy:.0%} of the time for no known reason"
        return undecided(reason, known, unexplained(1 - found.busy), remarks)
    chosen = losses[0] if losses else working(found, measured)
    doubts = _doubts(found, timelines)
    if len(losses) > 1 and losses[1].share > 0.7 * chosen.share:
        doubts.append(Doubt(0.8, f"nearly as much is lost {losses[1].what}"))
    return chosen.verdict(doubts, known, remarks)


def _doubts(found: Devices, timelines: Sequence[Timeline]) -> list[Doubt]:
    """Those that hold whatever the bound is."""
    steps = f"{found.steps} step{'s' if found.steps > 1 else ''}" if found.steps else "no steps marked"
    seen = len({one.place for one in timelines})
    world = max((one.world_size or 0 for one in timelines), default=0)
    doubts = [
        Doubt(1.0 if found.steps >= 5 else 0.9 if found.steps > 1 else 0.8, steps),
        Doubt(0.85 if world > seen else 1.0, f"{seen} of {max(world, seen)} ranks"),
    ]
    if len(timelines) > seen:
        doubts.append(Doubt(0.5, "several profiles of one rank are judged together"))
    if found.exposed is None:
        doubts.append(Doubt(0.7, "communication was not recorded"))
    if found.loader is None:
        doubts.append(Doubt(0.9, "waits for data are not marked"))
    unknown, busy = (sum(getattr(part, name) for part in found.parts) for name in ("unknown_ns", "busy_ns"))
    if unknown > 0.1 * busy:
        doubts.append(Doubt(0.7, f"{unknown / busy:.0%} of the work is of unknown kind"))
    return doubts


def _remarks(timelines: Sequence[Timeline], found: Devices) -> tuple[str, ...]:
    remarks = [remark for one in (*timelines, *found.parts) for remark in one.remarks]
    remarks += found.matched.remarks if found.matched is not None else ()
    blind = [one.label for one in timelines if not one.worked]
    if blind:
        remarks.append(f"no GPU work was recorded for {', '.join(blind)}: the verdict excludes them")
    return tuple(dict.fromkeys(remarks))
