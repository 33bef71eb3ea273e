"""What limits a training run, from the profiles of its ranks: a verdict with its evidence.

Shares are of the devices' spans (`breakdown`), summed over them. Of the losses beyond their
thresholds the largest is the verdict (`verdict.WHEN`); without any, the devices compute or move bytes. Without their work
(`Reports.worked`) the phases in the run's own records decide, else the counters of single kernels. Both have medium
confidence at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpc_utils.plural import counted

from . import kernels
from .devices import MATRIX, Counters, Devices
from .losses import ALL_RANKS, LOSSES, SLOW_KERNELS, communicating, waiting_for_data, working
from .phases import PARTS, Phase
from .readers import Reports
from .remedies import DECODED, HIDING, IF_FP32, NO_SYNC, ON_DEVICE, SIXTEEN, TF32, WORKERS
from .timeline import MEMORY, NO_KERNELS, Timeline, require_one_run, world
from .verdict import (
    EFFICIENCY,
    EXPOSED,
    LOAD,
    LOADER,
    SLOWED,
    STEPS,
    UNCLASSIFIED,
    UTILISATION,
    Advice,
    Bound,
    Doubt,
    Loss,
    Verdict,
    beyond,
    percent,
    saving,
    undecided,
    within,
)

# Options, and words of the advice that a run follows if they are not plain.
FOLLOWED = {
    "comm_hook": "compression",
    "compile": "torch.compile",
    "fused_optimizer": "fused optimizer",
    "loader": "loader=device",
    "precision": "autocast",
    "channels_last": "channels_last",
    "step_graph": "CUDA graph",
}
PLAIN = ["None", "False", "none", "off", "fp32", "tf32", "host"]
MOST = 4  # pieces of advice
COMMUNICATION = "communication"  # that the backward pass does not hide, beside the phases of the host

SAME_TIME = "tries with the same bound save the same time: their gains do not add up"
CUDA_ACTIVITY = Advice(
    "record CUDA's activity: ProfilerActivity.CUDA, one profiler at a time", "shows what the device does"
)
SEVERAL_STEPS = Advice("profile several steps of training, after the first ones", "shows what returns in each")
UNEXPLAINED = (
    Advice("mark data, forward, backward and optimizer with ranges and profile again", "shows what waits"),
    Advice(
        "record launches (CUDA API calls) or, on a CPU, stacks (-p profile=cpu)", "shows what the host does meanwhile"
    ),
)


def judge(reports: Reports) -> Verdict:
    """What limits the run of these profiles, by everything in them, and what to try that it does not do already."""
    verdict = _judge(reports)
    advice = verdict.advice
    ours = ":" not in reports.config.get("workload", ":")
    if ours and reports.config.get("loader", "workers") != "workers":  # batches are gathered in memory
        advice = [
            proposal._replace(action=proposal.action.replace(WORKERS, ON_DEVICE))
            for proposal in advice
            if proposal.action != DECODED
        ]
    done = [words for option, words in FOLLOWED.items() if str(reports.config.get(option)) not in PLAIN]
    advice = [proposal for proposal in advice if not any(words in proposal.action for words in done)]
    if reports.config.get("precision") == "fp32":
        advice = [proposal._replace(action=proposal.action.replace(IF_FP32, "")) for proposal in advice]
    first = ALL_RANKS + tuple(proposal for proposal in advice if TF32 in proposal.action and proposal.at_most > 2)
    advice.sort(key=lambda proposal: (proposal not in first, -round(proposal.at_most or 0, 2)))
    advice = advice[:MOST]
    gains = [proposal.at_most for proposal in advice if proposal.at_most]
    remarks = verdict.remarks + (SAME_TIME,) * (len(gains) > len(set(gains)))
    return replace(verdict, advice=tuple(advice), remarks=remarks)


def _judge(reports: Reports) -> Verdict:
    measured = None if reports.kernels is None else Counters(reports.kernels)
    remarks = list(dict.fromkeys(remark for timeline in reports.timelines for remark in timeline.remarks))
    if reports.worked:
        require_one_run(reports.worked)
        return _by_devices(reports, measured, remarks)
    if reports.phases and any(reports.phases.values()):
        return _by_phases(reports, measured, remarks)
    if measured is not None:
        return _by_counters(measured, remarks)
    if NO_KERNELS in remarks:
        return undecided(NO_KERNELS, (CUDA_ACTIVITY, *UNEXPLAINED), remarks)
    return undecided("the profiles have no operators, no phases and no counters", UNEXPLAINED, remarks)


def _by_devices(reports: Reports, measured: Counters | None, remarks: list[str]) -> Verdict:
    devices = Devices(reports)
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
    fewest = min(int((timeline.ops.kind != MEMORY).sum()) for timeline in devices.timelines)
    if fewest < STEPS and not devices.replayed:
        why = f"a device has {counted(fewest, 'operation')} besides copies: fewer than {STEPS} show no pattern"
        return undecided(why, [SEVERAL_STEPS], remarks, evidence)
    losses = sorted(filter(None, (rule(devices) for rule in LOSSES)), key=lambda loss: -loss.share)
    if not losses and shares["remaining"] >= 1 - UTILISATION:
        idle = 1 - shares["busy"]
        advice = [UNEXPLAINED[bool(devices.marked_steps)], *saving(idle, "then remove the cause")]
        return undecided(f"the device is idle {idle:.0%} of the time for no known reason", advice, remarks, evidence)
    losses = [_delaying(loss, devices.delays) for loss in losses or [working(devices, measured)]]
    chosen = losses[0]
    doubts = [*_doubts(devices, reports.timelines), *_disturbed(reports)]
    if reports.slowdown > SLOWED:
        why = (
            f"a profiled step takes {reports.slowdown:.2g} times as long as the others: the profiler delays the host"
        )
        doubts.append(Doubt(0.7, why))
    if len(losses) > 1 and losses[1].share > 0.7 * chosen.share:
        doubts.append(Doubt(0.8, f"nearly as much is lost {losses[1].what}"))
    others = [max(loss.advice, key=lambda proposal: proposal.at_most or 0) for loss in losses[1:] if loss.advice]
    return replace(chosen, advice=[*chosen.advice, *others]).verdict(doubts, evidence, remarks)


def _delaying(loss: Loss, delays: float) -> Loss:
    """The loss whose bounds include the share of the time that other ranks wait: each rank saves what the slowest one does, in this
    part of its own time or in its waiting."""
    if not delays or loss.bound in (Bound.COMMUNICATION, Bound.STRAGGLER):
        return loss
    advice = [
        saving(1 - 1 / proposal.at_most + delays, proposal.action)[0] if proposal.at_most else proposal
        for proposal in loss.advice
    ]
    return replace(loss, advice=advice)


def _doubts(devices: Devices, timelines: Sequence[Timeline]) -> list[Doubt]:
    """The doubts that apply to every bound."""
    profiled, size = world(timelines)
    steps = devices.marked_steps
    unknown = devices.shares["unknown"]
    words = f"{counted(steps, 'step')} marked" if steps else "no whole steps marked"
    doubts = [
        Doubt(1.0 if steps >= STEPS else 0.9 if steps > 1 else 0.8, words),
        Doubt(0.85 if size > profiled else 1.0, f"{profiled} of {counted(size, 'rank')}"),
    ]
    if devices.shares["exposed"] is None:
        doubts.append(Doubt(0.7, "communication was not recorded"))
    if devices.shares["loader"] is None:
        doubts.append(Doubt(0.9, "waits for data are not marked"))
    if unknown > 0.1 * devices.shares["busy"]:
        doubts.append(Doubt(0.7, f"{unknown:.0%} of the time goes to work of unknown kind"))
    if (unclassified := devices.class_share([kernels.OTHER])) > UNCLASSIFIED:
        doubts.append(Doubt(0.7, f"{unclassified:.0%} of the compute time goes to kernels of unknown kind"))
    return doubts


def _disturbed(reports: Reports) -> list[Doubt]:
    if reports.load <= LOAD:
        return []
    return [Doubt(0.7, f"other processes used {reports.load:.0%} of a device's cores: measure it again, alone")]


def _by_phases(reports: Reports, measured: Counters | None, remarks: Sequence[str]) -> Verdict:
    remarks = [
        *remarks,
        f"no GPU events, or fewer than {STEPS} steps of a CPU: the host's phases decide, and waiting inside a phase is not visible",
    ]
    total = sum(reports.phases.values())
    shares = {name: value / total for name, value in reports.phases.items()}
    data = shares[Phase.DATA]
    wire = shares.get(COMMUNICATION)
    limits = {Phase.DATA: LOADER, COMMUNICATION: EXPOSED}
    evidence = [percent(f"{name} phase, of the step", share, "<", limits.get(name)) for name, share in shares.items()]
    evidence += measured.evidence() if measured else ()
    doubts = [Doubt(0.6, "from the phases of the host only"), *_disturbed(reports)]
    losses = [waiting_for_data(data)]
    if wire is not None:
        advice = [*saving(wire, HIDING), *saving(wire / 2, SIXTEEN, NO_SYNC.format(2))]
        losses.append(communicating(wire, advice, Doubt(0.7, "waiting for slower ranks is counted too")))
    profiler = "cpu" if reports.timelines else "torch"
    if not any(losses) and wire is None and max(reports.ranks, world(reports.timelines)[1]) > 1:
        why = "the all-reduce is inside the backward phase, whose communication was not measured"
        advice = Advice(f"profile what the phases are made of: -p profile={profiler}", "separates it from computing")
        return undecided(why, [advice], remarks, evidence)
    if not any(losses):
        work = sum(shares[name] for name in PARTS[1:])
        reason = f"forward, backward and optimizer take {work:.0%} of the step"
        advice = [
            Advice(f"profile what the phases are made of: -p profile={profiler}", "shows where the time goes inside"),
            Advice("more devices: computing takes the time", "at most in proportion"),
        ]
        bound = Bound.COMPUTE if work >= UTILISATION else Bound.BALANCED
        losses = [Loss(bound, work, within([(data, LOADER), (wire, EXPOSED)]), "", reason, advice)]
    return max(filter(None, losses), key=lambda loss: loss.share).verdict(doubts, evidence, remarks)


def _by_counters(measured: Counters, remarks: Sequence[str]) -> Verdict:
    """What limits the kernels that were measured, which is not what limits the run."""
    evidence = measured.evidence()
    whole_steps = Advice("profile whole steps too: -p profile=torch, or nsys", "shows what the run waits for")
    if measured.moving is None:
        advice = Advice("collect ncu's sections SpeedOfLight and MemoryWorkloadAnalysis", "shows what they reach")
        why = "the report has no utilisation of the SMs or of the memory"
        return undecided(why, [advice, whole_steps], remarks, evidence)
    if not measured.efficiency > EFFICIENCY:
        advice = Advice(
            "a larger batch, or fewer and fused kernels: more work a launch", "as far as they are too small"
        )
        return undecided(SLOW_KERNELS, [advice, whole_steps], remarks, evidence)
    kernel, peak, share = measured.longest[0]
    if measured.moving:
        bound, best = Bound.MEMORY, measured.dram
        actions = [
            "fuse it with the kernels around it",
            "move fewer bytes: a narrower type, or reuse in registers and caches",
        ]
    else:
        bound, best = Bound.COMPUTE, measured.sm
        actions = ["fewer or narrower operations"]
        if kernels.classify(kernel) in MATRIX and not measured.tensor > 0.1:
            actions.append("tensor cores: 16 bits or TF32, and sizes that are multiples of 8")
    reason = f"{kernel}, reaches {share:.0%} of the peak of {peak}; the rest of the run was not measured"
    advice = [*(Advice(action, "of the measured kernels' time only") for action in actions), whole_steps]
    return Loss(bound, best, beyond(best, EFFICIENCY), "", reason, advice).verdict([Doubt(0.5)], evidence, remarks)


# Rules: each returns a `Loss` that is beyond its threshold, with doubts and advice, or None. The largest of `LOSSES` decides.
