"""The identity of runs: a run's id, and the columns in which runs of one configuration are equal.

A run's id has a readable beginning, followed by a hash of the options that differ from their defaults, the layout and the
hardware. A new option with its default therefore changes no id. Ids of earlier versions, which hashed all parameters,
are never recomputed; a study that is run again in their folder repeats its runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hpc_utils import source_code
from hpc_utils.config import RunConfig

# Options that committed runs record and that are none any more, with their former defaults.
FORMER = {"overlap": True}
# Options that cannot change a measurement.
NOT_MEASURED = {"checkpoint_every", "checkpoint_minutes", "collective_timeout", "save_weights"}

# Begins the `hardware_id` of runs measured elsewhere, before the name of their set.
FOREIGN = "foreign:"

# Columns of `schema.RUNS` in which runs of one configuration are equal. What is trained and how:
TRAINED = ["workload", "dataset", "precision", "settings"]
# The device. `settings` and the columns `APART` together cover all parameters.
DEVICE = ["device", "device_name", "hardware_id", "threads_per_rank", "share_period", "link_gbit"]
# The software, a change of which may change the times.
CODE = ["torch"]
# Points of one curve are equal in all of these; repeats of one point also in POINT. Data of a user's own may have grown since.
SAME = [*TRAINED, *DEVICE, "parameters", "train_samples", *CODE]
POINT = ["parallel", "nodes", "ranks_per_node", "world_size", "global_batch", "batch_per_device", "steps_per_epoch"]
# The part of SAME that a plan has before a run; `cores_per_rank` is the share of a core, 0 for whole cores.
PLANNED = [*TRAINED, "hardware_id", "cores_per_rank"]
# Parameters with a column of their own, which are not part of `settings`. One rank uses no links.
APART = {
    *("workload", "dataset", "parallel", "global_batch", "batch_per_device", "precision", "seed", "repeat"),
    *("threads_per_rank", "cores_per_rank", "share_period", "link_gbit"),
}


def measured(config: RunConfig, world_size: int) -> dict[str, Any]:
    """The parameters that a run of `config` is identified by, both batch sizes resolved.

    `batch_per_device=64` on two ranks and `global_batch=128` are one measurement. A user's own workload has its own
    data set, and is another measurement after its module's code was edited.
    """
    global_batch, per_device = config.batches(world_size)
    parameters = config.model_dump(exclude=NOT_MEASURED) | {
        "global_batch": global_batch,
        "batch_per_device": per_device,
    }
    if source_code.is_own(config.workload):
        parameters |= {"dataset": "", "source": source_code.digest(config.workload)}
    return parameters


def imported_sets(hardware_ids: Iterable[str]) -> list[str]:
    """The imported result sets among these machines."""
    return sorted({name.removeprefix(FOREIGN) for name in hardware_ids if str(name).startswith(FOREIGN)})


def task(run: Mapping[str, Any]) -> str:
    """`cnn on digits`; of a user's own workload or loop, which has no data set, `my_loop.py (width=32)`."""
    workload, dataset = run["workload"], run["dataset"]
    if isinstance(dataset, str) and dataset:
        return f"{workload} on {dataset}"
    arguments = parse_settings(run.get("settings") or "").get("workload_args", {})
    return (
        f"{workload} ({', '.join(f'{name}={value}' for name, value in arguments.items())})" if arguments else workload
    )


def settings(parameters: Mapping[str, Any]) -> str:
    """`compile="default", epochs=5`: the parameters that differ from their defaults and have no column of their own (`APART`).

    Runs may be points of one curve, or repeats of one point, only if these are the same.
    """
    differing = {name: value for name, value in changed(parameters).items() if name not in APART}
    return (
        ", ".join(f"{name}={json.dumps(differing[name], sort_keys=True, default=str)}" for name in sorted(differing))
        or "defaults"
    )


def parse_settings(text: str) -> dict[str, Any]:
    """The parameters in a text of `settings`."""
    return {name: json.loads(value) for name, value in re.findall(r"(\w+)=(.+?)(?=, \w+=|$)", text)}


def flat_settings(text: str) -> dict[str, str]:
    """The parameters in a text of `settings`, as text, those of `workload_args` by their own names."""
    values = parse_settings(text)
    values |= values.pop("workload_args", {})
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def differing_settings(texts: Iterable[str]) -> list[str]:
    """Of each text of `settings` (NaN: not recorded) those that not all of the texts have, as `optimizer=adamw, width=32`."""
    recorded = (flat_settings(text) if isinstance(text, str) else {} for text in texts)
    all_settings = [[f"{name}={value}" for name, value in values.items()] for values in recorded]
    shared = set.intersection(*map(set, all_settings)) if all_settings else ()
    return [", ".join(setting for setting in settings if setting not in shared) for settings in all_settings]


def changed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`parameters` without the options that have their default."""
    defaults = FORMER | {name: field.default for name, field in RunConfig.model_fields.items()}
    return {name: value for name, value in parameters.items() if name not in defaults or value != defaults[name]}


def short_hash(what: Mapping[str, Any]) -> str:
    """8 hex digits of `what`, whatever the order of its names."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:8]


def run_id(parameters: Mapping[str, Any], *, nodes: int = 1, ranks_per_node: int = 1, hardware: str) -> str:
    """The run's id, such as `cnn-digits-ddp2-bf16-b128-r1-0f3c9a1e`.

    Two requests share an id when parameters (repeat included), layout and hardware or cluster are the same.
    """
    what = {**changed(parameters), "nodes": nodes, "ranks_per_node": ranks_per_node, "hardware": hardware}
    layout = str(nodes * ranks_per_node) if nodes == 1 else f"{nodes}x{ranks_per_node}"
    parts = [
        parameters["workload"],
        parameters.get("dataset", ""),
        parameters["parallel"] + layout,
        parameters["precision"],
        f"b{parameters['global_batch']}",
        f"r{parameters['repeat']}",
        f"profile-{parameters['profile']}" if parameters.get("profile") else "",
        short_hash(what),
    ]
    safe = [re.sub(r"[^A-Za-z0-9_.-]+", ".", part)[:60].strip(".-") for part in parts]
    return "-".join(part for part in safe if part)
