"""The cores that a rank may use: as many as it needs, as many as were asked for, and no other rank's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hpc_utils.provenance import NODE_CORES
from hpc_utils.provenance.cgroup import files
from hpc_utils.provenance.cpu import MACHINE
from hpc_utils.provenance.tools import number, read

from .bench import Bench
from .check import Check, Facts, Seen, count, each, failed, hosts, not_applicable, passed, places, unknown, worst

EXPECTED = "each rank on cores of its own"


def look(bench: Bench) -> Facts:
    """What the launcher left to this rank, and what the trainer then pinned it to."""
    ranks = bench.ranks
    assert ranks is not None
    return {
        "allowed": bench.allowed,
        "cores": len(bench.cores),
        "asked": number(os.environ.get("SLURM_CPUS_PER_TASK")),
        "quota": quota(),
        "ranks": bench.ranks_per_node,
        "threads": ranks.threads,
        "pinned": list(ranks.cores),
        "oversubscribed": ranks.oversubscribed,
        "node_cores": os.environ.get(NODE_CORES),
        "device": ranks.device.type,
    }


def quota(machine: Path = MACHINE) -> float | None:
    """CPUs that this process's control group may use at a time; None without a limit."""
    limits = []
    for file in files("cpu.max", machine):  # `200000 100000`: microseconds of each period; `max` is no limit
        limit, _, period = (read(file) or "").partition(" ")
        limits += [int(limit) / int(period)] if limit.isdigit() and period.isdigit() else []
    for file in files("cpu.cfs_quota_us", machine):
        time, every = number(read(file)), number(read(file.with_name("cpu.cfs_period_us")))
        limits += [time / every] if time and every else []
    return min(limits, default=None)


def judge(seen: Sequence[Seen]) -> Check:
    """Every rank by itself, then those of a node against each other."""
    return worst([each(_judge_rank)(seen), *(_judge_node(node) for node in hosts(seen).values())])


def _judge_rank(facts: Facts) -> Check:
    ranks, threads, cores = facts["ranks"], facts["threads"], facts["cores"]
    layout = f"{count(ranks, 'rank')} x {count(threads, 'thread')}"
    asked, allowed, limit = facts["asked"], len(facts["allowed"]), facts["quota"]
    if asked and allowed < asked:
        return failed(
            f"{count(allowed, 'CPU')} allowed of {asked} asked for",
            EXPECTED,
            "since Slurm 22.05 srun does not take --cpus-per-task over from sbatch: give it to srun too "
            '(`srun --cpus-per-task="$SLURM_CPUS_PER_TASK"`); else the node has fewer CPUs than Slurm believes',
        )
    if facts["node_cores"]:
        return not_applicable(
            f"nodes share cores, {float(facts['node_cores']):g} of one is this node's: devices that want more than that "
            f"are recorded as oversubscribed"
        )
    if facts["oversubscribed"]:
        return failed(
            f"{layout} want {count(ranks * threads, 'core')}, allowed are {cores}",
            EXPECTED,
            f"start at most {max(1, cores // threads)} ranks on a node, or ask for more cores "
            f"(`--cpus-per-task={ranks * threads}`)",
        )
    if limit is not None and limit < ranks * threads:
        return failed(
            f"the control group allows {limit:g} CPUs' time to {layout}",
            EXPECTED,
            "ask for more cores, or give the container more (`--cpus`)",
        )
    if facts["pinned"]:
        return passed(f"{layout}, pinned; {count(cores, 'core')} allowed", EXPECTED)
    if facts["device"] != "cpu":
        return passed(f"{layout} on {count(cores, 'core')}, free to run near their GPUs", EXPECTED)
    return unknown(f"{count(cores, 'core')}, but this system cannot pin a rank to its own", EXPECTED)


def _judge_node(node: Sequence[Seen]) -> Check:
    """Two ranks on one core."""
    for place, one in enumerate(node):
        for other in node[place + 1 :]:
            shared = sorted(set(one.facts["pinned"]) & set(other.facts["pinned"]))
            if shared:
                return failed(
                    f"two ranks share CPU {', '.join(map(str, shared))}",
                    EXPECTED,
                    "start one launcher a node, which starts all of its ranks (`srun --ntasks-per-node=1`)",
                    places([one, other]),
                )
    return not_applicable("")
