"""What to try against a bottleneck, and the gain to expect from it at most.

The gain is Amdahl's (1967): a share x of the time, gone altogether, makes the rest 1/(1 - x) as fast. That is an upper
bound: nothing is ever gone altogether, and what was hidden behind it comes to light.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .peaks import Peak


@dataclass(frozen=True)
class Advice:
    """`action`: what to try. `gain`: what to expect, in words. `at_most`: of today's throughput; None: not known."""

    action: str
    gain: str
    at_most: float | None

    def of_part(self, what: str) -> Advice:
        """The same where only a part of the run was seen, which is `what`: no number then."""
        return replace(self, gain=what, at_most=None)


def without(share: float) -> float:
    """Throughput over today's, at most, if this share of the time were gone; 100 if all of it."""
    return 1 / (1 - min(max(share, 0.0), 0.99))


def communication(exposed: float) -> list[Advice]:
    """`exposed`: share of the time on the wire that nothing is computed beside."""
    return [
        _saves(exposed, "hide more of it behind the backward pass: smaller or larger buckets (bucket_mb)"),
        _saves(exposed / 2, "send gradients in 16 bits: half the bytes (DDP's bf16 compression hook)"),
        _saves(exposed / 2, "add up the gradients of two batches before each all-reduce (no_sync)"),
    ]


def straggler(waiting: float, who: str, why: str) -> list[Advice]:
    """`waiting`: share of the time that ranks wait for `who`; `why`: what its profile says, or ""."""
    return [
        _saves(waiting, f"look at {who}: {why or 'clocks, temperature, throttling, and who else uses its node'}"),
        _saves(
            waiting, f"repeat it without the node of {who}: if the waiting is gone it was the node, not the program"
        ),
    ]


def taking_turns(waiting: float) -> list[Advice]:
    """`waiting`: share of the time that ranks wait, now for one, now for another."""
    return [
        _saves(
            waiting, "give ranks equal work: samples decoded before, or sorted by length into batches of equal size"
        ),
        _saves(waiting, "find what disturbs them in turn: the loader's slow samples, garbage collection, other jobs"),
    ]


def loading(idle: float, outside: float, copies: float, pageable: int) -> list[Advice]:
    """Shares of the time: idle for the loader, idle between steps, copying input with nothing beside; pageable copies."""
    found = []
    if copies:
        seen = f" ({pageable:,} copies are pageable)" if pageable else ""
        found.append(_saves(copies, f"pin the host's memory and copy with non_blocking=True{seen}"))
        if not idle + outside:
            found.append(_saves(copies, "copy the next batch on a stream of its own, beside this one's kernels"))
    if idle + outside:
        found.append(_saves(idle + outside, "more loader workers that persist and prefetch (num_workers)"))
    if outside > idle:
        found.append(
            Advice("mark the wait for a batch with a range `data`", "what is guessed now is known then", None)
        )
    if idle + outside:
        found.append(_saves(idle + outside, "decode once, before training, or augment on the GPU"))
    return found


def launching(share: float) -> list[Advice]:
    """`share`: of the time that the GPU is idle for lack of launched work."""
    return [
        _saves(share, "torch.compile with CUDA graphs (mode='reduce-overhead')"),
        _saves(share, "a larger batch per device: as many launches for more work"),
        _saves(share, "a fused optimizer (fused=True), and no .item() or print of a tensor inside the step"),
    ]


def memory(share: float) -> list[Advice]:
    """`share`: of the time in kernels that do few operations a byte."""
    return [
        _saves(share, "fuse kernels: torch.compile, fused normalisation, fused optimizer"),
        _saves(share / 2, "bf16 autocast: half the bytes of the activations"),
        _saves(share, "channels_last for convolutional networks: no changes of layout"),
    ]


def copying(share: float) -> list[Advice]:
    """`share`: of the time in copies inside, between and from devices, with nothing beside."""
    return [
        _saves(share, "find the copies in the timeline: clones, .contiguous(), .cpu() and .item() in the step"),
        _saves(share, "copy on a stream of its own, beside the kernels"),
    ]


def computing(matrix: float, peak: Peak | None) -> list[Advice]:
    """`matrix`: share of the time in GEMMs, convolutions and attention, on this GPU."""
    found = []
    best = max((peak.flops.get(kind, 0.0) for kind in ("bf16", "fp16")), default=0.0) if peak else 0.0
    if matrix and best:
        faster = best / peak.of("fp32")
        action = f"16-bit autocast, if this ran in fp32: the {peak.name}'s peak is {faster:.3g} times as high"
        found.append(_saves(matrix * (1 - 1 / faster), action))
    elif matrix:
        found.append(Advice("16-bit autocast, if this ran in fp32", "as much as the GPU's peaks differ", None))
    found.append(Advice("measure the longest kernels with Nsight Compute: do they use the tensor cores?", "the next step", None))  # fmt: skip
    found.append(Advice("more devices: these are used", "at most in proportion", None))
    return found


def computing_on_the_host() -> list[Advice]:
    """Where no GPU was seen."""
    return [
        Advice(
            "profile what the phases are made of: -p profile=torch, or cpu", "tells where the time goes inside", None
        ),
        Advice("more devices: computing takes the time", "at most in proportion", None),
    ]


def unexplained(idle: float | None) -> list[Advice]:
    """`idle`: share of the time that the GPU is idle and nothing tells why; None: nothing is known of it."""
    found = [
        Advice("mark data, forward, backward and optimizer with ranges and profile again", "tells what waits", None),
        Advice("have the profiler record launches (CUDA API calls)", "tells whether the GPU waits for them", None),
    ]
    return found if idle is None else [*found, _saves(idle, "then do away with the cause")]


def nothing_seen() -> list[Advice]:
    """Where there is nothing to judge by."""
    return [
        Advice("profile a few steps after warm-up: hpc run ... -p profile=torch", "a verdict", None),
        Advice("mark data, forward, backward and optimizer with ranges", "a verdict, also without a GPU", None),
    ]


def slow_kernels(told: bool) -> list[Advice]:
    """Where counters decide nothing; `told`: they do tell the use of the SMs and of the memory."""
    if told:
        first = Advice(
            "a larger batch, or fewer and fused kernels: more work a launch", "as far as they are too small", None
        )
    else:
        first = Advice(
            "collect ncu's sections SpeedOfLight and MemoryWorkloadAnalysis", "tells what they reach", None
        )
    return [first, *around_the_kernels()]


def around_the_kernels() -> list[Advice]:
    """Where only some kernels were measured."""
    return [Advice("profile whole steps too: -p profile=torch, or nsys", "tells what the run waits for", None)]


def _saves(share: float, action: str) -> Advice:
    most = without(share)
    return Advice(action, f"at most {most:.2f}x ({share:.1%} of the time)", most)
