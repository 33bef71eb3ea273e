"""The environment of this process: folders, and the launcher's record. No other module reads these variables.

Users set `HPC_RESULTS` and `HPC_DATA`; `HPC_SHARED=1` marks runs that share the machine on purpose, as tests do: they
wait for no other run, and are in no scaling figure. A launcher sets `HPC_LAUNCH`, a `Launch` as a JSON object, for
the processes that it starts. `using` overrides variables without changing `os.environ`; readers of `environment()`,
and processes started with it, see the new values.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

VARIABLE = "HPC_LAUNCH"
# Variables that identify a rank; processes outside the launch do not inherit them.
RANK_VARIABLES = re.compile(
    rf"RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|ROLE_RANK|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_\w+|{VARIABLE}"
)

_overrides: dict[str, str] = {}  # set by `using`
_adopted: Launch | None = None  # set by `adopt`


@dataclass(frozen=True)
class Profiler:
    """The profiler that started a rank.

    Attributes:
        tool: `nsys` or `ncu`. window: the kind of window that it waits for, `cuda` or `nvtx`.
        front: id of the process that started it on behalf of the rank. umask: of that process.
    """

    tool: str
    window: str
    front: int | None = None
    umask: int | None = None


@dataclass(frozen=True)
class Launch:
    """The settings that a launcher passes to its processes.

    Attributes:
        owner: id of the launch, by which `process_tree` finds its processes.
        run: run folder that was claimed for this process.
        parent: id of the process with which this one ends.
        cold: why this process was not forked from the forkserver (`launch.forkserver`).
        profiler: the profiler that started this rank.
        turns: where this rank asks for its run's turns (`train.turns`); empty: its run is alone.
    """

    owner: str = ""
    run: str = ""
    parent: int | None = None
    cold: str = ""
    profiler: Profiler | None = None
    turns: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Launch:
        """The record in `environment`; an empty record if there is none or it is invalid."""
        try:
            record = json.loads(environment.get(VARIABLE, "{}"))
            profiler = record.pop("profiler", None)
            return cls(**record, profiler=profiler and Profiler(**profiler))
        except (ValueError, TypeError, AttributeError):
            return cls()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variable that carries this record."""
        return {VARIABLE: json.dumps(asdict(self))}


def project() -> Path:
    """The clone; an installed copy falls back to the working folder."""
    return _CLONE if _IS_CLONE else Path.cwd()


def data() -> Path:
    """Decoded data sets, one folder each. `HPC_DATA` moves it (a project or scratch file system)."""
    return _folder("HPC_DATA", "data")


def results() -> Path:
    """The folder of all results of studies. `HPC_RESULTS` moves it."""
    return _folder("HPC_RESULTS", "results")


def _folder(variable: str, default: str) -> Path:
    return Path(environment().get(variable) or project() / default).absolute()


def is_shared() -> bool:
    """Whether the runs of this process share the machine on purpose."""
    return environment().get("HPC_SHARED") == "1"


def variables() -> dict[str, str]:
    """The folders, and the mark of shared runs, as environment variables."""
    shared = {"HPC_SHARED": "1"} if is_shared() else {}
    return {"HPC_DATA": str(data()), "HPC_RESULTS": str(results())} | shared


_CLONE = Path(__file__).resolve().parent.parent
_IS_CLONE = (_CLONE / "pyproject.toml").is_file()  # an installed copy has no clone


def environment() -> dict[str, str]:
    """The variables of this process, with those of `using`."""
    return {**os.environ, **_overrides}


def child_environment() -> dict[str, str]:
    """`environment` for a process outside any launch, in which imports start no threads unless the variables ask for
    them."""
    # torchrun would set one OpenMP thread with a warning; each rank sets its own number later. A process in which an
    # import started threads cannot be forked: NumPy's OpenBLAS does, and pyarrow's allocator, which pandas imports.
    single_threaded = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }
    return single_threaded | {
        name: value for name, value in environment().items() if not RANK_VARIABLES.fullmatch(name)
    }


@contextlib.contextmanager
def using(**variables: str) -> Iterator[None]:
    """Add `variables` to `environment()` in the block."""
    global _overrides
    before = _overrides
    _overrides = _overrides | variables
    try:
        yield
    finally:
        _overrides = before


@contextlib.contextmanager
def exporting(variables: Mapping[str, str]) -> Iterator[None]:
    """Have `variables` as this process's whole environment in the block, for processes that inherit it."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def adopt() -> Launch:
    """Keep the launcher's record for this rank; its own child processes inherit the owner only."""
    global _adopted
    _adopted = Launch.of(os.environ)
    os.environ.update(Launch(_adopted.owner).variables)
    return _adopted


def launch() -> Launch:
    """The launcher's settings for this process."""
    return _adopted or Launch.of(environment())


def starting(record: Launch, **changes: object) -> dict[str, str]:
    """`record` with `changes` as variables for a child process."""
    return replace(record, parent=os.getpid(), **changes).variables
