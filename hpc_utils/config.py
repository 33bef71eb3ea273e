"""`RunConfig`: every option of a run, typed and validated, with its default and unit.

    RunConfig(workload="resnet18", dataset="cifar10", epochs=10, global_batch=512)

An unknown option or a contradiction is an error. The object is frozen, so that the record equals the request.
A new option needs a field here, and the code that uses it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from . import toml_config
from .capability import CUDA_GRAPHS, QUOTA_AT_LEAST, shortest_period
from .source_code import is_own

Scalar = str | int | float | bool | None
Fault = tuple[object, str, str]  # condition, the options that contradict each other, reason

WORKLOADS = (
    "resnet18",
    "resnet50",
    "cnn",
    "mnist_cnn",
)  # ours; anything else is the user's own (`source_code.is_own`)
DEFAULT_GLOBAL_BATCH = 128
# The first option of each group, and those that a first study needs.
GROUPS = {
    "workload": "What is trained",
    "epochs": "How much work",
    "optimizer": "Optimisation",
    "parallel": "How it is computed",
    "warmup_steps": "How it is measured",
    "checkpoint_every": "What is kept",
}
FIRST = (
    "workload", "dataset", "epochs", "steps_per_epoch", "global_batch", "batch_per_device", "lr", "parallel", "device", "precision",
    "threads_per_rank", "seed",
)  # fmt: skip
ELSEWHERE = {"batch_size": "global_batch or batch_per_device", "learning_rate": "lr"}  # names in other programs
PROFILE_STEPS = {
    "torch": 5,
    "nsys": 5,
    "ncu": 1,
    "cpu": 50,
}  # ncu repeats each kernel dozens of times; py-spy only samples


class ConfigError(ValueError):
    """A parameter is unknown, ill-typed, out of range or contradicts another; one line per fault."""

    exit_code = 2


def option(default: Any, text: str, *, unit: str = "", **bounds: Any) -> Any:
    """A field with its default, its meaning and its unit (shown by `hpc params`)."""
    return Field(default, description=text, json_schema_extra={"unit": unit} if unit else None, **bounds)


PositiveInt = Annotated[int, Field(gt=0)]


class RunConfig(BaseModel):
    """One run's parameters. Batch sizes count samples; rates are per step; times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    # What is trained
    workload: str = option("resnet18", "`resnet18`, `resnet50`, `cnn`, `mnist_cnn`, or your own `module:function`")
    workload_args: dict[str, Scalar | list[Scalar]] = option({}, "keyword arguments for your own workload's function")
    dataset: str = option(
        "digits", "a data set of the catalogue: `digits` is a small demo, `hpc data list` shows them all"
    )
    stem: Literal["cifar", "imagenet"] = option("cifar", "first layers of a ResNet: 3x3 or 7x7 with pooling")
    augment: bool = option(True, "random crop and flip, keyed by seed, epoch and sample")
    flip: Literal["random", "alternate"] = option(
        "random", "with `augment`, mirror half of the images in each epoch: drawn anew, or each image in every other epoch "
        "(`alternate`, Jordan 2024)"
    )  # fmt: skip
    image_size: PositiveInt | None = option(
        None, "ImageNet's transforms and normalisation: in training (with `augment`) a RandomResizedCrop to this size and a "
        "flip, in evaluation Resize to 8/7 of it and CenterCrop; none: images keep their size", unit="pixel",
    )  # fmt: skip
    cutout: int = option(
        0, "with `augment`, blank a square of this size at a random place (DeVries & Taylor 2017); 0: none", unit="pixel",
        ge=0,
    )  # fmt: skip

    # How much work
    epochs: int = option(3, "epochs to train", unit="epoch", gt=0)
    steps_per_epoch: PositiveInt | None = option(
        None, "fixed work: an epoch is this many steps, reshuffling when the data run out", unit="step"
    )
    global_batch: PositiveInt | None = option(
        None, f"samples a step over all ranks (strong scaling); {DEFAULT_GLOBAL_BATCH} if neither is given",
        unit="sample",
    )  # fmt: skip
    batch_per_device: PositiveInt | None = option(None, "samples a step on each rank (weak scaling)", unit="sample")

    # Optimisation
    optimizer: Literal["sgd", "adamw"] = option("sgd", "SGD with momentum, or AdamW")
    lr: float = option(0.1, "learning rate at a global batch of `lr_batch`", gt=0)
    lr_batch: int = option(256, "global batch that `lr` was chosen for", unit="sample", gt=0)
    lr_scaling: Literal["linear", "sqrt", "none"] = option("linear", "how the rate follows the global batch")
    lr_warmup_epochs: float = option(1.0, "linear warm-up of the learning rate", unit="epoch", ge=0)
    schedule: Literal["cosine", "multistep", "step", "onecycle", "constant"] = option(
        "cosine", "learning rate over the run; `multistep`: times `gamma` after 50 % and 75 % of the run; `step`: times "
        "`gamma` every `step_size` epochs"
    )  # fmt: skip
    step_size: int = option(30, "period of `schedule=step`", unit="epoch", gt=0)
    gamma: float = option(0.1, "factor of `schedule=step` and `multistep`", gt=0, le=1)
    momentum: float = option(0.9, "SGD's momentum, AdamW's beta1", ge=0, lt=1)
    nesterov: bool = option(True, "SGD: Nesterov's form of momentum")
    weight_decay: float = option(5e-4, "decoupled for AdamW, L2 for SGD", ge=0)
    clip_norm: Annotated[float, Field(gt=0)] | None = option(
        None, "gradients are scaled down to this norm, over all parameters, where theirs is larger; none: never"
    )
    weight_decay_on: Literal["weights", "all"] = option(
        "weights", "`weights`: of matrices and filters; `all`: biases and norms too, as torch.optim does"
    )
    label_smoothing: float = option(0.0, "cross-entropy's label smoothing", ge=0, lt=1)

    # How it is computed
    parallel: Literal["none", "ddp", "zero1", "fsdp", "own"] = option(
        "ddp", "`none`: one process and no process group, the true baseline; `ddp`: a copy of the model on every rank; "
        "`zero1`: DDP with the optimizer's state sharded; `fsdp`: weights and gradients sharded too (FSDP2); `own`: as a loop of "
        "your own does it"
    )  # fmt: skip
    device: Literal["auto", "cuda", "cpu"] = option("auto", "`cuda` includes ROCm")
    precision: Literal["fp32", "tf32", "bf16", "fp16", "amp"] = option(
        "fp32", "fp32 is IEEE; bf16 and fp16 are autocast, fp16 with loss scaling; `amp`: bf16 where the device has it, else fp16"
    )  # fmt: skip
    channels_last: bool = option(True, "NHWC memory layout for convolutions")
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = option(
        "off", "torch.compile's mode; `reduce-overhead` replays CUDA graphs, `max-autotune` tries kernels as well"
    )
    step_graph: bool = option(
        False, "capture the whole training step, augmentation, communication and optimizer included, as one CUDA graph and "
        "replay it: the host starts one graph a step instead of every kernel"
    )  # fmt: skip
    activation_checkpointing: bool = option(
        False,
        "keep only the inputs of the model's blocks and compute the rest again in the backward pass: less memory",
    )
    accumulate: PositiveInt = option(
        1, "micro-batches that a step's batch is cut into, their gradients added up and reduced once"
    )
    fused_optimizer: bool = option(False, "one kernel for all parameters' update instead of one for each operation")
    bucket_mb: float = option(25.0, "gradient bucket of DDP", unit="MiB", gt=0)
    gradient_as_bucket_view: bool = option(True, "DDP: gradients live in the buckets, which saves a copy of each")
    static_graph: bool = option(False, "DDP: every step uses the same parameters in the same order")
    comm_hook: Literal["none", "fp16", "bf16", "powersgd"] = option(
        "none",
        "DDP: the form of gradients on the wire: half precision (`fp16`, `bf16`), or factors of rank 2 (`powersgd`)",
    )
    threads_per_rank: PositiveInt | None = option(
        None, "cores that make one CPU device, pinned; 1 if not given (a GPU's host threads: its share)",
        unit="core",
    )  # fmt: skip
    cores_per_rank: Annotated[float, Field(gt=0, lt=1)] | None = option(
        None, "a CPU device is this share of a core, which the kernel enforces; none: `threads_per_rank` whole cores",
        unit="core",
    )  # fmt: skip
    share_period: Annotated[float, Field(gt=0, le=1)] = option(
        0.01, "how often a device of `cores_per_rank` receives its share", unit="s"
    )
    loader: Literal["host", "device", "workers"] = option(
        "host", "where the images of our data sets are: `host`: batches are gathered in memory and moved; `device`: all are "
        "on the device from the start; `workers`: sample by sample through a DataLoader, as other data sets always are"
    )  # fmt: skip
    loader_workers: int = option(0, "worker processes of a DataLoader; 0: none, the rank loads", unit="process", ge=0)
    prefetch_factor: PositiveInt = option(2, "batches that each loader worker keeps ready", unit="batch")
    persistent_workers: bool = option(True, "loader workers live on from epoch to epoch")
    pin_memory: bool = option(
        True, "batches for a GPU wait in page-locked memory: the host need not wait until they are copied"
    )
    eval_batch: int = option(512, "samples a step on each rank in evaluation", unit="sample", gt=0)
    deterministic: bool = option(False, "deterministic kernels: for debugging, not for performance studies")

    # How it is measured
    warmup_steps: int = option(3, "steps run and undone before the clock starts", unit="step", ge=0)
    phase_every: int = option(4, "split every n-th step into data, forward, backward, optimizer", unit="step", gt=0)
    evaluate_every: int = option(1, "evaluate after every n-th epoch and the last; 0: never", unit="epoch", ge=0)
    evaluate_mirrored: bool = option(
        False, "evaluate twice: as always, and the mean output for an image and its mirror image (Jordan 2024, arXiv:2404.00498), "
        "recorded as `test_mirrored_accuracy`"
    )  # fmt: skip
    seed: int = option(0, "of weights, order and augmentation", ge=0, lt=2**31)
    repeat: int = option(1, "which repeat of the measurement this is", ge=1)
    link_gbit: Annotated[float, Field(gt=0, lt=9999)] | None = option(
        None, "rehearsal cluster only: the nodes' links are limited to this, in each direction, while the run is "
        "measured; none: as they are", unit="Gbit/s",
    )  # fmt: skip
    profile: Literal["torch", "nsys", "ncu", "cpu"] | None = option(
        None, "the profiler of a few steps: `torch` (PyTorch's profiler), `nsys` (Nsight Systems), `ncu` (Nsight Compute, "
        "one rank), `cpu` (py-spy); such a run is excluded from scaling figures",
    )  # fmt: skip
    profile_steps: PositiveInt | None = option(
        None, f"steps that a profile holds, after the first two; {PROFILE_STEPS['torch']} if not given, of ncu "
        f"{PROFILE_STEPS['ncu']}, of py-spy {PROFILE_STEPS['cpu']}", unit="step",
    )  # fmt: skip
    monitor_seconds: Annotated[float, Field(ge=0, le=3600)] | None = option(
        None, "interval at which devices, processors and network are sampled during training, into monitor/*.csv; 0: never; "
        "none: every second while a profile is taken, else never", unit="s",
    )  # fmt: skip
    collective_timeout: float = option(600.0, "a collective that takes longer ends the run", unit="s", gt=0)

    # What is kept
    checkpoint_every: int = option(0, "checkpoint after every n-th epoch; 0: only on a signal", unit="epoch", ge=0)
    checkpoint_minutes: float = option(0.0, "checkpoint this long after the last one; 0: never", unit="min", ge=0)
    save_weights: bool = option(False, "leave the trained weights in the run's folder, as weights.pt")

    def __init__(self, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise ConfigError("\n".join(_explain(item) for item in error.errors())) from None

    @model_validator(mode="after")
    def _no_contradictions(self) -> RunConfig:
        if faults := list(_contradictions(self)):
            raise ValueError("\n".join(faults))
        return self

    def batches(self, world_size: int) -> tuple[int, int]:
        """(global batch, batch per device) on `world_size` ranks; ConfigError if it does not divide."""
        if self.batch_per_device is not None:  # which `accumulate` divides
            return self.batch_per_device * world_size, self.batch_per_device
        batch = self.global_batch or DEFAULT_GLOBAL_BATCH
        if batch % world_size:
            below = batch // world_size * world_size
            nearest = " or ".join(str(b) for b in (below, below + world_size) if b)
            raise ConfigError(
                f"global_batch={batch} does not divide over {world_size} ranks; use global_batch={nearest}"
            )
        if batch // world_size % self.accumulate:
            raise ConfigError(
                f"accumulate={self.accumulate} does not divide the {batch // world_size} samples of a rank"
            )
        return batch, batch // world_size

    def scaled_lr(self, global_batch: int) -> float:
        """Peak learning rate: follows the global batch, never the world size (Goyal et al. 2017)."""
        ratio = global_batch / self.lr_batch
        return self.lr * {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[self.lr_scaling]

    @classmethod
    def from_notebook(cls, namespace: Mapping[str, Any]) -> RunConfig:
        """The parameters among a notebook's names; call it as `from_notebook(globals())` right after them.

        A plain name that is nearly a parameter's (`epoch` for `epochs`) is refused: papermill injects
        whatever it is given, and a misspelt parameter must not silently train the default.
        """
        fields = cls.model_fields
        plain = [name for name, value in namespace.items() if isinstance(value, Scalar | dict | list | tuple)]
        unknown_names = [name for name in plain if name not in fields and not name.startswith("_")]
        if misspelt := [name for name in unknown_names if toml_config.nearest(name, fields, cutoff=0.8)]:
            raise ConfigError("\n".join(unknown_parameter(name, fields) for name in misspelt))
        return cls(**{name: value for name, value in namespace.items() if name in fields})


def _contradictions(c: RunConfig) -> Iterator[str]:
    """One line per fault of `c`: the options that contradict each other, and why."""
    ours = not is_own(c.workload)
    ddp = c.parallel in ("ddp", "zero1")
    fsdp = c.parallel == "fsdp"
    compiled = c.compile != "off"
    graphs = c.compile in CUDA_GRAPHS and c.device != "cpu"
    warmup = 3 if graphs else 1
    share = c.cores_per_rank
    changed = {name for name, field in RunConfig.model_fields.items() if getattr(c, name) != field.default}

    def only_ddp(name: str) -> Fault:
        return name in changed and not ddp, f"{name} parallel", f"{name} is an option of DDP"

    def only_ours(name: str) -> Fault:
        why = f"{name} is an option of our images and networks; your own workload has its data, model and loss"
        return name in changed and not ours, f"{name} workload", why

    faults: list[Fault] = [
        (ours and c.workload not in WORKLOADS, "workload",
         f"unknown: known are {', '.join(WORKLOADS)}, and your own as module:function"),
        (ours and c.workload_args, "workload", "workload_args go to your own module:function"),
        (c.global_batch and c.batch_per_device, "global_batch batch_per_device",
         "give global_batch (strong scaling) or batch_per_device (weak scaling), not both"),
        (c.steps_per_epoch is None and c.lr_warmup_epochs > c.epochs, "lr_warmup_epochs epochs",
         "the warm-up is longer than the run"),
        (not ours and c.dataset and "dataset" in changed, "dataset workload", "your own workload provides its data"),
        (c.cutout and not c.augment, "cutout augment", "cutout is an augmentation"),
        (c.cutout and c.image_size, "cutout image_size", "cutout belongs to small images of one size"),
        (c.flip != "random" and not (ours and c.augment), "flip augment", "this is an option of the augmentation of our images"),
        (c.flip != "random" and c.image_size, "flip image_size", "ImageNet's transforms draw their flips anew"),
        (ours and c.loader_workers and c.loader != "workers", "loader_workers loader",
         "this loader makes whole batches without workers; use loader=workers"),
        (not c.loader_workers and "prefetch_factor" in changed, "prefetch_factor loader_workers", "there are no workers"),
        (not c.loader_workers and not c.persistent_workers, "persistent_workers loader_workers", "there are no workers"),
        (c.schedule != "step" and "step_size" in changed, "step_size schedule", "only schedule=step has a period"),
        (c.schedule not in ("step", "multistep") and "gamma" in changed, "gamma schedule",
         "only schedule=step and multistep have a factor"),
        *map(only_ours, ("augment", "cutout", "evaluate_mirrored", "image_size", "label_smoothing", "loader", "stem")),
        only_ddp("comm_hook"),
        only_ddp("static_graph"),
        only_ddp("gradient_as_bucket_view"),
        (fsdp and "bucket_mb" in changed, "bucket_mb parallel", "buckets are DDP's; FSDP reduces block by block"),
        (c.parallel == "own" and ours, "parallel workload", "only a loop of your own distributes its ranks itself"),
        (c.static_graph and c.accumulate > 1, "static_graph accumulate",
         "micro-batches that are not reduced make another graph"),
        (c.comm_hook == "powersgd" and not c.warmup_steps, "comm_hook warmup_steps",
         "PowerSGD keeps its memory by DDP's buckets, which are rebuilt after the first step: warm up at least one"),
        (c.comm_hook == "powersgd" and c.precision in ("fp16", "amp"), "comm_hook precision",
         "PowerSGD keeps gradients, which fp16 scales, and an overflow would stay in them: use precision=bf16, or "
         "comm_hook=fp16"),
        (c.fused_optimizer and fsdp and c.optimizer == "sgd", "fused_optimizer parallel optimizer",
         "torch has no fused SGD of sharded weights; use optimizer=adamw"),
        (c.activation_checkpointing and c.workload.endswith("cnn"), "activation_checkpointing workload",
         "this model has no blocks to compute again, so it would save nothing"),
        (c.batch_per_device and c.batch_per_device % c.accumulate, "accumulate batch_per_device",
         "the samples of a rank do not divide into that many micro-batches"),
        (compiled and c.warmup_steps < warmup, "compile warmup_steps",
         "the first step compiles" + ", the second records CUDA graphs, the third replays them" * graphs
         + f", and T must not hold that: use at least warmup_steps={warmup}"),
        (compiled and c.activation_checkpointing, "compile activation_checkpointing",
         "the compiler decides itself what to compute again, and batch norm's statistics would move twice"),
        (compiled and fsdp, "compile parallel", "FSDP's hooks gather weights inside what would be one graph"),
        (graphs and c.accumulate > 1, "compile accumulate",
         "the replay for a micro-batch overwrites the gradients of the one before; use compile=default"),
        (compiled and ddp and c.bucket_mb < 1, "compile bucket_mb",
         "the compiler cuts the graph by buckets, the first of 1 MiB, which must not be the largest: use at least that"),
        (c.deterministic and c.compile == "max-autotune", "compile deterministic",
         "max-autotune picks kernels by their time, others in each run"),
        (c.step_graph and c.device == "cpu", "step_graph device", "CUDA graphs need a GPU"),
        (c.step_graph and c.parallel not in ("none", "ddp"), "step_graph parallel",
         "only the step of parallel=none and ddp is captured"),
        (c.step_graph and ours and not c.fused_optimizer, "step_graph fused_optimizer",
         "the captured optimizer reads the learning rate in the GPU's memory, as fused ones do: use fused_optimizer=true"),
        (c.step_graph and c.compile in CUDA_GRAPHS, "step_graph compile",
         "this mode captures CUDA graphs of its own; use compile=default"),
        (c.step_graph and c.activation_checkpointing, "step_graph activation_checkpointing",
         "the recomputation saves and restores random states on the host, which a graph does not repeat"),
        (c.step_graph and c.image_size and c.augment and c.loader == "device", "step_graph image_size loader",
         "the host cuts each image's random box; use loader=host or workers"),
        (c.step_graph and c.comm_hook == "powersgd", "step_graph comm_hook",
         "PowerSGD counts steps on the host, which a graph does not repeat"),
        (share is None and "share_period" in changed, "share_period", "only a device of cores_per_rank has a period"),
        (share and c.device == "cuda", "cores_per_rank device", "only a CPU's devices are shares of cores"),
        (share and (c.threads_per_rank or 1) > 1, "cores_per_rank threads_per_rank",
         "a device is a share of one core, or whole cores: give one of the two"),
        (share and share * c.share_period < QUOTA_AT_LEAST, "cores_per_rank share_period",
         f"the kernel grants {QUOTA_AT_LEAST * 1e3:g} ms at least; use share_period={shortest_period(share or 1):g} or more"),
        (c.profile == "ncu" and c.device == "cpu", "profile device",
         "ncu profiles a GPU; use profile=cpu, torch or nsys"),
        (c.profile_steps and not c.profile, "profile_steps", "there is no profile (profile=torch, nsys, ncu, cpu)"),
    ]  # fmt: skip
    for is_fault, names, why in faults:
        if is_fault:
            yield f"{' with '.join(f'{name}={_text(getattr(c, name))}' for name in names.split())}: {why}"


def _text(value: Any) -> str:
    """`value` as a user writes it in `name=value`."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def plain(name: str, value: Any) -> Any:
    """`value` of a parameter, the text `none` as None where the option may be left out: TOML and shells have no other."""
    field = RunConfig.model_fields.get(name)
    optional = field is not None and field.default is None
    return None if optional and str(value).lower() in ("none", "null") else value


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """`["epochs=3", "workload_args.depth=12", "steps_per_epoch=none"]` as parameters.

    Values of options have the option's type, or stay text, which `RunConfig` refuses; those of `workload_args` are read as
    JSON where they can be.
    """
    parameters: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{assignment!r} is not name=value")
        if name.startswith("workload_args."):
            parameters.setdefault("workload_args", {})[name.removeprefix("workload_args.")] = json_or_text(value)
        elif name == "workload_args":
            parameters[name] = json_or_text(value)
        else:
            parameters[name] = _typed(name, plain(name, value))
    return parameters


def _typed(name: str, value: Any) -> Any:
    field = RunConfig.model_fields.get(name)
    try:
        return TypeAdapter(field.annotation).validate_python(value) if field else value
    except ValidationError:
        return value


def json_or_text(value: str) -> Any:
    """`value` read as JSON where it can be."""
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def choices(name: str) -> tuple[str, ...]:
    """The values that the option `name` may have."""
    return get_args(RunConfig.model_fields[name].annotation)


def unknown_parameter(name: str, options: Iterable[str]) -> str:
    """A message about an unknown option, with the nearest known name."""
    close = ELSEWHERE.get(name) or toml_config.nearest(name, options)
    hint = (
        f"did you mean {close}?" if close else f"`hpc params` lists them; of your own workload, workload_args.{name}"
    )
    return f"unknown parameter {name!r}: {hint}"


def _explain(item: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a message."""
    message = item["msg"].removeprefix("Value error, ")
    if not item["loc"]:
        return message
    if item["type"] == "extra_forbidden":
        return unknown_parameter(item["loc"][0], RunConfig.model_fields)
    return f"{item['loc'][0]}={item['input']!r}: {message[0].lower()}{message[1:]}"


def describe() -> list[dict[str, str]]:
    """One row per option: name, group, type, default, unit, meaning (what `hpc params` prints)."""
    rows = []
    group = ""
    schemas = RunConfig.model_json_schema()["properties"]
    for name, field in RunConfig.model_fields.items():
        schema = schemas[name]
        forms = schema.get("anyOf", [schema])
        group = GROUPS.get(name, group)
        kinds = [kind for form in forms for kind in form.get("enum") or [form.get("type", "")]]
        rows.append(
            {
                "name": name,
                "group": group,
                "type": " | ".join(str(k).replace("null", "none") for k in kinds),
                "default": str(field.default),
                "unit": (field.json_schema_extra or {}).get("unit", ""),
                "meaning": field.description or "",
            }
        )
    return rows
