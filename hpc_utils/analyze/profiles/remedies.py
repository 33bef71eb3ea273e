"""What to try against a loss, each with the most that it saves: a share of the time."""

from __future__ import annotations

from . import kernels, peaks
from .devices import FUSABLE, MATRIX, Devices
from .verdict import MANY_BRIEF, Advice, saving

IF_FP32 = ", if this ran in fp32"  # dropped where that is known
TF32 = "TF32 (precision=tf32; torch.set_float32_matmul_precision('high'))"
AUTOCAST = "16-bit autocast"
WORKERS = "more loader workers that persist and prefetch (num_workers)"
ON_DEVICE = "all images on the device from the start (loader=device)"
DECODED = "decode once, before training, or augment whole batches"
RETURNED = (
    "read results less often: each .item(), .cpu() or print of a tensor waits for the device, and empties its queue"
)
ELSEWHERE = "less often, or in a thread beside the steps"
STEP_GRAPH = "the whole step as one CUDA graph (step_graph=true; torch.cuda.graph in a loop of your own)"

# What helps collectives: their kinds, the part of their time that it saves at most (None: what computing can hide), the action.
ALL_REDUCE = ["all_reduce"]
SHARDED = ["all_gather", "reduce_scatter"]
ALL_TO_ALL = ["all_to_all"]
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
