"""What a look gets: which rank it is, what was asked for, how long it may take, and what was found before it."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import provenance
from hpc_utils.provenance.cpu import usable

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

    from .exchange import Exchange

SECONDS = 120.0  # that the whole examination may take


@dataclass(frozen=True)
class Options:
    """What whoever starts the doctor knows and a rank cannot.

    Attributes:
        seconds: for everything; each look's time is a share of it. device: as `RunConfig.device`.
        torch: the build that the cluster file names, such as cu126. link_gbit: a node's nominal link; 0: not known.
        inherited: variables of another launcher that `hpc doctor` was started under.
    """

    seconds: float = SECONDS
    device: str = "auto"
    torch: str = ""
    link_gbit: float = 0.0
    inherited: tuple[str, ...] = ()


@dataclass
class Bench:
    """This process among the examined.

    Attributes:
        exchange: words between ranks, without a process group. patience: seconds that the present look may take.
        ranks: set by the look that joins the process group, and what undoes it.
        nccl_log: the file that NCCL logs to, in a folder of its own. carriers: adapters or interfaces that it named.
        allowed, cores: CPUs, and those grouped by core, before ranks are pinned.
    """

    options: Options
    exchange: Exchange
    rank: int = 0
    world: int = 1
    local_rank: int = 0
    ranks_per_node: int = 1
    patience: float = 10.0
    ranks: Ranks | None = None
    joined: Any = None
    nccl_log: Path | None = None
    carriers: list[str] = field(default_factory=list)
    host: str = field(default_factory=socket.gethostname)
    hosts: list[str] = field(default_factory=list)
    allowed: list[int] = field(default_factory=usable)
    cores: list[list[int]] = field(default_factory=provenance.core_groups)

    @classmethod
    def from_environment(cls, options: Options, exchange: Exchange) -> Bench:
        """As torchrun says; a process that nobody launched is rank 0 of one."""
        alone = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        return cls(options, exchange, *(int(os.environ.get(name, value)) for name, value in alone.items()))

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def nodes(self) -> int:
        return self.world // self.ranks_per_node

    def tidy(self) -> None:
        """Remove what looks have left beside the report."""
        if self.nccl_log:
            shutil.rmtree(self.nccl_log.parent, ignore_errors=True)

    def share(self, part: float, most: float) -> float:
        """Seconds to spend on one measurement: `part` of the patience, at most `most`."""
        return min(most, self.patience * part)
