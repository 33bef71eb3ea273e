"""What to try against a bottleneck, and the gain to expect from it at most.

The gain is Amdahl's (1967): what takes a share x of the time, gone altogether, makes the rest 1/(1 - x) as fast. It is an
upper bound: nothing is ever gone altogether, and what was hidden behind it comes to light.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """`action`: what to try. `gain`: to expect from it, in words. `at_most`: factor of the throughput; None: not known."""

    action: str
    gain: str
    at_most: float | None


def without(share: float) -> float:
    """Throughput over today's, at most, if this share of the time were gone."""
    return 1 / (1 - min(max(share, 0.0), 0.99))


def communication(exposed: float) -> list[Advice]:
    """`exposed`: share of the time on the wire that nothing is computed beside."""
    half = "if half the bytes take half the time"
    return [
        _bounded("overlap more of it: other buckets (bucket_mb), the slow layers' gradients first", exposed, "exposed wire time"),
        _bounded("send gradients in 16 bits (DDP's bf16 compression hook)", exposed / 2, f"exposed wire time halved, {half}"),
        _bounded("accumulate the gradients of two batches before each all-reduce", exposed / 2, "half as many all-reduces"),
    ]  # fmt: skip


def straggler(waiting: float, who: str, why: str) -> list[Advice]:
    """`waiting`: share of the time that ranks wait. `who` is the rank to look at, "" if they take turns; `why`: "" or what
    its profile says."""
    if not who:
        return [
            _bounded("give every rank the same work: bucket samples by length, pre-decode them", waiting, "waiting"),
            Advice("look for what disturbs all in turn: garbage collection, other jobs, system noise", _most(waiting), without(waiting)),
        ]  # fmt: skip
    first = (
        f"look at {who} first: {why}"
        if why
        else f"look at {who}: its clocks, temperature and throttling, its node's load"
    )
    return [
        _bounded(first, waiting, "waiting for it"),
        _bounded(f"run the same without the node of {who}: if the waiting goes, it is the node, not the program", waiting, "waiting for it"),
    ]  # fmt: skip


def loading(idle: float, outside: float, copies: float, pageable: int) -> list[Advice]:
    """Shares of the time: idle in the loader, idle between steps, copies to the device with nothing beside; pageable copies."""
    found = []
    if idle + outside > 0:
        waits = idle + outside
        found.append(_bounded("more loader workers, persistent and prefetching (num_workers, prefetch_factor)", waits, "waiting for data"))  # fmt: skip
        found.append(_bounded("decode and resize once instead of every epoch, or augment on the GPU", waits, "waiting for data"))  # fmt: skip
    if copies > 0:
        known = f" ({pageable:,} copies were pageable)" if pageable else ""
        found.append(_bounded(f"pin host memory and copy with non_blocking=True{known}", copies, "copies that nothing overlaps"))  # fmt: skip
    if outside > idle:
        found.append(Advice("mark the loader's next() with a range `data`: then it is known, not guessed", "certainty", None))  # fmt: skip
    return found


def launching(share: float) -> list[Advice]:
    """`share`: of the time that the GPU stands idle for launches."""
    return [
        _bounded("torch.compile, with CUDA graphs (mode='reduce-overhead')", share, "idle between kernels"),
        _bounded("a larger batch per device: the same launches for more work", share, "idle between kernels"),
        _bounded("fused optimizer (fused=True), no .item() or print of tensors in the step", share, "idle between kernels"),
    ]  # fmt: skip


def memory(share: float) -> list[Advice]:
    """`share`: of the time in kernels that do few operations a byte."""
    return [
        _bounded("fuse them: torch.compile, fused normalisation and optimizer", share, "kernels that move bytes"),
        _bounded("16-bit activations (bf16 autocast): half the bytes", share / 2, "their time halved"),
        _bounded("channels_last for convolutional networks: no layout changes", share, "kernels that move bytes"),
    ]  # fmt: skip


def computing(matrix: float, faster: float | None, device: str) -> list[Advice]:
    """`matrix`: share of the time in GEMMs and convolutions; `faster`: peak in bf16 over fp32 of the `device`; None: not known."""
    found = []
    if matrix and faster:
        found.append(
            _bounded(
                "bf16 autocast, or TF32, if this ran in fp32",
                matrix * (1 - 1 / faster),
                f"GEMMs and convolutions at {device}'s 16-bit peak, {faster:.3g} times its fp32",
            )
        )
    elif matrix:
        found.append(
            Advice("bf16 autocast, or TF32, if this ran in fp32", "depends on the GPU, which is not known", None)
        )
    found.append(Advice("more devices: the GPU is used, so more of them help", "at most in proportion", None))
    found.append(
        Advice("Nsight Compute on the longest kernels: do they use tensor cores?", "tells the next step", None)
    )
    return found


def _bounded(action: str, share: float, what: str) -> Advice:
    return Advice(action, f"{_most(share)} ({what})", without(share))


def _most(share: float) -> str:
    return f"at most {without(share):.2f}x"
