"""Is the software the same on all nodes? Do inherited settings change what is measured?"""

from __future__ import annotations

import os
import shutil
import site
import sys
from collections.abc import Iterator
from pathlib import Path

from hpc_utils import provenance

from .check import Context, Facts, Observations, Result, failed, locations, passed
from .network import active_ports

SAME = "the same code, torch and Python on every node"
SOFTWARE = ("digest", "torch", "CUDA", "NCCL", "Python")


def measure_software(context: Context) -> Facts:
    """The measuring code and the libraries of this node."""
    versions = provenance.versions()
    cuda = versions["cuda"] or versions["hip"]
    found = (provenance.measuring_digest()[:12], versions["torch"], cuda, versions["nccl"], versions["python"])
    return dict(zip(SOFTWARE, found, strict=True))


def judge_software(seen: Observations) -> Result:
    """All nodes' software side by side."""
    first = seen[0].facts
    for what in SOFTWARE:
        if others := [one for one in seen if one.facts[what] != first[what]]:
            return failed(
                f"{what} {first[what]} on {seen[0].host}, but {others[0].facts[what]}",
                SAME,
                "use one copy of the compendium and one environment on a file system that all nodes see; are modules or "
                "the container loaded on every node?",
                locations(others),
            )
    return passed(f"code {first['digest']}, torch {first['torch']}, Python {first['Python']}", SAME)


CLEAN = "no setting that changes measurements"
GIB = 2**30
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")
PACKAGES = ("torch", "numpy", "pandas")


def measure_traps(context: Context) -> Facts:
    """The settings that are known to change measurements."""
    env, shared = os.environ, Path("/dev/shm")
    return {
        "inherited": [name for name in context.options.inherited.split(",") if name],
        "threads": env.get("OMP_NUM_THREADS"),
        "ranks": context.ranks_per_node,
        "cores": len(context.cores),
        "binding": {name: env[name] for name in BINDING if name in env},
        "user_site": [name for name in PACKAGES if _in_user_site(getattr(sys.modules.get(name), "__file__", None))],
        "shm_bytes": shutil.disk_usage(shared).free if shared.is_dir() else None,
        "memlock": _memlock() if active_ports() else None,
    }


def _in_user_site(file: str | None) -> bool:
    return bool(file) and Path(file).is_relative_to(site.getusersitepackages())


def _memlock() -> int:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return 2**63 if limit == resource.RLIM_INFINITY else limit


def judge_traps(facts: Facts) -> Result:
    """All traps of a node in one row."""
    traps = list(_traps(facts))
    if not traps:
        return passed("none of the known traps", CLEAN)
    return failed("; ".join(trap for trap, _ in traps), CLEAN, "; ".join(fix for _, fix in traps))


def _traps(facts: Facts) -> Iterator[tuple[str, str]]:
    """(trap, fix) of each."""
    if facts["inherited"]:
        names = " ".join(facts["inherited"])
        yield (
            f"variables of another launcher: {names}",
            f"`unset {names}`: a notebook would wait for ranks of that launcher",
        )
    threads, most = facts["threads"] or "", max(1, facts["cores"] // facts["ranks"])
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
    if facts["memlock"] is not None and facts["memlock"] < GIB:
        trap = f"locked memory is limited to {facts['memlock'] / 2**20:.0f} MiB: InfiniBand cannot register buffers"
        fix = "have the limit raised for slurmd (`LimitMEMLOCK=infinity`, `PropagateResourceLimitsExcept=MEMLOCK`)"
        yield trap, fix
