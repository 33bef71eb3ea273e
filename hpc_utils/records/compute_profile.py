"""The cost of computing a model on a device: the record that `hpc bench compute` writes.

`results/probes/compute/<name>.json`: what was computed (`COMPUTED`), `hardware_id` (the machine's fingerprint), `device`,
`device_name`, `threads_per_rank`, `parameters`, `gradient_bytes`; `batches`: {"batch", and the seconds of each measured step
under "data", "forward", "backward", "optimizer"}; `ready`: {"name", "bytes", "fraction"} of each parameter's
gradient in the order in which they are complete, the fraction of the backward pass gone by then (median); `provenance`.
"""

from __future__ import annotations

from typing import Any

from hpc_utils.config import RunConfig

from .identity import measured

KIND = "compute"
PHASES = ("data", "forward", "backward", "optimizer")

# Knobs that decide what a device computes in a step, beside the batch.
COMPUTED = (
    "workload", "workload_args", "dataset", "stem", "augment", "label_smoothing", "optimizer", "precision",
    "channels_last",
)  # fmt: skip

# Knobs that would make another step of it: a profile is of the step without them.
PLAIN = ("compile", "activation_checkpointing", "accumulate", "loader", "fused_optimizer", "cutout")


def computed(config: RunConfig) -> dict[str, Any]:
    """What of `config` a profile must agree with; of a user's own workload its file too."""
    known = measured(config.model_copy(update={"global_batch": 1, "batch_per_device": None}), 1)
    return {name: known[name] for name in COMPUTED} | {"source": known.get("source", "")}


def not_plain(config: RunConfig) -> list[str]:
    """Which of the knobs `PLAIN` are turned, as `name=value`."""
    given = {name: getattr(config, name) for name in PLAIN}
    return [f"{name}={value}" for name, value in given.items() if value != RunConfig.model_fields[name].default]
