"""Which knobs contradict each other: found before anything starts, each with its reason."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .capability import CUDA_GRAPHS, QUOTA_AT_LEAST, shortest_period

if TYPE_CHECKING:
    from .config import RunConfig

WORKLOADS = ("resnet18", "resnet50", "cnn")  # ours; anything else is the user's own `module:function`


def contradictions(config: RunConfig) -> Iterator[str]:
    """One line for each fault of `config`: what contradicts what, and why."""
    yield from _work(config)
    yield from _loading(config)
    yield from _strategy(config)
    yield from _compilation(config)
    yield from _share(config)
    yield from _profile(config)


def _work(config: RunConfig) -> Iterator[str]:
    if config.global_batch is not None and config.batch_per_device is not None:
        yield "give global_batch (strong scaling) or batch_per_device (weak scaling), not both"
    if _ours(config) and config.workload not in WORKLOADS:
        close = difflib.get_close_matches(config.workload, WORKLOADS, 1, 0.4)
        hint = f"did you mean {close[0]}? " if close else ""
        known = f"known are {', '.join(WORKLOADS)}, and your own as module:function"
        yield f"unknown workload {config.workload!r}: {hint}{known}"
    if config.workload_args and _ours(config):
        yield f"workload_args go to your own module:function, not to {config.workload!r}"
    if config.steps_per_epoch is None and config.lr_warmup_epochs > config.epochs:
        yield f"lr_warmup_epochs={config.lr_warmup_epochs:g} is longer than epochs={config.epochs}"


def _loading(config: RunConfig) -> Iterator[str]:
    ours = _ours(config)
    if not ours and config.loader != "host":
        yield (
            f"loader={config.loader!r} is about our images; the data of {config.workload!r} come as its Workload says, "
            f"map-style ones through a DataLoader"
        )
    if not ours and config.cutout:
        yield f"cutout={config.cutout} is about our images; those of {config.workload!r} are augmented by its own code"
    if config.cutout and not config.augment:
        yield f"cutout={config.cutout} is an augmentation, and augment=false"
    if ours and config.loader_workers and config.loader != "workers":
        yield (
            f"loader_workers={config.loader_workers}: loader={config.loader!r} makes whole batches without workers; "
            f"loader=workers has them"
        )
    if not config.loader_workers:
        if config.prefetch_factor != 2:
            yield f"prefetch_factor={config.prefetch_factor}: with loader_workers=0 nobody loads ahead"
        if not config.persistent_workers:
            yield "persistent_workers=false: with loader_workers=0 there are none"


def _strategy(config: RunConfig) -> Iterator[str]:
    if config.parallel not in ("ddp", "zero1"):
        for name, default in (("comm_hook", "none"), ("static_graph", False), ("gradient_as_bucket_view", True)):
            if (value := getattr(config, name)) != default:
                yield f"{name}={str(value).lower()} is DDP's, and parallel={config.parallel!r} has none"
    if config.static_graph and config.accumulate > 1:
        yield (
            f"static_graph=true with accumulate={config.accumulate}: micro-batches that are not reduced make another graph"
        )
    if config.comm_hook == "powersgd" and not config.warmup_steps:
        yield (
            "comm_hook=powersgd with warmup_steps=0: it remembers by DDP's buckets, which are rebuilt after the first step: "
            "let that be a warm-up's"
        )
    if config.comm_hook == "powersgd" and config.precision == "fp16":
        yield (
            "comm_hook=powersgd with precision=fp16: it remembers gradients, which fp16 scales, and an overflow would stay in "
            "them for ever: use precision=bf16, or comm_hook=fp16"
        )
    if config.parallel == "fsdp" and config.bucket_mb != type(config).model_fields["bucket_mb"].default:
        yield f"bucket_mb={config.bucket_mb:g} is DDP's, and parallel='fsdp' has none: it reduces block by block"
    if config.fused_optimizer and config.parallel == "fsdp" and config.optimizer == "sgd":
        yield "fused_optimizer=true with parallel='fsdp': torch has no fused SGD of sharded weights; optimizer='adamw' has"
    if config.activation_checkpointing and config.workload == "cnn":
        yield "activation_checkpointing=true: workload='cnn' has no blocks to compute again, it would save nothing"
    if config.batch_per_device is not None and config.batch_per_device % config.accumulate:
        yield uneven(config.accumulate, config.batch_per_device)


def _compilation(config: RunConfig) -> Iterator[str]:
    if config.compile == "off":
        return
    graphs = config.compile in CUDA_GRAPHS and config.device != "cpu"
    least = 3 if graphs else 1
    if config.warmup_steps < least:
        what = "one step compiles, one records CUDA graphs, one replays them" if graphs else "the first step compiles"
        yield (
            f"compile={config.compile!r} with warmup_steps={config.warmup_steps}: {what}, and that would be timed; give "
            f"at least warmup_steps={least}"
        )
    if config.activation_checkpointing:
        yield (
            f"compile={config.compile!r} with activation_checkpointing=true: the compiler chooses itself what to compute "
            f"again, and could not keep batch-norm's statistics from moving twice"
        )
    if config.parallel == "fsdp":
        yield f"compile={config.compile!r} with parallel='fsdp': its hooks gather weights inside what would be one graph"
    if graphs and config.accumulate > 1:
        yield (
            f"compile={config.compile!r} with accumulate={config.accumulate}: the replay for a micro-batch overwrites the "
            f"gradients of the one before; use compile='default'"
        )
    if config.parallel in ("ddp", "zero1") and config.bucket_mb < 1:
        yield (
            f"compile={config.compile!r} with bucket_mb={config.bucket_mb:g}: so that communication overlaps, the compiler cuts "
            f"the graph by buckets, the first of 1 MiB, which must not be larger than the others: give at least that"
        )
    if config.deterministic and config.compile == "max-autotune":
        yield "compile='max-autotune' with deterministic=true: it picks kernels by their time, others in each run"


def _share(config: RunConfig) -> Iterator[str]:
    cores, period = config.cores_per_rank, config.share_period
    if cores is None:
        if period != type(config).model_fields["share_period"].default:
            yield f"share_period={period:g} without cores_per_rank: a whole core has no period"
        return
    if config.device == "cuda":
        yield f"cores_per_rank={cores:g} makes devices of a CPU's cores, and device='cuda'"
    if (config.threads_per_rank or 1) > 1:
        yield f"cores_per_rank={cores:g} is a share of one core, threads_per_rank={config.threads_per_rank} whole ones: give one"
    if cores * period < QUOTA_AT_LEAST:
        yield (
            f"cores_per_rank={cores:g} with share_period={period:g} s: the kernel grants {QUOTA_AT_LEAST * 1e3:g} ms at least; "
            f"give share_period={shortest_period(cores):g} or more"
        )


def _profile(config: RunConfig) -> Iterator[str]:
    if config.profile == "ncu" and config.device == "cpu":
        yield "profile='ncu' counts on a GPU, not on device='cpu': use profile='cpu', 'torch' or 'nsys'"
    if config.profile_steps is not None and not config.profile:
        yield f"profile_steps={config.profile_steps}: no profile is asked for (profile=torch, nsys, ncu, cpu)"


def uneven(accumulate: int, per_device: int) -> str:
    """Why a batch of `per_device` samples is not cut into `accumulate` micro-batches."""
    fits = [n for n in range(1, per_device + 1) if per_device % n == 0]
    nearest = sorted(sorted(fits, key=lambda n: abs(n - accumulate))[:2])
    return (
        f"accumulate={accumulate} does not divide a batch of {per_device} a device: nearest possible are "
        f"{' and '.join(map(str, nearest))}"
    )


def _ours(config: RunConfig) -> bool:
    return ":" not in config.workload
