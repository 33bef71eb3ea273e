"""The compute profile of a model on a device, which `hpc bench compute` writes.

`results/probes/compute/<name>.json`: what was computed (`COMPUTED`), `hardware_id` (the machine's fingerprint), `device`,
`device_name`, `threads_per_rank`, `parameters`, `gradient_bytes`; `batches`: {"batch", and the seconds of each measured step
under "data", "forward", "backward", "optimizer"}; `ready`: {"name", "bytes", "fraction"} of each parameter's
gradient in the order of completion, with the fraction of the backward pass at that time (median); `provenance`.
"""

from __future__ import annotations

from typing import Any

from hpc_utils.config import RunConfig

from .identity import measured

KIND = "compute"
PHASES = ("data", "forward", "backward", "optimizer")

# Options that decide what a device computes in a step, besides the batch.
COMPUTED = (
    "workload", "workload_args", "dataset", "stem", "augment", "label_smoothing", "optimizer", "precision",
    "channels_last",
)  # fmt: skip

# Options that change the step: a profile is taken without them.
PLAIN = ("profile", "compile", "activation_checkpointing", "accumulate", "loader", "fused_optimizer", "cutout")


def computed(config: RunConfig) -> dict[str, Any]:
    """The part of `config` that a profile must match; for a user's own workload also the digest of its code."""
    known = measured(config.model_copy(update={"global_batch": 1, "batch_per_device": None}), 1)
    return {name: known[name] for name in COMPUTED} | {"source": known.get("source", "")}


def not_plain(config: RunConfig) -> list[str]:
    """The options of `PLAIN` that differ from their defaults, as `name=value`."""
    given = {name: getattr(config, name) for name in PLAIN}
    return [f"{name}={value}" for name, value in given.items() if value != RunConfig.model_fields[name].default]
