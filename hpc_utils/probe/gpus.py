"""The GPUs that a rank sees against those that the job asked for: one for each rank, and none idle."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hpc_utils import provenance

from .bench import Bench
from .check import Check, Facts, Seen, each, failed, hosts, not_applicable, passed, places, worst

EXPECTED = "a GPU of its own for each rank, all that were asked for"
MASKS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
UNMASK = (
    "start one launcher a node with all of its GPUs: `srun --ntasks-per-node=1 --gpus-per-node=N`, without "
    "--gpus-per-task and --gpu-bind; leave {} to Slurm"
)


def look(bench: Bench) -> Facts:
    """What was asked for, what is on the machine, and what torch sees."""
    import torch

    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mine = bench.local_rank
    device = str(torch.cuda.get_device_properties(mine).uuid) if mine < visible else None
    return {
        "wanted": bench.options.device,
        "asked": asked(os.environ),
        "on_machine": len(provenance.hardware().gpus),
        "visible": visible,
        "ranks": bench.ranks_per_node,
        "device": device,
        "masks": {name: os.environ[name] for name in MASKS if name in os.environ},
    }


def asked(environment: Mapping[str, str]) -> int | None:
    """GPUs of this node that Slurm gave to the job; None if it speaks of none."""
    number = environment.get("SLURM_GPUS_ON_NODE", "")
    if number.isdigit():
        return int(number)
    listed = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS")
    return len(listed.split(",")) if listed else None


def judge(seen: Sequence[Seen]) -> Check:
    """Every rank by itself, then those of a node against each other."""
    return worst([each(_judge_rank)(seen), *(_judge_node(node) for node in hosts(seen).values())])


def _judge_rank(facts: Facts) -> Check:
    asked, visible, ranks, on_machine = (facts[key] for key in ("asked", "visible", "ranks", "on_machine"))
    mask = next(iter(facts["masks"]), "CUDA_VISIBLE_DEVICES")
    if facts["wanted"] == "cpu":
        return not_applicable("device=cpu: GPUs are not used")
    if not (asked or visible or on_machine):
        return not_applicable("no GPU, and none asked for")
    if asked is not None and visible != asked:
        return failed(f"{asked} asked for, {visible} visible", EXPECTED, UNMASK.format(mask))
    if not visible:
        return failed(f"{on_machine} on the machine, none visible to torch", EXPECTED, f"unset {mask}")
    if ranks > visible:
        fix = f"start {visible} ranks on a node, or ask for more GPUs (`--gpus-per-node={ranks}`)"
        return failed(f"{ranks} ranks share {visible} GPUs", EXPECTED, fix)
    if asked is not None and ranks < visible:
        fix = f"start {visible} ranks on a node (`--nproc-per-node={visible}`), or ask for fewer GPUs"
        return failed(f"{ranks} ranks use {ranks} of {visible} GPUs that were asked for", EXPECTED, fix)
    return passed(f"{ranks} of {visible} visible GPUs used", EXPECTED)


def _judge_node(node: Sequence[Seen]) -> Check:
    """Two ranks on one device."""
    used: dict[str, list[Seen]] = {}
    for one in node:
        if one.facts["device"]:
            used.setdefault(one.facts["device"], []).append(one)
    for sharing in used.values():
        if len(sharing) > 1:
            fix = UNMASK.format(next(iter(sharing[0].facts["masks"]), "CUDA_VISIBLE_DEVICES"))
            return failed(f"{len(sharing)} ranks use one GPU", EXPECTED, fix, places(sharing))
    return not_applicable("")
