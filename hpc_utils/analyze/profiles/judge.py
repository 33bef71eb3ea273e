"""What limits a training run, from the profiles of its ranks: a verdict with its evidence.

Shares are of the devices' spans (`breakdown`), summed over them. Of the losses beyond their
thresholds the largest is the verdict (`verdict.WHEN`); without any, the devices compute or move bytes. Without their work
(`Reports.worked`) the phases in the run's own records decide, else the counters of single kernels. Both have medium
confidence at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hpc_utils.plural import counted

from . import kernels, peaks
from .devices import FEW_OPERATIONS, FUSABLE, MATRIX, Counters, Devices
from .phases import PARTS, Phase
from .readers import Reports
from .timeline import NO_KERNELS, Timeline, world
from .verdict import (
    CAUSED,
    EFFICIENCY,
    EXPLAINED,
    EXPOSED,
    IDLE,
    LIMITS,
    LOAD,
    LOADER,
    LONG_GAP,
    LOW_INTENSITY,
    MANY,
    MANY_BRIEF,
    SHORT_KERNEL,
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
)  # fmt: skip

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

# What helps collectives: their kinds, the part of their time that it saves at most (None: what computing can hide), the action.
ALL_REDUCE, SHARDED, ALL_TO_ALL = ["all_reduce"], ["all_gather", "reduce_scatter"], ["all_to_all"]
KEPT = "where memory allows, keep parameters from forward to backward: no second all-gather (reshard_after_forward=False)"
HIDING = "hide more of it behind the backward pass: smaller or larger buckets (bucket_mb)"
SIXTEEN = "send gradients in 16 bits: half the bytes (DDP's bf16 compression hook)"
JOINED = "join gradients into buckets, as DDP does: {} all-reduces a step are shorter than 0.05 ms"
NO_SYNC = "add up the gradients of {} batches before each all-reduce (no_sync)"
TRIES = [
    (ALL_REDUCE, 1, JOINED),
    (ALL_REDUCE, None, HIDING),
    (ALL_REDUCE, 1 / 2, SIXTEEN),
    (ALL_REDUCE, 1 / 2, NO_SYNC),
    (["activations"], None, "overlap it with computing (asynchronous tensor parallelism)"),
    (["activations"], 1, "tensor parallelism over fewer GPUs, of one node: more data parallelism instead"),
    (SHARDED, None, "wrap each block on its own and prefetch the next one's parameters while it computes (FSDP: fully_shard on "
     "blocks, set_modules_to_forward_prefetch; ZeRO: overlap_comm)"),
    (SHARDED, 1, "on several nodes, hybrid sharding: parameters are sharded within a node only (2-D mesh, HYBRID_SHARD)"),
    (["all_gather"], 1, KEPT),
    (ALL_TO_ALL, None, "overlap it with computing: shared experts, or the other half of the batch"),
    (ALL_TO_ALL, 1, "place experts (or parts of sequences) so that most of the bytes stay within a node"),
    (["broadcast"], 1, "one process a GPU, with DDP: DataParallel sends the model in each step, ZeRO-1 what it updated (plain DDP, "
     "where memory allows)"),
    (["", "gather", "scatter"], None, "start it earlier, beside computing; pipelines: more micro-batches, or an interleaved schedule"),
]  # fmt: skip
SLOW_KERNELS = "the measured kernels reach less than half of every peak: latency limits them, or they are too small"
IF_FP32 = ", if this ran in fp32"  # dropped where that is known
WORKERS = "more loader workers that persist and prefetch (num_workers)"
RETURNED = (
    "read results less often: each .item(), .cpu() or print of a tensor waits for the device, and empties its queue"
)
ON_DEVICE = "all images on the device from the start (loader=device)"
DECODED = "decode once, before training, or augment whole batches"
SAME_TIME = "tries with the same bound save the same time: their gains do not add up"
ELSEWHERE = "less often, or in a thread beside the steps"
STEP_GRAPH = "the whole step as one CUDA graph (step_graph=true; torch.cuda.graph in a loop of your own)"
CUDA_ACTIVITY = Advice(
    "record CUDA's activity: ProfilerActivity.CUDA, one profiler at a time", "shows what the device does"
)
TF32 = "TF32 (precision=tf32; torch.set_float32_matmul_precision('high'))"
AUTOCAST = "16-bit autocast"
ALL_RANKS = (Advice("give the profiles of all ranks", "separates transfer from waiting, whose remedies differ"),)
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
    fewest = min(len(timeline.ops) for timeline in devices.timelines)
    if fewest < STEPS and not devices.replayed:
        why = f"a device has {counted(fewest, 'operation')} in the profile: fewer than {STEPS} show no pattern"
        return undecided(why, [SEVERAL_STEPS], remarks, evidence)
    losses = sorted(filter(None, (rule(devices) for rule in LOSSES)), key=lambda loss: -loss.share)
    if not losses and shares["remaining"] >= 1 - UTILISATION:
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
    others = [max(loss.advice, key=lambda proposal: proposal.at_most or 0) for loss in losses[1:] if loss.advice]
    return replace(chosen, advice=[*chosen.advice, *others]).verdict(doubts, evidence, remarks)


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


def communication(devices: Devices) -> Loss | None:
    shares = devices.shares
    if devices.matched is not None:
        return communicating(shares["wire"], sending(shares["wire"], devices))
    why = "transfer and waiting are not separated: that takes the collectives of several ranks"
    advice = [*ALL_RANKS * (len(devices.timelines) == 1), *sending(shares["exposed"] or 0.0, devices)]
    return communicating(shares["exposed"] or 0.0, advice, Doubt(0.7, why))


def communicating(share: float, advice: Sequence[Advice], *doubts: Doubt) -> Loss | None:
    """`share`: of the time in communication and nothing computed beside; in transfer, unless there are doubts."""
    what = "in communication, waiting included" if doubts else "in transfer"
    if share < EXPOSED:
        return None
    return Loss(Bound.COMMUNICATION, share, beyond(share, EXPOSED), what, advice=advice, doubts=doubts)


def sending(share: float, devices: Devices) -> list[Advice]:
    uncovered = devices.shares["computing"] - (devices.shares["overlapped"] or 0.0)
    advice = []
    reduced = sum(ns for (kind, _), ns in devices.exposed_ns.items() if kind in ALL_REDUCE)
    one_by_one = devices.brief_per_step > MANY_BRIEF and devices.brief_ns > reduced / 2
    applies = {KEPT: devices.gathered_twice, JOINED: one_by_one, HIDING: not one_by_one}
    for kinds, part, action in TRIES:
        touched = sum(
            ns
            for (kind, narrow), ns in devices.exposed_ns.items()
            if kind in kinds and not (narrow and action == SIXTEEN)
        )
        if action == JOINED:
            touched = devices.brief_ns
        touched *= share / max(devices.exposed_ns.total(), 1)
        if action == NO_SYNC:
            part = 1 - 1 / devices.batches
        if applies.get(action, True):
            saved = touched * part if part else min(touched, uncovered)
            number = devices.brief_per_step if action == JOINED else devices.batches
            advice += saving(saved, action.format(number))
    return advice


def straggler(devices: Devices) -> Loss | None:
    share = devices.shares["waiting"]
    slowest = devices.straggler
    limit = LIMITS["waiting"]
    if share is None or share < limit or share <= devices.shares["wire"]:
        return None
    reason = ""
    doubts = []
    if slowest is None or slowest.caused <= CAUSED:
        doubts.append(Doubt(0.6, "no single rank causes most of it"))
        advice = saving(
            share,
            "give ranks equal work: samples decoded before, or sorted by length into batches of equal size",
            "find what disturbs them in turn: the loader's slow samples, garbage collection, other jobs",
        )
    else:
        reason = (
            f"ranks wait {share:.0%} of the time, {slowest.caused:.0%} of that for {slowest.label}, which is last in "
            f"{slowest.last} of {slowest.of} {slowest.per}s, by {slowest.behind_ns / 1e6:.3g} ms"
        )
        if not slowest.systematic:
            doubts.append(Doubt(0.7, f"{slowest.of} {slowest.per}s are too few to rule out chance"))
        advice = saving(
            share * slowest.caused,
            f"look at {slowest.label}: {_why_late(devices)}",
            f"repeat it without the device of {slowest.label}: if the waiting is gone it was the device, "
            "not the program",
        )
    return Loss(Bound.STRAGGLER, share, beyond(share, limit), "waiting for other ranks", reason, advice, doubts)


def _why_late(devices: Devices) -> str:
    """What the straggler's own profile shows, against the median of the others: half of what they wait for it, or more."""
    enough = 0.5 * devices.straggler.behind_ns * devices.straggler.last
    for name, text in (
        ("loader_wait_ns", "it waits for data {:,.4g} ms, the others {:,.4g}"),
        ("compute_ns", "it computes {:,.4g} ms, the others {:,.4g}: clocks, temperature, or more work"),
        ("idle_ns", "it is idle {:,.4g} ms, the others {:,.4g}: its host is late"),
    ):
        straggler_ns, *others_ns = devices.of_straggler(name)
        if straggler_ns is not None and None not in others_ns and straggler_ns - np.median(others_ns) >= enough:
            return text.format(straggler_ns / 1e6, np.median(others_ns) / 1e6) + _longer(devices, name)
    return "clocks, temperature, throttling, and other jobs on its node"


def _longer(devices: Devices, waited: str) -> str:
    """The kernel of the straggler that takes longer than on the others, or what its host was in meanwhile."""
    column = devices.straggler.column
    if waited != "compute_ns":
        names = [f", {ns / 1e6:.3g} ms of it in {name}" for name, ns in devices.pauses(column) if name]
        return names[0] if names and waited == "idle_ns" else ""
    times = [kernels.kernel_ns([timeline]) for timeline in devices.timelines]
    late = times.pop(column)
    name = max(late, key=lambda name: late[name] - np.median([punctual[name] for punctual in times]))
    return f", most of it in {kernels.short(name)}"


def loading(devices: Devices) -> Loss | None:
    shares = devices.shares
    return waiting_for_data(shares["loader"] or 0, shares["outside"] or 0, shares["copies"], shares["pageable"])


def waiting_for_data(loader: float, outside: float = 0.0, copies: float = 0.0, pageable: float = 0.0) -> Loss | None:
    """Shares of the time: idle for the loader, idle between steps, copying input with nothing beside, and of this from memory
    that is not pinned."""
    limit = LIMITS["loader"]
    idle = loader + outside if max(loader, outside) >= limit else 0.0
    margin = max(beyond(idle, limit), beyond(copies, LIMITS["copies"]))
    copies = copies if copies >= LIMITS["copies"] else 0.0
    if not idle and not copies:
        return None
    advice, doubts = [], []
    if loader < limit and not copies:
        doubts.append(
            Doubt(0.7, "the device idles between steps, where nothing is marked: usually that is the loader")
        )
    if copies:
        advice += saving(pageable, "pin the host's memory and copy with non_blocking=True")
        advice += saving(copies, "copy the next batch, or layer, on a stream of its own, beside this one's kernels")
    if idle:
        advice += saving(idle, WORKERS)
        if outside > loader:
            advice.append(
                Advice("mark the wait for a batch with a range `data`", "replaces the guess by a measurement")
            )
        advice += saving(idle, DECODED)
    return Loss(Bound.INPUT, idle + copies, margin, "waiting for data", advice=advice, doubts=doubts)


def launching(devices: Devices) -> Loss | None:
    shares = devices.shares
    busy, share, late = shares["busy"], shares["short"], shares["short_late"]
    if busy >= UTILISATION or share < IDLE * (1 - busy) or devices.kernels < MANY:
        return None
    doubts = []
    brief = devices.median_kernel < SHORT_KERNEL
    if late is None or late <= EXPLAINED * share:
        if not brief:
            return None
        doubts.append(Doubt(0.8, f"launch times {'are not known' if late is None else 'do not confirm it'}"))
    if not brief:
        doubts.append(Doubt(0.8, "kernels are long enough to hide launches: the host is busy with something else"))
    if any(part["communication_ns"] is None for part in devices.parts):
        doubts.append(Doubt(0.5, "it may be communication, which was not recorded"))
    updating, zeroing, returned = shares["updating"], shares["zeroing"], shares["returned"] or 0.0
    advice = saving(returned, RETURNED)
    advice += saving(zeroing, "zero_grad(set_to_none=True): no kernels that fill gradients with zeros")
    advice += saving(updating, "a fused optimizer (fused=True)")
    if not devices.replayed and devices.device_name != "CPU":
        advice += saving((share if late is None else late) - returned, STEP_GRAPH)
    if not devices.compiled:
        advice += saving(share - returned - updating - zeroing, "torch.compile: fewer kernels to launch")
    advice += saving(share - returned, "a larger batch per device: as many launches for more work")
    advice += [*unfused_attention(devices), *narrower(devices)]
    return Loss(Bound.LAUNCH, share, _idle_margin(busy), "waiting for launches", advice=advice, doubts=doubts)


def pausing(devices: Devices) -> Loss | None:
    busy, share, late = (devices.shares[name] for name in ("busy", "remaining", "late"))
    share -= devices.shares["short"]
    if busy >= UTILISATION or share < IDLE * (1 - busy):
        return None
    doubts = []
    if devices.shares["longest"] > share / 2:
        doubts.append(Doubt(0.5, "a single gap takes most of it, and may not return"))
    pauses = dict(devices.pauses())
    unnamed = pauses.pop("", 0) / devices.span
    if unnamed > (1 - EXPLAINED) * share and (
        late is None or late - devices.shares["short_late"] <= EXPLAINED * share
    ):
        return None
    reason = f"in {share:.0%} of the time the device idles in gaps of more than {LONG_GAP / 1e6:.0f} ms: the host was busy elsewhere"
    advice = []
    for name, ns in list(pauses.items())[:2]:
        advice += saving(ns / devices.span, f"look at {name}, in which the host is meanwhile: {ELSEWHERE}")
    if unnamed:
        reason += "" if pauses else ", and nothing that was recorded is around it"
        mark = "mark what the host does there with ranges (record_function, NVTX), or record stacks (with_stack=True)"
        advice += saving(unnamed, mark, f"what the host does there, {ELSEWHERE}: logs, checkpoints, evaluation")
        if devices.shares["loader"] is None:
            advice += saving(unnamed, f"if it is the loader: {WORKERS}")
    return Loss(Bound.HOST, share, _idle_margin(busy), "in long gaps", reason, advice, doubts)


def _idle_margin(busy: float) -> float:
    return min(1.0, (UTILISATION - busy) / (1 - UTILISATION))


def copying(devices: Devices) -> Loss | None:
    share = devices.shares["moves"]
    limit = LIMITS["moves"]
    advice = saving(
        share,
        "find the copies in the timeline: clones, .contiguous(), .cpu() and .item() in the step",
        "copy on a stream of its own, beside the kernels",
    )
    return Loss(Bound.MEMORY, share, beyond(share, limit), "copying", advice=advice) if share >= limit else None


LOSSES = (communication, straggler, loading, launching, pausing, copying)


def working(devices: Devices, measured: Counters | None) -> Loss:
    """No loss is beyond its threshold: does the GPU compute, or move bytes?"""
    few = devices.class_share(FEW_OPERATIONS)
    shares = devices.shares
    by_name = few > LOW_INTENSITY
    by_counters = None if measured is None else measured.moving
    doubts = []
    if by_counters is None:
        doubts.append(Doubt(0.9, "no hardware counters were measured"))
    elif by_counters != by_name:
        doubts.append(Doubt(0.7, "counters and the classes of the kernels disagree"))
    if by_counters is not None and measured.efficiency <= EFFICIENCY:
        doubts.append(Doubt(0.8, SLOW_KERNELS))
    limits = [(shares[name], limit) for name, limit in LIMITS.items()] + [(1 - shares["busy"], 1 - UTILISATION)]
    if devices.matched is None:
        limits.append((shares["exposed"], EXPOSED))
    margin = within(limits)
    if shares["computing"] < UTILISATION:
        return balanced(devices, margin, doubts)
    if by_name if by_counters is None else by_counters:
        margin = margin if by_counters else min(margin, beyond(few, LOW_INTENSITY))
        share = shares["computing"] * (few if by_name else 1.0)
        reason = f"kernels that do few operations a byte take {few:.0%} of the compute time"
        advice = [*moving_bytes(share, devices), *unfused_attention(devices), *measuring(devices)]
        return Loss(Bound.MEMORY, share, margin, "", reason, advice, doubts)
    reason = f"the device is busy {shares['busy']:.0%} of the time, and no loss is beyond its threshold"
    return Loss(Bound.COMPUTE, shares["busy"], margin, "", reason, computing(devices), doubts)


def balanced(devices: Devices, margin: float, doubts: Sequence[Doubt]) -> Loss:
    shares = devices.shares
    parts = {
        "computing": shares["computing"],
        "exposed communication": shares["exposed"] or 0.0,
        "waiting for data": (shares["loader"] or 0.0) + (shares["outside"] or 0.0),
        "otherwise idle": shares["remaining"],
        "copying": shares["copies"] + shares["moves"],
    }
    advice = saving(parts["waiting for data"], DECODED)
    fewer = "a larger batch" if devices.compiled else "torch.compile or a larger batch"
    advice += saving(parts["otherwise idle"], f"{fewer}: fewer launches for the same work")
    advice += [*sending(parts["exposed communication"], devices)[:1], *computing(devices)]
    ordered = sorted(parts, key=lambda part: -parts[part])
    reason = "no part is beyond its threshold: " + ", ".join(
        f"{part} {parts[part]:.1%}" for part in ordered if parts[part]
    )
    return Loss(Bound.BALANCED, shares["busy"], margin, "", reason, advice, doubts)


def moving_bytes(share: float, devices: Devices) -> list[Advice]:
    """`share`: of the time, in kernels that do few operations a byte."""
    unfused = devices.shares["computing"] * devices.class_share(FUSABLE) - devices.named("^triton_(?!tem)")
    advice = saving(unfused, "fuse kernels: torch.compile, fused normalisation, fused optimizer")
    advice += [] if devices.autocast else saving(share / 2, "bf16 autocast: half the bytes of the activations")
    return advice + saving(
        devices.named(kernels.LAYOUT), "channels_last for convolutional networks: no changes of layout"
    )


def unfused_attention(devices: Devices) -> list[Advice]:
    share = devices.named(kernels.UNFUSED_ATTENTION) * (devices.named(kernels.SOFTMAX) > 0)
    return saving(share, "fused attention: torch.nn.functional.scaled_dot_product_attention")


def narrower(devices: Devices) -> list[Advice]:
    """TF32, and 16 bits, for the GEMMs, convolutions and attention whose names say that they take more, or for those whose names do not
    say what they take if none takes 16 bits."""
    wide = {kind: devices.class_share(MATRIX, [kind]) for kind in kernels.SINGLE}
    condition = ""
    if not any(wide.values()) and not devices.autocast:
        wide["fp32"] = devices.class_share(MATRIX, [""])
        condition = IF_FP32
    peak = peaks.find_peak(devices.device_name)
    if peak is None:
        return [Advice(AUTOCAST + condition, "as much as the device's peaks differ")] * any(wide.values())
    longest = max(wide, key=wide.get)
    advice = []
    for precision, action in (("tf32", TF32), ("fp16", AUTOCAST)):
        times = {kind: peak.flops.get(precision, 0.0) / peak.flops.get(kind, peak.flops["fp32"]) for kind in wide}
        saved = sum(share * (1 - 1 / times[kind]) for kind, share in wide.items() if times[kind] > 1)
        words = f"{action}{condition}: the {peak.name}'s peak is {times[longest]:.3g} times {longest}'s"
        advice += saving(devices.shares["computing"] * saved, words)
    return advice


def computing(devices: Devices) -> list[Advice]:
    advice = [*unfused_attention(devices), *narrower(devices), *measuring(devices)]
    return [*advice, Advice("more devices: these are used", "at most in proportion")]


def measuring(devices: Devices) -> list[Advice]:
    if devices.device_name == "CPU":
        return []
    longest = max(devices.kernel_ns, key=devices.kernel_ns.get, default="the longest kernels")
    tool = "ROCm Compute Profiler" if "AMD" in devices.device_name else "Nsight Compute"
    share = f"{devices.kernel_ns.get(longest, 0) / devices.span:.0%} of the time"
    return [Advice(f"measure {kernels.short(longest)} with {tool}: how near is it to the peaks?", share)]
