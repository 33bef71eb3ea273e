"""The benches, started: on this machine, or in a job on a cluster's nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from hpc_utils.doctor.bench import GRACE, LIMIT

from . import probe
from .cluster import Cluster

MODULE = "hpc_utils.doctor.bench"


def here(nproc: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Measure with `nproc` ranks of this machine, which print what they find; the record.

    Raises:
        NoReport, KeyboardInterrupt: as `probe.here`.
    """
    return probe.here(nproc, MODULE, arguments, seconds=LIMIT, grace=GRACE)


def on_cluster(
    found: Cluster,
    node_type: str,
    layout: tuple[int, int],
    arguments: Sequence[str],
    tell: Callable[[str], None],
    *,
    measuring: AbstractContextManager[None] | None = None,
) -> tuple[str, dict[str, Any]]:
    """Measure in a job on (nodes, ranks on each), and wait: (what it printed, the record).

    Args:
        measuring: entered while the job runs; see `probe.on_cluster`.

    Raises:
        ClusterError, SlurmError, NoReport: as `probe.on_cluster`.
    """
    return probe.on_cluster(found, node_type, layout, "bench.sbatch", arguments, tell, measuring=measuring)
