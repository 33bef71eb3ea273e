"""The forkserver's own set-up: the imports that ranks share, and whether a fork with them is safe.

Python's forkserver imports this module before it forks. It has one thread, no GPU and no state of a run.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import re
import sys
import warnings
from pathlib import Path

from hpc_utils import provenance, workspace

from .process_tree import adopt_orphans, die_with_parent

# torch._dynamo: DDP imports it. Packages that only rank 0's cells need are imported here too, instead of by a rank.
MODULES = (
    "torch", "torch._dynamo", "hpc_utils.train.parallel.ddp", "hpc_utils.launch.forkserver", "hpc_utils.launch.rank_profiler",
    "papermill", "pandas", "hpc_utils.publish.plots.runs",
)  # fmt: skip
# Variables that the interpreter and libraries read when they are loaded: a fork cannot have others. Inductor itself sets its CACHE_DIR.
READ_AT_START = re.compile(
    r"LD_|LANG$|LC_|MALLOC_|GLIBC_|PYTHON(?!UNBUFFERED$)|(OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR)_"
    r"|TORCH_(LOGS|CPP_|SHOW_)|TORCH(DYNAMO|INDUCTOR)_(?!CACHE_DIR$)|PYTORCH_|MPL(?!BACKEND$)"
)


def refusal() -> str:
    """Why a fork would differ from a new process; "" if it would not. Called in the fork, with the environment of the
    rank."""
    if broken:
        return broken
    import torch

    if threads:
        return (
            f"the imports started threads: {', '.join(threads)} (OPENBLAS_NUM_THREADS other than 1? a sitecustomize?)"
        )
    if torch.version.hip:
        return "HIP cannot be used after a fork"
    if torch.cuda.is_initialized() or "mpi4py.MPI" in sys.modules:
        return "CUDA or MPI was initialised when Python started, and cannot be used after a fork"
    for name in sorted({*os.environ, *environment}):
        if READ_AT_START.match(name) and os.environ.get(name) != environment.get(name):
            return f"{name} is {os.environ.get(name)!r}, but was {environment.get(name)!r} when the imports were done"
    if code_state() != code:
        return "the code of hpc_utils changed since the imports were done"
    return ""


def other_threads() -> list[str]:
    """The names of this process's threads but the main one, of which fork would copy none."""
    tasks = Path("/proc/self/task")
    return [(tasks / task / "comm").read_text().strip() for task in os.listdir(tasks) if int(task) != os.getpid()]


def code_state() -> set[tuple[Path, int]]:
    """Changes whenever a module of this package does."""
    return {(path, path.stat().st_mtime_ns) for path in Path(provenance.__file__).parents[1].rglob("*.py")}


def import_modules() -> str:
    """Import what ranks need; the reason if that fails."""
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank
    gc.disable()  # collecting what the imports make, and keep, is a quarter of their time
    try:
        for name in MODULES:
            importlib.import_module(name)
        figure = sys.modules["matplotlib.figure"].Figure()
        figure.add_subplot().set_title("loads the font")
        figure.savefig(io.BytesIO())
        provenance.measuring_digest()  # parses the code, which `source_code.parsed` keeps for the ranks
    except Exception as error:
        return f"the forkserver could not import {name}: {error}"
    finally:
        gc.freeze()  # or a collection in a fork would touch, and so copy, every page of it
        gc.enable()
    return ""


def lead_session() -> None:
    """End with hpc, receive no signals of its terminal, and be the parent of whatever a dead rank leaves running."""
    os.setsid()
    die_with_parent(workspace.launch().parent)
    adopt_orphans()
    warnings.filterwarnings("ignore", "forkserver: waitpid")  # its warning of such processes


server = os.getpid()  # the forkserver: a fork's parent
environment = dict(os.environ)  # before the imports: torch._dynamo's adds variables
code = code_state()
is_done = False  # whether the imports were asked for, and tried
broken = ""
threads: list[str] = []
if workspace.launch().parent == os.getppid():  # in the forkserver
    if sys.platform == "linux":
        lead_session()
    if is_done := not workspace.launch().cold:
        broken = import_modules()
        threads = other_threads()
