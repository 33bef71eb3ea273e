"""Is the software the same on all nodes? Do inherited settings change what is measured? Is the job requeued at its limit?"""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
from collections.abc import Iterator
from pathlib import Path

from hpc_utils import provenance
from hpc_utils.provenance.tools import run_tool

from .check import Context, Facts, Observations, Result, failed, judge, locations, not_applicable, passed, unknown


def measure_software(context: Context) -> Facts:
    """The measuring code and the libraries of this node."""
    versions = provenance.versions()
    return {
        "digest": provenance.measuring_digest()[:12],
        "torch": versions["torch"],
        "CUDA": versions["cuda"] or versions["hip"],
        "NCCL": versions["nccl"],
        "Python": versions["python"],
        "MPI": _first_version("mpiexec", "--version"),
        "UCX": _first_version("ucx_info", "-v"),
    }


def _first_version(*command: str) -> str:
    """What a library's tool prints up to its first version, such as `mpiexec (OpenRTE) 4.1.4`; "" without the tool."""
    printed = " ".join((run_tool(*command) or "").split())
    version = re.match(r"\W*(.*?\d+\.[\w.]+)", printed)
    return version[1] if version else ""


@judge("software", "the same code, torch and Python on every node")
def judge_software(observations: Observations) -> Result:
    """All nodes' software side by side."""
    first = observations[0].facts
    for what, value in first.items():
        if differing := [observation for observation in observations if observation[what] != value]:
            fix = (
                "use one copy of the compendium and one environment on a file system that all nodes see; are modules or "
                "the container loaded on every node?"
            )
            measured = f"{what} {value} on {observations[0].host}, but {differing[0][what]}"
            return failed(measured, fix, locations(differing))
    return passed(f"code {first['digest']}, torch {first['torch']}, Python {first['Python']}")


GIB = 2**30
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")
PACKAGES = ("torch", "numpy", "pandas")


def measure_traps(context: Context) -> Facts:
    """The settings that are known to change measurements."""
    files = {name: getattr(sys.modules.get(name), "__file__", None) or "/" for name in PACKAGES}
    return {
        "inherited": [name for name in context.options.inherited.split(",") if name],
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "ranks": context.ranks_per_node,
        "cores": len(context.cores),
        "binding": {name: os.environ[name] for name in BINDING if name in os.environ},
        "user_site": [name for name in files if Path(files[name]).is_relative_to(site.getusersitepackages())],
        "shm_bytes": shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None,
    }


@judge("environment", "no setting that changes measurements", each=True)
def judge_traps(facts: Facts) -> Result:
    """All traps of a node in one row."""
    traps = dict(_traps(facts))
    return failed("; ".join(traps), "; ".join(traps.values())) if traps else passed("none of the known traps")


def _traps(facts: Facts) -> Iterator[tuple[str, str]]:
    """(trap, fix) of each."""
    if names := " ".join(facts["inherited"]):
        fix = f"`unset {names}`: a notebook would wait for ranks of that launcher"
        yield f"variables of another launcher: {names}", fix
    threads = facts["threads"]
    most = max(1, facts["cores"] // facts["ranks"])
    if threads.isdigit() and int(threads) > most:
        trap = f"OMP_NUM_THREADS={threads} for each of {facts['ranks']} ranks on {facts['cores']} cores"
        yield trap, f"`export OMP_NUM_THREADS={most}`, or unset it"
    for name, value in facts["binding"].items():
        if value.lower() not in ("false", "none", "disabled"):
            yield f"{name}={value} conflicts with the pinning of ranks", f"`unset {name}`"
    for name in facts["user_site"]:
        yield f"{name} comes from ~/.local, not from this environment", "`export PYTHONNOUSERSITE=1`"
    if facts["shm_bytes"] is not None and facts["shm_bytes"] < GIB:
        trap = f"/dev/shm has {facts['shm_bytes'] / 2**20:.0f} MiB free: NCCL and loader workers need more"
        yield trap, "start the container with --ipc=host or --shm-size=8g, or remove old files there"


def measure_job(context: Context) -> Facts:
    """What `scontrol` prints of this job."""
    job = provenance.job()["id"]
    faults = []
    job_text = run_tool("scontrol", "show", "job", job, faults=faults) if job else None
    return {"job": job, "shown": parse_job(job_text or ""), "faults": faults}


def parse_job(text: str) -> dict[str, str]:
    """State, limit and requeue of `scontrol show job`'s KEY=VALUE pairs; a value ends at the first space."""
    return dict(re.findall(r"(?:^|\s)(JobState|TimeLimit|Requeue)=(\S*)", text))


@judge("time limit", "a time limit, and Requeue=1: a run that reaches the limit continues in the next job", each=True)
def judge_job(facts: Facts) -> Result:
    """Time limit and requeue."""
    if not facts["job"]:
        return not_applicable("not in a Slurm job")
    fields = facts["shown"]
    faults = "; ".join(facts["faults"])
    if "Invalid job id" in faults or fields.get("JobState", "RUNNING") not in ("RUNNING", "COMPLETING"):
        fix = "the variables of an ended job were inherited: use a new shell (`env | grep ^SLURM_`)"
        return failed(f"job {facts['job']} does not run", fix)
    if not fields:
        fix = "`scontrol show job $SLURM_JOB_ID` must work on a compute node"
        return unknown(f"scontrol does not answer ({faults or 'not installed here'})", fix)
    measured = f"TimeLimit={fields['TimeLimit']}, Requeue={fields['Requeue']}"
    if fields["Requeue"] == "0":
        return failed(measured, "add `#SBATCH --requeue` (and --open-mode=append, which keeps the log)")
    if fields["TimeLimit"] == "UNLIMITED":
        return unknown(f"{measured}: no limit, so no signal before it", "request a limit: `--time`")
    return passed(measured)
