"""Where a measurement comes from: the code, the software, the machine and the job behind it.

    from hpc_utils import provenance
    record = provenance.collect()            # JSON-able; a few milliseconds beside the tools that it runs
    provenance.write_system(records, path)   # SYSTEM.md

Unknown values are None. A tool that fails, or does not answer within `HPC_PROBE_TIMEOUT` seconds (10), is listed under
`faults`. Serial numbers, MAC and IP addresses and secrets are never recorded.

The room exceeds its budget: it holds the device monitor, a typed field for every fact of a machine of NVIDIA and AMD,
and the page SYSTEM.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .cpu import core_groups, emulates_bf16
from .digest import RULE, analysis_digest, measuring_digest, of_rule
from .facts import SHORT, differences
from .git import commit, dirty
from .machine import Hardware, HardwareId, fingerprint, hardware, hardware_id
from .software import environment, host, job, versions
from .system import system_markdown, write_system
from .tools import attempt

start = "cold"  # "warm" in a process that was forked from one which had imported everything (`launch.forkserver`)
NODE_CORES = "HPC_NODE_CORES"  # the variable that holds this node's share of a core, where nodes share cores


def collect(extra_files: Iterable[Path] = (), root: Path | None = None) -> dict[str, Any]:
    """The provenance record of this process; it neither raises nor hangs."""
    probes = {
        "digest": lambda: measuring_digest(extra_files, root),
        "digest_rule": lambda: RULE,
        "commit": lambda: commit(root),
        "dirty": lambda: dirty(root),
        "collected_at": lambda: datetime.now(UTC).isoformat(timespec="milliseconds"),
        "versions": versions,
        "hardware_id": hardware_id,
        "hardware": lambda: asdict(hardware()),
        "start": lambda: start,
        "job": job,
        "host": host,
        "environment": environment,
    }
    faults: list[str] = []
    return {name: attempt(probe, faults) for name, probe in probes.items()} | {"faults": faults}
