"""The rules: each returns the time lost if it is beyond its threshold, with doubts and what to try, else None.

The largest of `LOSSES` decides. Without any, `working` says whether the devices compute or move bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import kernels
from .devices import FEW_OPERATIONS, Counters, Devices
from .remedies import (
    DECODED,
    ELSEWHERE,
    RETURNED,
    STEP_GRAPH,
    WORKERS,
    computing,
    measuring,
    moving_bytes,
    narrower,
    sending,
    unfused_attention,
)
from .verdict import (
    CAUSED,
    EFFICIENCY,
    EXPLAINED,
    EXPOSED,
    IDLE,
    LIMITS,
    LONG_GAP,
    LOW_INTENSITY,
    MANY,
    SHORT_KERNEL,
    UTILISATION,
    Advice,
    Bound,
    Doubt,
    Loss,
    beyond,
    saving,
    within,
)

SLOW_KERNELS = "the measured kernels reach less than half of every peak: latency limits them, or they are too small"
ALL_RANKS = (Advice("give the profiles of all ranks", "separates transfer from waiting, whose remedies differ"),)


def communication(devices: Devices) -> Loss | None:
    wire, unseparated, exposed = (devices.shares[name] or 0.0 for name in ("wire", "unseparated", "exposed"))
    if wire >= unseparated:
        return communicating(wire, sending(wire, devices))
    why = "transfer and waiting are not separated: that takes the same collectives of several ranks"
    advice = [*ALL_RANKS * (len(devices.timelines) == 1), *sending(exposed, devices)]
    return communicating(unseparated, advice, Doubt(0.7, why))


def communicating(share: float, advice: Sequence[Advice], *doubts: Doubt) -> Loss | None:
    """`share`: of the time in communication and nothing computed beside; in transfer, unless there are doubts."""
    what = "in communication, waiting included" if doubts else "in transfer"
    if share < EXPOSED:
        return None
    return Loss(Bound.COMMUNICATION, share, beyond(share, EXPOSED), what, advice=advice, doubts=doubts)


def straggler(devices: Devices) -> Loss | None:
    share = devices.shares["waiting"]
    slowest = devices.straggler
    limit = LIMITS["waiting"]
    if share is None or share < limit or share <= devices.shares["wire"]:
        return None
    reason = ""
    doubts = []
    others = 1 - 1 / len(devices.timelines)  # the share of the ranks that wait for one
    if devices.matched.in_groups:
        doubts.append(Doubt(0.6, "they wait in several process groups: which rank causes it is not determined"))
        advice = [
            Advice("compare what each group's ranks do: the one that waits least delays the others", "not known")
        ]
    elif slowest is None or slowest.caused <= CAUSED:
        doubts.append(Doubt(0.6, "no single rank causes most of it"))
        advice = saving(
            devices.delays / others,
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
            (share * slowest.caused + devices.shares["unseparated"]) / others,
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
    advice += [*sending(parts["exposed communication"] - devices.delays, devices)[:1], *computing(devices)]
    ordered = sorted(parts, key=lambda part: -parts[part])
    reason = "no part is beyond its threshold: " + ", ".join(
        f"{part} {parts[part]:.1%}" for part in ordered if parts[part]
    )
    return Loss(Bound.BALANCED, shares["busy"], margin, "", reason, advice, doubts)
