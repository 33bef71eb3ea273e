"""A run's name: readable in front, a hash of what is measured and on what behind."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from hpc_utils.config import RunConfig

# Knobs that cannot change what is measured; a run is the same run whatever they say.
NOT_MEASURED = {"checkpoint_every", "checkpoint_minutes", "collective_timeout", "save_weights"}

# Knobs that came later: with their defaults they are no part of the identity, so that older runs keep theirs.
LATER = {
    *("link_gbit", "profile", "profile_steps", "monitor_seconds"),
    *("cutout", "compile", "activation_checkpointing", "accumulate", "fused_optimizer", "gradient_as_bucket_view"),
    *("static_graph", "comm_hook", "loader", "prefetch_factor", "persistent_workers", "pin_memory"),
    *("cores_per_rank", "share_period"),
}


def measured(config: RunConfig, world_size: int) -> dict[str, Any]:
    """The parameters that a run of `config` is identified by, both batch sizes resolved.

    So `batch_per_device=64` on two ranks and `global_batch=128` are one measurement. A workload of the user's brings
    its own data; it is another measurement once its module's file is edited.
    """
    global_batch, per_device = config.batches(world_size)
    unused = {name for name in LATER if getattr(config, name) == RunConfig.model_fields[name].default}
    parameters = config.model_dump(exclude=NOT_MEASURED | unused) | {
        "global_batch": global_batch,
        "batch_per_device": per_device,
    }
    if ":" in config.workload:
        parameters |= {"dataset": "", "source": _source(config.workload.partition(":")[0])}
    return parameters


def _source(module: str) -> str:
    """8 hex digits of the file behind `module`, which is looked for as `python -m` would; "" if there is none.

    Not imported: the launching side must not run, or wait for, what the ranks will.
    """
    place = [str(Path.cwd()), *sys.path]
    for part in module.split("."):
        spec = PathFinder.find_spec(part, place)
        if spec is None:
            return ""
        place = list(spec.submodule_search_locations or ())
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:8] if spec.has_location else ""


def settings(parameters: Mapping[str, Any]) -> str:
    """8 hex digits of all that tells two measurements apart beside layout, batch, precision, seed and repeat.

    Runs may be points of one curve, or repeats of one point, only if these are the same. Nor are the links one of them,
    which have a column of their own and which one rank does without.
    """
    apart = {"parallel", "global_batch", "batch_per_device", "precision", "seed", "repeat"}
    apart |= {"threads_per_rank", "cores_per_rank", "share_period", "link_gbit"}  # columns of their own
    what = {name: value for name, value in parameters.items() if name not in apart}
    return short_hash(what)


def short_hash(what: Mapping[str, Any]) -> str:
    """8 hex digits of what `what` holds, whatever the order of its names."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:8]


def run_id(parameters: Mapping[str, Any], *, nodes: int = 1, ranks_per_node: int = 1, hardware: str) -> str:
    """The run's id, such as `cnn-digits-ddp2-bf16-b128-r1-0f3c9a1e`.

    Two requests share an id when parameters (repeat included), layout and hardware or cluster are the same.
    """
    what = {**parameters, "nodes": nodes, "ranks_per_node": ranks_per_node, "hardware": hardware}
    layout = str(nodes * ranks_per_node) if nodes == 1 else f"{nodes}x{ranks_per_node}"
    parts = [
        parameters["workload"],
        parameters.get("dataset", ""),
        parameters["parallel"] + layout,
        parameters["precision"],
        f"b{parameters['global_batch']}",
        f"r{parameters['repeat']}",
        short_hash(what),
    ]
    safe = [re.sub(r"[^A-Za-z0-9_.-]+", ".", part)[:60].strip(".-") for part in parts]
    return "-".join(part for part in safe if part)
