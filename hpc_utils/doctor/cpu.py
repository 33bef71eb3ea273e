"""CPU cores: does each rank have its own, as many as it needs and as were requested? What do their clocks show?"""

from __future__ import annotations

import os
from pathlib import Path

from hpc_utils.provenance import NODE_CORES
from hpc_utils.provenance.cgroup import files
from hpc_utils.provenance.cpu import MACHINE, usable
from hpc_utils.provenance.tools import number, read_text

from .check import (
    Context,
    Facts,
    Observations,
    Result,
    failed,
    judge,
    not_applicable,
    passed,
    unknown,
    worst_or_shared,
)


def measure_cores(context: Context) -> Facts:
    """The cores that the launcher left to this rank, and those that the trainer pinned it to."""
    ranks = context.enter()
    return {
        "cpus": sum(map(len, context.cores)),
        "cores": len(context.cores),
        "requested": number(os.environ.get("SLURM_CPUS_PER_TASK")),
        "quota": quota(),
        "ranks": context.ranks_per_node,
        "threads": ranks.threads,
        "pinned": list(ranks.cores),
        "oversubscribed": ranks.oversubscribed,
        "node_cores": os.environ.get(NODE_CORES),
        "device": ranks.device.type,
    }


def quota(machine: Path = MACHINE) -> float | None:
    """CPUs that this process's control groups may use at a time; None without a limit."""
    limits = [
        (read_text(file) or "max").split() for file in files("cpu.max", machine)
    ]  # `200000 100000`; `max 100000`
    return min((int(limit[0]) / int(limit[1]) for limit in limits if limit[0] != "max"), default=None)


@judge("cores", "each rank on cores of its own")
def judge_cores(observations: Observations) -> Result:
    """Each rank alone, then the ranks of a node against each other."""
    fix = "start one launcher a node, which starts all of its ranks (`srun --ntasks-per-node=1`)"
    return worst_or_shared(_judge_rank, observations, "pinned", "two ranks share CPU {}", fix)


def _judge_rank(facts: Facts) -> Result:
    ranks, threads, cores = facts["ranks"], facts["threads"], facts["cores"]
    layout = f"{ranks} rank(s) x {threads} thread(s)"
    if facts["requested"] and facts["cpus"] < facts["requested"]:
        fix = (
            "since Slurm 22.05 srun does not take --cpus-per-task from sbatch: pass it to srun too "
            '(`srun --cpus-per-task="$SLURM_CPUS_PER_TASK"`); else the node has fewer CPUs than Slurm is configured for'
        )
        return failed(f"{facts['cpus']} CPU(s) usable of {facts['requested']} requested", fix)
    if facts["node_cores"]:
        return not_applicable(f"nodes share cores, {float(facts['node_cores']):g} of one is this node's")
    if facts["oversubscribed"]:
        fix = (
            f"start at most {max(1, cores // threads)} ranks a node, or request more cores "
            f"(`--cpus-per-task={ranks * threads}`)"
        )
        return failed(f"{layout} need {ranks * threads} core(s), {cores} are usable", fix)
    if facts["quota"] is not None and facts["quota"] < ranks * threads:
        fix = "request more cores, or give the container more (`--cpus`)"
        return failed(f"the control group gives {facts['quota']:g} CPUs' time to {layout}", fix)
    if facts["pinned"]:
        return passed(f"{layout}, pinned; {cores} core(s) usable")
    if facts["device"] != "cpu":
        return passed(f"{layout} on {cores} core(s), not pinned, so that they run near their GPUs")
    return unknown(f"{cores} core(s), but this system cannot pin a rank")


def clocks(machine: Path = MACHINE) -> Facts:
    """MHz of this rank's fastest core, and how often its cores (for heat) and its control group were throttled since boot."""
    folders = [machine / f"sys/devices/system/cpu/cpu{logical}" for logical in usable()]

    def values(name: str) -> list[int]:
        return [value for folder in folders if (value := number(read_text(folder / name))) is not None]

    groups = [
        dict(line.split() for line in (read_text(file) or "").splitlines()) for file in files("cpu.stat", machine)
    ]
    return {
        "mhz": max((khz // 1000 for khz in values("cpufreq/scaling_cur_freq")), default=None),
        "hot": sum(values("thermal_throttle/core_throttle_count")),
        "throttled": sum(int(group.get("nr_throttled", 0)) for group in groups),
    }


def judge_clocks(before: Facts, after: Facts) -> Result:
    """One rank's cores before and after load."""
    if (throttled := after["throttled"] - before["throttled"]) > 0:
        fix = "the container or the job gets less CPU time than its ranks need: request more cores"
        return failed(f"the control group was throttled {throttled} time(s) under load", fix)
    if (hot := after["hot"] - before["hot"]) > 0:
        return failed(
            f"cores were throttled for heat {hot} time(s) under load", "improve the cooling: is a fan blocked?"
        )
    if after["mhz"] is None:
        return unknown("this machine shows no clocks (a virtual one?); its control group was not throttled")
    return passed(f"{after['mhz']} MHz, not throttled")
