"""Where a measurement comes from: the code, the software, the machine and the job behind it.

    from hpc_utils import provenance
    record = provenance.collect()            # JSON-able; a few milliseconds beside the tools that it asks
    provenance.require(record)               # refuses a run with neither digest nor commit
    provenance.write_system(records, path)   # SYSTEM.md

A probe that finds nothing says None; one that fails or hangs is given up after `HPC_PROBE_TIMEOUT` seconds
(10) and named under `faults`. Serial numbers, MAC and IP addresses and secrets are never recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .ask import attempt
from .cpu import core_groups, emulates_bf16
from .difference import SHORT, differences
from .digest import analysis_digest, measuring_digest
from .git import commit, dirty
from .machine import hardware, hardware_id, link_gbit_in, links_in, machine_in
from .scheduler import job
from .software import environment, host, versions
from .system import system_markdown, write_system

__all__ = [
    "SHORT",
    "ProvenanceError",
    "analysis_digest",
    "collect",
    "commit",
    "core_groups",
    "differences",
    "dirty",
    "emulates_bf16",
    "environment",
    "hardware",
    "hardware_id",
    "host",
    "job",
    "link_gbit_in",
    "links_in",
    "machine_in",
    "measuring_digest",
    "require",
    "system_markdown",
    "versions",
    "write_system",
]


start = "cold"  # "warm" in a process that was forked from one which had imported everything (`launch.warm`)
NODE_CORES = "HPC_NODE_CORES"  # the variable that says how much of a core is this node's, where nodes share cores


class ProvenanceError(ValueError):
    """Nobody could tell which code made this run."""


def collect(extra_files: Iterable[Path] = (), root: Path | None = None) -> dict[str, Any]:
    """Everything that a run records about where it comes from; never raises, never hangs."""
    faults: list[str] = []
    extra_files = tuple(extra_files)
    return {
        "digest": attempt(lambda: measuring_digest(extra_files, root), faults),
        "commit": attempt(lambda: commit(root), faults),
        "dirty": attempt(lambda: dirty(root), faults),
        "collected_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "versions": attempt(versions, faults),
        "hardware_id": attempt(hardware_id, faults),
        "hardware": attempt(hardware, faults),
        "start": start,
        "job": attempt(job, faults),
        "host": attempt(host, faults),
        "environment": attempt(environment, faults),
        "faults": faults,
    }


def require(provenance: Mapping[str, Any] | None) -> None:
    """Refuse a run whose code is known neither by digest nor by commit."""
    if not provenance or not (provenance.get("digest") or provenance.get("commit")):
        raise ProvenanceError(
            "neither a digest of the measuring code nor a commit is known, so the run could not be traced; "
            "run from a readable copy of the compendium"
        )
