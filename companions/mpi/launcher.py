"""How the ranks of both loops start: of `Mpi` under mpiexec or srun, of `Horovod` under torchrun."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils import paths, workspace
from hpc_utils.config import ConfigError
from hpc_utils.launcher import Launcher

if TYPE_CHECKING:
    from .ranks import MpiRanks

INSTALL = "pip install '.[mpi]', or load the site's MPI module"


class Mpi(Launcher):
    """mpiexec on this machine, srun in a job. It ends all ranks when one leaves without `leave`."""

    starts_ranks = True

    def refusal(self) -> str:
        return (
            "" if importlib.util.find_spec("mpi4py") else f"the framework needs mpi4py and an MPI library: {INSTALL}"
        )

    def command(self, ranks: int) -> list[str]:
        """The mpiexec beside this Python, whose library mpi4py loads first, else that of the PATH."""
        places = os.pathsep.join([str(Path(sys.executable).parent), workspace.environment().get("PATH", "")])
        if not (program := shutil.which("mpiexec", path=places)):
            raise ConfigError(f"the framework needs mpiexec: {INSTALL}")
        return [program, "-n", str(ranks)]

    def join(self) -> MpiRanks:
        try:
            from .ranks import MpiRanks  # initialises MPI
        except (ImportError, RuntimeError) as error:
            raise ConfigError(f"the framework needs mpi4py and an MPI library ({INSTALL}): {error}") from None
        return MpiRanks.of_world()

    def leave(self) -> None:
        from .communication import MPI

        MPI.Finalize()


class Horovod(Launcher):
    """torchrun; Horovod itself is built into an environment of its own."""

    def refusal(self) -> str:
        return "" if horovod_packages() else "Horovod is not installed: run `make horovod` once"


def horovod_packages() -> Path | None:
    """The folder of packages into which `make horovod` built Horovod in the clone; None without it."""
    built = paths.root().glob(".venv-horovod/lib/python3*/site-packages/horovod/torch")
    return next((path.parents[1] for path in built), None)
