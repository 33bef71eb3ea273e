"""Traps in the environment: settings that were meant for something else and change what is measured here."""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from .bench import Bench
from .check import Check, Facts, failed, passed
from .interfaces import active_ports

EXPECTED = "nothing that changes measurements unnoticed"
GIB = 2**30
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")
PACKAGES = ("torch", "numpy", "pandas")


def look(bench: Bench) -> Facts:
    """What there is of known traps."""
    env = os.environ
    shared = Path("/dev/shm")
    return {
        "inherited": list(bench.options.inherited),
        "threads": env.get("OMP_NUM_THREADS"),
        "ranks": bench.ranks_per_node,
        "cores": len(bench.cores),
        "binding": {name: env[name] for name in BINDING if name in env},
        "imported": {name: _owner(Path(module.__file__)) for name in PACKAGES if (module := _module(name))},
        "several": _several(sys.path),
        "shm_bytes": shutil.disk_usage(shared).free if shared.is_dir() else None,
        "memlock": _memlock() if active_ports() else None,
    }


def judge(facts: Facts) -> Check:
    """All traps of a node in one row."""
    found = list(traps(facts))
    if not found:
        return passed("none of the known traps", EXPECTED)
    return failed("; ".join(trap for trap, _ in found), EXPECTED, "; ".join(fix for _, fix in found))


def traps(facts: Facts) -> Iterator[tuple[str, str]]:
    """(trap, what to do) for each."""
    if facts["inherited"]:
        names = " ".join(facts["inherited"])
        yield (
            f"variables of another launcher: {names}",
            f"`unset {names}`: a notebook would wait for ranks that never come",
        )
    threads, room = facts["threads"], max(1, facts["cores"] // facts["ranks"])
    if threads and threads.isdigit() and int(threads) > room:
        yield (
            f"OMP_NUM_THREADS={threads} for each of {facts['ranks']} ranks on {facts['cores']} cores",
            f"`export OMP_NUM_THREADS={room}`, or unset it",
        )
    for name, value in facts["binding"].items():
        if value.lower() not in ("false", "none", "disabled"):
            yield f"{name}={value} works against the pinning of ranks", f"`unset {name}`"
    for name, owner in facts["imported"].items():
        if owner == "user":
            yield (
                f"{name} comes from the user's own site-packages (~/.local), not from this environment",
                "`export PYTHONNOUSERSITE=1`",
            )
    for name, versions in facts["several"].items():
        yield (
            f"{name} {versions[0]} hides {', '.join(versions[1:])}",
            "unset PYTHONPATH, or install into one environment only",
        )
    if facts["shm_bytes"] is not None and facts["shm_bytes"] < GIB:
        yield (
            f"/dev/shm has {facts['shm_bytes'] / 2**20:.0f} MiB free: NCCL and loader workers need more",
            "start the container with --ipc=host or --shm-size=8g, or remove what is left there",
        )
    if facts["memlock"] is not None and facts["memlock"] < GIB:
        yield (
            f"locked memory is limited to {facts['memlock'] / 2**20:.0f} MiB: InfiniBand cannot register buffers",
            "have the limit raised for slurmd (`LimitMEMLOCK=infinity`, `PropagateResourceLimitsExcept=MEMLOCK`)",
        )


def leftovers(environment: Mapping[str, str]) -> list[str]:
    """The variables that say "you are a rank" to a process that nobody launched."""
    launcher = re.compile(r"RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_\w+")
    return sorted(name for name in environment if launcher.fullmatch(name))


def _module(name: str):
    module = sys.modules.get(name)
    return module if module and getattr(module, "__file__", None) else None


def _owner(file: Path) -> str:
    """`environment`, `user` (its own site-packages) or `elsewhere` (PYTHONPATH, a module's tree)."""
    if file.is_relative_to(site.getusersitepackages()):
        return "user"
    inside = any(file.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
    return "environment" if inside else "elsewhere"


def _several(path: list[str]) -> dict[str, list[str]]:
    """{package: its versions} of those that are installed in more than one version, the used one first."""
    from importlib import metadata

    found: dict[str, list[str]] = {}
    for distribution in metadata.distributions(path=list(dict.fromkeys(path))):
        name = (distribution.metadata["Name"] or "").lower()
        if name in PACKAGES and distribution.version not in found.setdefault(name, []):
            found[name].append(distribution.version)
    return {name: versions for name, versions in found.items() if len(versions) > 1}


def _memlock() -> int:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return 2**63 if limit == resource.RLIM_INFINITY else limit
