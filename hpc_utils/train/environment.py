"""What a launcher sets in this process's environment: read once, where a run begins, and passed on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import provenance
from hpc_utils.profilers import tools
from hpc_utils.records.folder import RUN_DIR, RunFolder

NUMBERS = {
    "rank": "RANK",
    "world_size": "WORLD_SIZE",
    "local_rank": "LOCAL_RANK",
    "ranks_per_node": "LOCAL_WORLD_SIZE",
}

_used: set[Path] = set()  # launchers' folders in which this process has begun a run


@dataclass(frozen=True)
class Environment:
    """Variables of torchrun and of our launchers.

    Attributes:
        local_rank, ranks_per_node: None if not set.
        rendezvous: address and port where the ranks meet.
        node_cores: the cores, or share of one, that this node has, where a rehearsal's nodes share cores.
        profiler: which profiler started this process, and on what device it waits: `tool:device:...`.
        cold_start: why this process was not forked from a warm one.
        run: the run folder that a launcher has claimed for this process.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int | None = None
    ranks_per_node: int | None = None
    rendezvous: tuple[str | None, str | None] = (None, None)
    node_cores: float | None = None
    profiler: str = ""
    cold_start: str = ""
    run: Path | None = None

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Environment:
        """This process's."""
        numbers = {name: int(variables[NUMBERS[name]]) for name in NUMBERS if NUMBERS[name] in variables}
        node_cores, run = variables.get(provenance.NODE_CORES), variables.get(RUN_DIR)
        return cls(
            **numbers,
            rendezvous=(variables.get("MASTER_ADDR"), variables.get("MASTER_PORT")),
            node_cores=float(node_cores) if node_cores else None,
            profiler=variables.get(tools.UNDER, ""),
            cold_start=variables.get(provenance.REFUSED, ""),
            run=Path(run) if run else None,
        )

    @property
    def folder(self) -> RunFolder | None:
        """The launcher's folder; None if there is none, or an earlier run of this process has used it."""
        return RunFolder(self.run) if self.run and self.run not in _used else None

    def take_folder(self) -> RunFolder | None:
        """`folder`, for one run only. Every rank calls it."""
        folder = self.folder
        if folder:
            _used.add(folder.path)
        return folder
