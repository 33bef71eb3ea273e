"""What limits a training run, from the profiles of its ranks: a verdict with its evidence.

Shares are of the devices' spans (`breakdown`), summed over them. Of the losses beyond their
thresholds the largest is the verdict (`verdict.WHEN`); without any, the devices compute or move bytes. Without their work
(`Reports.worked`) the phases in the run's own records decide, else the counters of single kernels. Both have medium
confidence at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpc_utils.plural import counted

from .devices import Counters, Devices
from .phases import PARTS, Phase
from .readers import Reports
from .rules import (
    IF_FP32,
    LOSSES,
    SLOW_KERNELS,
    UNEXPLAINED,
    communicating,
    computing,
    moving_bytes,
    waiting_for_data,
    working,
)  # fmt: skip
from .thresholds import EFFICIENCY, EXPOSED, LOAD, LOADER, SLOWED, STEPS, UTILISATION
from .timeline import Timeline, world
from .verdict import Advice, Bound, Doubt, Loss, Verdict, beyond, percent, saving, undecided, within

# Options, and words of the advice that a run follows if they are not plain.
FOLLOWED = {"comm_hook": "compression", "compile": "torch.compile", "fused_optimizer": "fused optimizer"}
FOLLOWED |= {"precision": "autocast", "channels_last": "channels_last", "step_graph": "CUDA graph"}
PLAIN = ["None", "False", "none", "off", "fp32", "tf32"]
MOST = 3  # pieces of advice
COMMUNICATION = "communication"  # that the backward pass does not hide, beside the phases of the host


def judge(reports: Reports) -> Verdict:
    """What limits the run of these profiles, by everything in them, and what to try that it does not do already."""
    verdict = _judge(reports)
    done = [words for option, words in FOLLOWED.items() if str(reports.config.get(option)) not in PLAIN]
    advice = [proposal for proposal in verdict.advice if not any(words in proposal.action for words in done)]
    if reports.config.get("precision") == "fp32":
        advice = [proposal._replace(action=proposal.action.replace(IF_FP32, "")) for proposal in advice]
    return replace(verdict, advice=tuple(advice[:MOST]))


def _judge(reports: Reports) -> Verdict:
    measured = None if reports.kernels is None else Counters(reports.kernels)
    timelines = reports.timelines
    remarks = list(dict.fromkeys(remark for timeline in timelines for remark in timeline.remarks))
    if worked := reports.worked:
        return _by_devices(worked, reports, measured, remarks)
    if reports.phases and any(reports.phases.values()):
        return _by_phases(reports.phases, timelines, measured, remarks, _disturbed(reports))
    if measured is not None:
        return _by_counters(measured, remarks)
    return undecided("the profiles have no operators, no phases and no counters", UNEXPLAINED, remarks)


def _by_devices(
    worked: Sequence[Timeline], reports: Reports, measured: Counters | None, remarks: list[str]
) -> Verdict:
    devices = Devices(worked)
    recorded = reports.phases
    shares = devices.shares
    remarks += dict.fromkeys(remark for part in devices.parts for remark in part["remarks"] if remark not in remarks)
    remarks += devices.matched.remarks if devices.matched is not None else ()
    if blind := [timeline.label for timeline in reports.timelines if not timeline.worked]:
        remarks.append(f"no work was recorded for {', '.join(blind)}: the verdict excludes them")
    if shares["loader"] is None and recorded:
        shares["loader"] = recorded["data"] / sum(recorded.values())
        remarks.append("no data ranges in the profile: loader idle is the data phase of the run's own records")
    evidence = [*devices.evidence(), *(measured.evidence() if measured else ())]
    losses = sorted(filter(None, (rule(devices) for rule in LOSSES)), key=lambda loss: -loss.share)
    if not losses and shares["busy"] < UTILISATION:
        idle = 1 - shares["busy"]
        advice = [UNEXPLAINED[bool(devices.marked_steps)], *saving(idle, "then remove the cause")]
        return undecided(f"the device is idle {idle:.0%} of the time for no known reason", advice, remarks, evidence)
    chosen = losses[0] if losses else working(devices, measured)
    doubts = [*_doubts(devices, reports.timelines), *_disturbed(reports)]
    if reports.slowdown > SLOWED:
        why = (
            f"a profiled step takes {reports.slowdown:.2g} times as long as the others: the profiler delays the host"
        )
        doubts.append(Doubt(0.7, why))
    if len(losses) > 1 and losses[1].share > 0.7 * chosen.share:
        doubts.append(Doubt(0.8, f"nearly as much is lost {losses[1].what}"))
    return chosen.verdict(doubts, evidence, remarks)


def _doubts(devices: Devices, timelines: Sequence[Timeline]) -> list[Doubt]:
    """The doubts that apply to every bound."""
    profiled, size = world(timelines)
    steps = devices.marked_steps
    unknown = devices.shares["unknown"]
    doubts = [
        Doubt(1.0 if steps >= STEPS else 0.9 if steps > 1 else 0.8, f"{counted(steps, 'step')} marked"),
        Doubt(0.85 if size > profiled else 1.0, f"{profiled} of {counted(size, 'rank')}"),
    ]
    if len(timelines) > profiled:
        doubts.append(Doubt(0.5, "several profiles of one rank are judged together: are they of one run?"))
    if devices.shares["exposed"] is None:
        doubts.append(Doubt(0.7, "communication was not recorded"))
    if devices.shares["loader"] is None:
        doubts.append(Doubt(0.9, "waits for data are not marked"))
    if unknown > 0.1 * devices.shares["busy"]:
        doubts.append(Doubt(0.7, f"{unknown:.0%} of the time goes to work of unknown kind"))
    return doubts


def _disturbed(reports: Reports) -> list[Doubt]:
    if reports.load <= LOAD:
        return []
    return [Doubt(0.7, f"other processes used {reports.load:.0%} of a device's cores: measure it again, alone")]


def _by_phases(
    seconds: Mapping[str, float],
    timelines: Sequence[Timeline],
    measured: Counters | None,
    remarks: Sequence[str],
    disturbed: Sequence[Doubt],
) -> Verdict:
    """`seconds`: of a step under `PARTS`, and `COMMUNICATION` if that is known."""
    remarks = [
        *remarks,
        f"no GPU events, or fewer than {STEPS} steps of a CPU: the host's phases decide, and waiting inside a phase is not visible",
    ]
    total = sum(seconds.values())
    shares = {name: value / total for name, value in seconds.items()}
    data = shares[Phase.DATA]
    wire = shares.get(COMMUNICATION)
    limits = {Phase.DATA: LOADER, COMMUNICATION: EXPOSED}
    evidence = [percent(f"{name} phase, of the step", share, "<", limits.get(name)) for name, share in shares.items()]
    evidence += measured.evidence() if measured else ()
    doubts = [Doubt(0.6, "from the phases of the host only"), *disturbed]
    losses = [waiting_for_data(data)]
    if wire is not None:
        losses.append(communicating(wire, Doubt(0.7, "waiting for slower ranks is counted too")))
    elif world(timelines)[1] > 1:
        doubts.append(Doubt(0.7, "the all-reduce is inside the backward phase"))
    if not any(losses):
        work = sum(shares[name] for name in PARTS[1:])
        reason = f"forward, backward and optimizer take {work:.0%} of the step"
        action = f"profile what the phases are made of: -p profile={'cpu' if timelines else 'torch'}"
        advice = [Advice(action, "shows where the time goes inside")]
        advice.append(Advice("more devices: computing takes the time", "at most in proportion"))
        losses = [Loss(Bound.COMPUTE, work, within([(data, LOADER), (wire, EXPOSED)]), "", reason, advice)]
    return max(filter(None, losses), key=lambda loss: loss.share).verdict(doubts, evidence, remarks)


def _by_counters(measured: Counters, remarks: Sequence[str]) -> Verdict:
    """What limits the kernels that were measured, which is not what limits the run."""
    evidence = measured.evidence()
    whole_steps = Advice("profile whole steps too: -p profile=torch, or nsys", "shows what the run waits for")
    if measured.moving is None:
        sections = Advice("collect ncu's sections SpeedOfLight and MemoryWorkloadAnalysis", "shows what they reach")
        return undecided(
            "the report has no utilisation of the SMs or of the memory", [sections, whole_steps], remarks, evidence
        )
    if not measured.efficiency > EFFICIENCY:
        larger = Advice(
            "a larger batch, or fewer and fused kernels: more work a launch", "as far as they are too small"
        )
        return undecided(SLOW_KERNELS, [larger, whole_steps], remarks, evidence)
    if measured.moving:
        bound = Bound.MEMORY
        best = measured.dram
        peak = "the memory's bandwidth"
        advice = moving_bytes(1.0)
    else:
        bound = Bound.COMPUTE
        best = measured.sm
        peak = "what the SMs can do"
        advice = computing()
    reason = f"the measured kernels reach {best:.0%} of {peak}; the rest of the run was not measured"
    advice = [
        *(Advice(proposal.action, "of the measured kernels' time only") for proposal in advice[:2]),
        whole_steps,
    ]
    return Loss(bound, best, beyond(best, EFFICIENCY), "", reason, advice).verdict([Doubt(0.5)], evidence, remarks)
