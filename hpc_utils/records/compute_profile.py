"""The compute profile of a model on a device, which `hpc bench compute` writes.

`results/probes/compute/<name>.json`: what was computed (`COMPUTED`), `hardware_id` (the machine's fingerprint), `device`,
`device_name`, `threads_per_rank`, `parameters`, `gradient_bytes`; `batches`: {"batch", and the seconds of each measured step
under "data", "forward", "backward", "optimizer", or with `step_graph` of the whole step under "step"}; `ready`: {"name",
"bytes", "fraction"} of each parameter's gradient in the order of completion, with the fraction of the backward pass at that
time (median), empty with `step_graph`; `provenance`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hpc_utils.config import RunConfig

from .identity import measured, parse_settings

KIND = "compute"
PHASES = ("data", "forward", "backward", "optimizer")

# Options that decide how long a device takes for a step, besides the batch. A record without one of them has its default.
COMPUTED = (
    "workload", "workload_args", "dataset", "stem", "augment", "image_size", "cutout", "label_smoothing", "optimizer",
    "precision", "channels_last", "compile", "step_graph", "activation_checkpointing", "accumulate", "loader",
    "loader_workers", "fused_optimizer", "deterministic",
)  # fmt: skip

# Options that change the step: a profile is taken without them.
PLAIN = ("profile", "accumulate")


def computed(config: RunConfig) -> dict[str, Any]:
    """The part of `config` that a profile must match; for a user's own workload also the digest of its code."""
    return computed_in(measured(config.model_copy(update={"global_batch": 1, "batch_per_device": None}), 1))


def computed_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """`computed` of a record's fields, or of a run by its columns workload, dataset, precision and settings."""
    if "settings" in fields:
        dataset = fields["dataset"] if isinstance(fields["dataset"], str) else ""
        named = {"workload": fields["workload"], "dataset": dataset, "precision": fields["precision"]}
        fields = parse_settings(str(fields["settings"])) | named
    options = {name: fields.get(name, RunConfig.model_fields[name].default) for name in COMPUTED}
    return options | {"source": fields.get("source", "")}


def not_plain(config: RunConfig) -> list[str]:
    """The options of `PLAIN` that differ from their defaults, as `name=value`."""
    values = {name: getattr(config, name) for name in PLAIN}
    return [f"{name}={value}" for name, value in values.items() if value != RunConfig.model_fields[name].default]


def fits(profile: Mapping[str, Any], run: Mapping[str, Any]) -> bool:
    """Whether `profile` is of the steps of `run`: the same options on the same device.

    Args:
        run: workload, dataset, precision, settings; device ("cpu", "cuda"), device_name (of a plan a part of it, such as
            h200), hardware_id, threads_per_rank. A GPU is matched by its name alone, cores by machine and number.
    """
    name = str(run["device_name"])
    if run["device"] == "cuda":
        same_device = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", profile["device_name"], re.IGNORECASE)
    else:
        same_machine = name in profile["device_name"] and str(run["hardware_id"]).endswith(profile["hardware_id"])
        same_device = same_machine and profile["threads_per_rank"] == run["threads_per_rank"]
    return profile["device"] == run["device"] and bool(same_device) and computed_in(profile) == computed_in(run)


def step_seconds(profile: Mapping[str, Any]) -> dict[int, list[float]]:
    """{batch: seconds of each measured step}, by rising batch."""
    steps = {
        row["batch"]: row.get("step") or [sum(parts) for parts in zip(*map(row.get, PHASES), strict=True)]
        for row in profile["batches"]
    }
    return dict(sorted(steps.items()))
