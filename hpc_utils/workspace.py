"""The environment of this process: the only module that reads `HPC_*` variables of the launcher and of results and data.

Users set `HPC_RESULTS` and `HPC_DATA`. A launcher sets one more, `HPC_LAUNCH`: a `Launch` as a JSON object, for the
processes that it starts. `using` puts variables over the environment without changing `os.environ`: what reads
`environment()` sees them, and so does each process that is started with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

VARIABLE = "HPC_LAUNCH"
# What makes a process a rank: never handed on to a process that is none of the same launch.
RANK_VARIABLES = re.compile(
    rf"RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|ROLE_RANK|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_\w+|{VARIABLE}"
)

_over: dict[str, str] = {}  # by `using`
_adopted: Launch | None = None  # by `adopt`


@dataclass(frozen=True)
class Profiler:
    """The profiler that has started a rank.

    Attributes:
        tool: `nsys` or `ncu`. window: what it waits for, `cuda` or `nvtx`.
        front: the process that started it and stands for the rank. umask: of that process.
    """

    tool: str
    window: str
    front: int | None = None
    umask: int | None = None


@dataclass(frozen=True)
class Launch:
    """What a launcher tells the processes that it starts.

    Attributes:
        owner: names the launch; `process_tree` finds its processes by it.
        run: the run folder that was claimed for this process.
        parent: the process whose end is this one's end.
        warm: the name of the warm process, or `off` (`launch.warm`). cold: why this process was not forked from it.
        profiler: what has started this rank.
    """

    owner: str = ""
    run: str = ""
    parent: int | None = None
    warm: str = ""
    cold: str = ""
    profiler: Profiler | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Launch:
        """The record in `environment`; an empty one if there is none, or it is damaged."""
        try:
            found = json.loads(environment.get(VARIABLE, "{}"))
            given = {name: value for name, value in found.items() if name in {field.name for field in fields(cls)}}
            profiler = given.pop("profiler", None)
            return cls(**given, profiler=profiler and Profiler(**profiler))
        except (ValueError, TypeError, AttributeError):
            return cls()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variable that carries this record."""
        return {VARIABLE: json.dumps({name: value for name, value in asdict(self).items() if value})}


@dataclass(frozen=True)
class Workspace:
    """Where things lie for this process, and what its launcher told it."""

    project: Path
    data: Path
    results: Path
    launch: Launch

    @classmethod
    def current(cls) -> Workspace:
        clone, here = Path(__file__).resolve().parent.parent, environment()
        project = clone if (clone / "pyproject.toml").is_file() else Path.cwd()  # an installed copy has no clone
        data, results = (Path(here.get(name) or project / default) for name, default in _FOLDERS.items())
        return cls(project, data.absolute(), results.absolute(), _adopted or Launch.of(here))

    @property
    def variables(self) -> dict[str, str]:
        """The folders as environment variables."""
        return {"HPC_DATA": str(self.data), "HPC_RESULTS": str(self.results)}


_FOLDERS = {"HPC_DATA": "data", "HPC_RESULTS": "results"}


def environment() -> dict[str, str]:
    """The variables of this process, those of `using` over them."""
    return {**os.environ, **_over}


def child_environment(*, threads: int = 1) -> dict[str, str]:
    """`environment` for a process that belongs to no launch yet; OpenMP's and OpenBLAS's threads unless set already."""
    # torchrun would set one OpenMP thread, with a warning; each rank sets its own number. Threads that NumPy starts at
    # import make a process that cannot be forked.
    usual = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    return usual | {name: value for name, value in environment().items() if not RANK_VARIABLES.fullmatch(name)}


@contextlib.contextmanager
def using(**variables: str) -> Iterator[None]:
    """In the block, `variables` are part of `environment()`."""
    global _over
    before, _over = _over, _over | variables
    try:
        yield
    finally:
        _over = before


def adopt() -> Launch:
    """Make the launcher's record this rank's own: of it, what the rank starts later inherits the owner alone."""
    global _adopted
    _adopted = replace(Launch.of(os.environ), warm="")  # a run that a cell starts has a warm process of its own
    os.environ.update(Launch(_adopted.owner).variables)
    return _adopted


def launch() -> Launch:
    """What the launcher told this process."""
    return Workspace.current().launch


def starting(record: Launch, **changes: object) -> dict[str, str]:
    """`record` with `changes`, for the environment of a process whose parent this one is."""
    return replace(record, parent=os.getpid(), **changes).variables
