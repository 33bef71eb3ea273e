"""The doctor, started: on this machine, or in a job on a cluster's nodes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hpc_utils.doctor.check import SECONDS
from hpc_utils.doctor.environment import leftovers

from . import cluster, probe

LATE = 60.0  # s over its time after which an examination is ended that did not end itself


def here(nproc: int) -> dict[str, Any]:
    """Examine this machine with `nproc` ranks; they print the table. Returns doctor.json's content.

    Raises:
        NoReport, KeyboardInterrupt: as `probe.here`.
    """
    arguments = [f"--inherited={','.join(leftovers(os.environ))}", f"--torch={_build()}"]
    return probe.here(nproc, "hpc_utils.doctor", arguments, seconds=SECONDS + LATE)


def _build() -> str:
    """The torch build that the cluster file names, if HPC_CLUSTER (`<cluster>-<node type>`) says that this is one."""
    here = os.environ.get("HPC_CLUSTER", "")
    names = [name for name in cluster.known() if here == name or here.startswith(f"{name}-")]
    return cluster.read(max(names, key=len)).software.torch if names else ""


def on_cluster(
    found: cluster.Cluster, node_type: str, nodes: int, tell: Callable[[str], None]
) -> tuple[str, dict[str, Any]]:
    """Examine `nodes` whole nodes of a cluster in a job, and wait: (what it printed, doctor.json's content).

    Raises:
        ClusterError, SlurmError, NoReport: as `probe.on_cluster`.
    """
    arguments = [f"--link-gbit={found.network.link_gbit}", f"--torch={found.software.torch}"]
    return probe.on_cluster(found, node_type, (nodes, 0), "doctor.sbatch", arguments, tell)
