"""Ranks of an MPI program."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpc_utils.train.ranks import Ranks

from .communication import MPI


class MpiRanks(Ranks):
    """Ranks with the collectives of `group`, an mpi4py communicator."""

    @classmethod
    def of_world(cls) -> MpiRanks:
        """This process among all that mpiexec or srun started."""
        world = MPI.COMM_WORLD
        node = world.Split_type(MPI.COMM_TYPE_SHARED)
        return cls(world.rank, world.size, node.rank, node.size, backend="mpi", group=world)

    def barrier(self) -> None:
        self.synchronize()
        self.group.Barrier()

    def sum(self, values: Tensor) -> Tensor:
        return self.group.allreduce(values)

    def max(self, values: Tensor) -> Tensor:
        return torch.stack(self.group.allgather(values)).amax(0)

    def gather(self, value: Any) -> list[Any]:
        return self.group.gather(value) or []

    def broadcast(self, value: Any) -> Any:
        return self.group.bcast(value)

    def settle(self) -> None:
        pass

    @property
    def everyone(self) -> MPI.Comm:
        return self.group

    def split(self) -> tuple[Any, Any]:
        node = self.group.Split(self.rank // self.ranks_per_node)
        leaders = self.group.Split(self.local_rank)
        return node, leaders if self.local_rank == 0 else None

    def all_reduce(self, values: Tensor, group: Any) -> None:
        group.Allreduce(MPI.IN_PLACE, values.numpy())
