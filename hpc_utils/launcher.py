"""How the ranks of a workload's own loop start and meet, where torchrun and torch.distributed do not do it.

A `Loop` names its launcher as text, `launcher = "module:Class"`, so that `hpc` starts its ranks without importing the
loop, which needs torch.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, ClassVar

from . import source_code


class Launcher:
    """The base of launchers; as it is, torchrun starts the ranks, and they join torch's process group.

    Attributes:
        starts_ranks: `command` starts every rank on this machine and srun every rank of a job, in place of torchrun; they
            meet by `join`.
    """

    starts_ranks: ClassVar[bool] = False

    def refusal(self) -> str:
        """Why the ranks cannot run with what is installed here; empty if they can."""
        return ""

    def command(self, ranks: int) -> list[str]:
        """The words before Python that start `ranks` processes on this machine.

        Raises:
            ConfigError: the program is not here.
        """
        raise NotImplementedError

    def join(self) -> Any:
        """This process's place among the ranks (`train.ranks.Ranks`), with their collectives; device and cores are still
        the defaults.

        Raises:
            ConfigError: a library is missing.
        """
        raise NotImplementedError

    def leave(self) -> None:
        """End the communication of a rank that succeeded."""


def find_launcher(workload: str) -> Launcher | None:
    """The launcher that a user's own loop names; None if torchrun starts its ranks, as those of all other workloads."""
    path = source_code.module_file(workload)
    name = path and _named(path, workload.partition(":")[2])
    return load_launcher(name) if name else None


def load_launcher(name: str) -> Launcher:
    """The launcher `module:Class`."""
    return source_code.load_object(name)()


def _named(path: Path, loop: str) -> str:
    """What the class `loop` in the module `path` assigns to `launcher`."""
    for node in ast.walk(source_code.syntax(path)):
        if isinstance(node, ast.ClassDef) and node.name == loop:
            for line in node.body:
                if isinstance(line, ast.Assign) and [ast.unparse(name) for name in line.targets] == ["launcher"]:
                    return ast.literal_eval(line.value)
    return ""
