"""The rules behind verdicts, one per bound: when it is beyond its threshold, what casts doubt on it, and what to try.

A rule takes the shares of the devices' time and returns a `Loss`, or None within its threshold. Of `LOSSES` the largest
decides; without any the devices work, and `working` decides whether they compute or move bytes.
"""

from __future__ import annotations

import numpy as np

from . import kernels, peaks
from .devices import FEW_OPERATIONS, MATRIX, Counters, Devices
from .peaks import Peak
from .thresholds import (
    CAUSED,
    EFFICIENCY,
    EXPLAINED,
    EXPOSED,
    LIMITS,
    LOW_INTENSITY,
    MANY,
    SHORT_KERNEL,
    UTILISATION,
)
from .verdict import Advice, Bound, Doubt, Loss, beyond, saving, within

SLOW_KERNELS = "the measured kernels reach less than half of every peak: latency limits them, or they are too small"
COUNTERS = Advice("measure the longest kernels with Nsight Compute: do they use the tensor cores?", "the next step")
IF_FP32 = ", if this ran in fp32"  # dropped where that is known
STEP_GRAPH = "the whole step as one CUDA graph (step_graph=true; torch.cuda.graph in a loop of your own)"
UNEXPLAINED = (
    Advice("mark data, forward, backward and optimizer with ranges and profile again", "shows what waits"),
    Advice(
        "record launches (CUDA API calls) or, on a CPU, stacks (-p profile=cpu)", "shows what the host does meanwhile"
    ),
)


def communication(devices: Devices) -> Loss | None:
    if devices.matched is not None:
        return communicating(devices.shares["wire"])
    why = "wire time and waiting are not separated: that takes the collectives of several ranks"
    return communicating(devices.shares["exposed"] or 0.0, Doubt(0.7, why))


def communicating(share: float, *doubts: Doubt) -> Loss | None:
    """`share`: of the time on the wire without concurrent compute."""
    if share < EXPOSED:
        return None
    advice = saving(share, "hide more of it behind the backward pass: smaller or larger buckets (bucket_mb)")
    advice += saving(
        share / 2,
        "send gradients in 16 bits: half the bytes (DDP's bf16 compression hook)",
        "add up the gradients of two batches before each all-reduce (no_sync)",
    )
    return Loss(Bound.COMMUNICATION, share, beyond(share, EXPOSED), "on the wire", advice=advice, doubts=doubts)


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
            return text.format(straggler_ns / 1e6, np.median(others_ns) / 1e6)
    return "clocks, temperature, throttling, and other jobs on its node"


def loading(devices: Devices) -> Loss | None:
    shares = devices.shares
    return waiting_for_data(shares["loader"] or 0, shares["outside"] or 0, shares["copies"], devices.pageable_copies)


def waiting_for_data(loader: float, outside: float = 0.0, copies: float = 0.0, pageable: int = 0) -> Loss | None:
    """`loader`, `outside`, `copies`: shares of the time: idle for the loader, idle between steps, copying input with nothing
    beside; `pageable`: copies from memory that is not pinned."""
    limit = LIMITS["loader"]
    idle = loader + outside
    margin = max(beyond(idle, limit), beyond(copies, LIMITS["copies"]))
    copies = copies if copies >= LIMITS["copies"] else 0.0
    if idle < limit and not copies:
        return None
    advice, doubts = [], []
    if loader < limit and not copies:
        doubts.append(
            Doubt(0.7, "the device idles between steps, where nothing is marked: usually that is the loader")
        )
    if copies:
        copied = f" ({pageable:,} copies are pageable)" if pageable else ""
        advice += saving(copies, f"pin the host's memory and copy with non_blocking=True{copied}")
    if idle >= limit:
        advice += saving(idle, "more loader workers that persist and prefetch (num_workers)")
        if outside > loader:
            mark = "mark the wait for a batch with a range `data`"
            advice.append(Advice(mark, "replaces the guess by a measurement"))
        advice += saving(idle, "decode once, before training, or augment whole batches")
    else:
        advice += saving(copies, "copy the next batch on a stream of its own, beside this one's kernels")
    return Loss(Bound.INPUT, idle + copies, margin, "waiting for data", advice=advice, doubts=doubts)


def launching(devices: Devices) -> Loss | None:
    busy, share, late = (devices.shares[name] for name in ("busy", "remaining", "late"))
    if busy >= UTILISATION or share < (1 - busy) / 2 or devices.kernels < MANY:
        return None
    doubts = []
    brief = devices.median_kernel < SHORT_KERNEL and devices.shares["short"] > EXPLAINED * share
    if late is None or late <= EXPLAINED * share:
        if not brief:
            return None
        doubts.append(Doubt(0.8, f"launch times {'are not known' if late is None else 'do not confirm it'}"))
    if not brief:
        doubts.append(Doubt(0.8, "kernels are long enough to hide launches: the host is busy with something else"))
    if any(part["communication_ns"] is None for part in devices.parts):
        doubts.append(Doubt(0.5, "it may be communication, which was not recorded"))
    advice = []
    if not devices.replayed and any(timeline.device is not None for timeline in devices.timelines):
        advice += saving(share if late is None else late, STEP_GRAPH)
    advice += saving(
        share,
        "torch.compile: fewer kernels to launch",
        "a larger batch per device: as many launches for more work",
        "a fused optimizer (fused=True), and no .item() or print of a tensor inside the step",
    )
    margin = min(1.0, (UTILISATION - busy) / (1 - UTILISATION))
    return Loss(Bound.LAUNCH, share, margin, "waiting for launches", advice=advice, doubts=doubts)


def copying(devices: Devices) -> Loss | None:
    share = devices.shares["moves"]
    limit = LIMITS["moves"]
    advice = saving(
        share,
        "find the copies in the timeline: clones, .contiguous(), .cpu() and .item() in the step",
        "copy on a stream of its own, beside the kernels",
    )
    return Loss(Bound.MEMORY, share, beyond(share, limit), "copying", advice=advice) if share >= limit else None


LOSSES = (communication, straggler, loading, launching, copying)


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
    elif shares["exposed"] >= EXPOSED:  # together they are no bound, but no good sign
        exposed = f"the wire and waiting together leave {shares['exposed']:.0%} of the time exposed"
        doubts.append(Doubt(0.6, exposed))
    margin = within(limits)
    if by_name if by_counters is None else by_counters:
        margin = margin if by_counters else min(margin, beyond(few, LOW_INTENSITY))
        share = shares["computing"] * few
        reason = f"kernels that do few operations a byte take {few:.0%} of the compute time"
        transfers = shares["computing"] * devices.class_share([kernels.TRANSFER])
        return Loss(Bound.MEMORY, share, margin, "", reason, moving_bytes(share, transfers), doubts)
    device = next((timeline.device_name for timeline in devices.timelines if timeline.device_name), "")
    advice = computing(shares["computing"] * devices.class_share(MATRIX), peaks.find(device))
    if device == "CPU":
        advice.remove(COUNTERS)
    reason = f"the device is busy {shares['busy']:.0%} of the time, and no loss is beyond its threshold"
    return Loss(Bound.COMPUTE, shares["busy"], margin, "", reason, advice, doubts)


def moving_bytes(share: float, transfers: float = 0.0) -> list[Advice]:
    """Shares of the time: `share` in kernels that do few operations per byte, of which `transfers` only move them."""
    advice = saving(share, "fuse kernels: torch.compile, fused normalisation, fused optimizer")
    advice += saving(share / 2, "bf16 autocast: half the bytes of the activations")
    layout = "channels_last for convolutional networks: no changes of layout"
    return advice + saving(transfers, layout) if transfers else advice


def computing(matrix: float = 0.0, peak: Peak | None = None) -> list[Advice]:
    """`matrix`: share of the time in GEMMs, convolutions and attention, on this GPU."""
    best = max((peak.flops.get(kind, 0.0) for kind in ("bf16", "fp16")), default=0.0) if peak else 0.0
    advice = []
    if matrix and best:
        faster = best / peak.flops["fp32"]
        action = f"16-bit autocast{IF_FP32}: the {peak.name}'s peak is {faster:.3g} times as high"
        advice += saving(matrix * (1 - 1 / faster), action)
    elif matrix:
        advice.append(Advice(f"16-bit autocast{IF_FP32}", "as much as the device's peaks differ"))
    return [*advice, COUNTERS, Advice("more devices: these are used", "at most in proportion")]
