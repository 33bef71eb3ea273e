"""The environment variables that a launcher sets for this process, read once at the start of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpc_utils import provenance, workspace
from hpc_utils.records.folder import RunFolder

NUMBERS = {
    "rank": "RANK",
    "world_size": "WORLD_SIZE",
    "local_rank": "LOCAL_RANK",
    "ranks_per_node": "LOCAL_WORLD_SIZE",
}

_used: set[Path] = set()  # launchers' folders that this process has already used for a run


@dataclass(frozen=True)
class Environment:
    """Variables of torchrun and of our launchers.

    Attributes:
        local_rank, ranks_per_node: None if not set.
        rendezvous: address and port of the rendezvous.
        node_cores: cores, or share of one, of this node if rehearsal nodes share cores.
        profiler: the profiler that started this process.
        cold_start: why this process was not forked from the warm process.
        run: run folder that a launcher claimed for this process.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int | None = None
    ranks_per_node: int | None = None
    rendezvous: tuple[str | None, str | None] = (None, None)
    node_cores: float | None = None
    profiler: workspace.Profiler | None = None
    cold_start: str = ""
    run: Path | None = None

    @classmethod
    def read(cls) -> Environment:
        """Read the variables of this process."""
        variables, launch = workspace.environment(), workspace.launch()
        numbers = {name: int(variables[NUMBERS[name]]) for name in NUMBERS if NUMBERS[name] in variables}
        node_cores = variables.get(provenance.NODE_CORES)
        return cls(
            **numbers,
            rendezvous=(variables.get("MASTER_ADDR"), variables.get("MASTER_PORT")),
            node_cores=float(node_cores) if node_cores else None,
            profiler=launch.profiler,
            cold_start=launch.cold,
            run=Path(launch.run) if launch.run else None,
        )

    @property
    def folder(self) -> RunFolder | None:
        """The launcher's folder; None if there is none or an earlier run of this process used it."""
        return RunFolder(self.run) if self.run and self.run not in _used else None

    def take_folder(self) -> RunFolder | None:
        """Return `folder` and mark it as used. Every rank calls it."""
        folder = self.folder
        if folder:
            _used.add(folder.path)
        return folder
