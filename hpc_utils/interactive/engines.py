"""A set of ipyparallel engines as its notebook sees it, and `%%px` with a time limit."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ipyparallel.client.magics import ParallelMagics
from IPython import get_ipython

from hpc_utils import paths
from hpc_utils.launch import slurm_commands
from hpc_utils.launch.process_tree import end_tree
from hpc_utils.records.folder import read_json

from . import group, host, network
from .member import connection_file
from .settle import parts, settle

if TYPE_CHECKING:
    import pandas as pd
    from ipyparallel import AsyncResult, Client, DirectView
    from ipyparallel.error import RemoteError


COLD_IMPORT = 60.0  # s to import torch from a cluster's file system


class EnginesError(RuntimeError):
    """Engines cannot be started or have ended; the message has which, the reason, and advice."""

    exit_code = 2


def start(
    n: int,
    where: Literal["local", "slurm"] = "local",
    sbatch_options: Sequence[str] = (),
    *,
    timeout: float = 60,
    cell_timeout: float = 60,
) -> Engines:
    """Start `n` engines and make `%%px` run cells on them.

    Args:
        where: "local", each engine on a core of its own, or "slurm", each a task of one job.
        sbatch_options: for that job, such as `["--nodes=2", "--partition=debug"]`.
        timeout: s until all engines must have connected, waiting in Slurm's queue included.
        cell_timeout: s that a `%%px` cell, and a collective in it, may take.

    Raises:
        EnginesError: they did not connect; nothing is left running.
        SlurmError: there is no Slurm here.
    """
    if where not in ("local", "slurm") or n < 1:
        raise EnginesError(f"start({n}, {where!r}): expected at least one engine, and where='local' or 'slurm'")
    if where == "slurm":
        address = network.address_that_nodes_reach()
        paths.results().mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".engines-", dir=paths.results()))  # nodes share it; mode 0700
    else:
        address, folder = network.LOOPBACK, Path(tempfile.mkdtemp(prefix="hpc-engines-"))
    command = [sys.executable, "-m", "hpc_utils.interactive.host", str(folder), where, address, str(n)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*command, *sbatch_options], stdin=pipe, stdout=pipe, text=True, start_new_session=True
    )
    end_host = partial(_end, process, folder)
    try:
        client = _connect(process, folder, n, timeout)
    except BaseException:
        end_host()
        raise
    return Engines(client, address, cell_timeout, end_host)


class Engines:
    """`n` engines; rank r is engine r. `view` (a blocking DirectView) and `client` are ipyparallel's own."""

    def __init__(self, client: Client, address: str, cell_timeout: float, end_host: Callable[[], None]) -> None:
        self.client, self.cell_timeout = client, cell_timeout
        self.view: DirectView = client[:]
        self.view.block = True
        self.last: AsyncResult | None = None  # of the last `%%px` cell
        self._address, self._n = address, len(client.ids)
        self._close = weakref.finalize(self, _close, client, end_host)  # at the latest when Python ends
        if shell := get_ipython():
            magics = Magics(shell, self.view)
            magics.crew = self
            shell.magics_manager.register(magics)

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engines, their job and their controller; a second call does nothing."""
        self._close()

    @property
    def table(self) -> pd.DataFrame:
        """Where each engine runs: host, process, and the logical CPUs that it may use."""
        import pandas as pd

        columns = ["host", "process", "logical CPUs"]
        rows = self._ask(group.whereabouts, dict.fromkeys(range(self._n), ()), COLD_IMPORT)
        return pd.DataFrame(rows, columns=columns, index=pd.RangeIndex(self._n, name="rank"))

    def join(self, timeout: float = 60) -> None:
        """Make the engines ranks of a new process group over gloo; a former group is destroyed.

        Raises:
            EnginesError: an engine has ended. CompositeError: the ranks did not find each other within `timeout` s.
        """
        meeting = self._ask(group.open_meeting_point, {0: (self._address, timeout)}, timeout + COLD_IMPORT)[0]
        tickets = {rank: (rank, self._n, *meeting, self._address, timeout) for rank in range(self._n)}
        self._ask(group.join, tickets, timeout + COLD_IMPORT)

    def require_all(self) -> None:
        """Raise EnginesError if an engine has ended."""
        if gone := sorted(set(range(self._n)) - set(self.client.ids)):
            raise EnginesError(f"engine {', '.join(map(str, gone))} has ended: close the set, and `start` another")

    def _ask(self, function: Callable, arguments: Mapping[int, tuple], timeout: float) -> list:
        """The results of `function`, of an importable module, on each rank with its arguments; errors as in a cell."""
        self.require_all()
        asked = [self.client[[rank]].apply_async(function, *given) for rank, given in arguments.items()]
        result = type(asked[0]).join(*asked)
        settle(self.client, result, timeout)
        return result.get()

    def outcomes(self) -> pd.DataFrame:
        """Each engine's outcome of the last `%%px --noblock` cell: its error, if any, and the seconds it took."""
        import pandas as pd

        if self.last is None:
            raise EnginesError("no `%%px` cell has been run: there are no outcomes yet")
        settle(self.client, self.last, self.cell_timeout)
        rows = {}
        for rank, part in parts(self.last).items():
            error, started, completed = part.exception(), part.metadata["started"], part.metadata["completed"]
            took = (completed - started).total_seconds() if started and completed else None  # an engine that died
            rows[rank] = {"outcome": _in_short(error) if error else "completed", "seconds": took}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("rank")


def _in_short(error: RemoteError) -> str:
    """Its name and first sentence, without the place in C++ that gloo's errors begin with."""
    message = re.sub(r"^\[\S+:\d+\] ", "", str(error.evalue))
    return f"{error.ename}: {message.split('. ')[0]}"


def _connect(process: subprocess.Popen, folder: Path, n: int, timeout: float) -> Client:
    """A client to which all `n` engines are connected."""
    import ipyparallel

    until, client = time.monotonic() + timeout, None
    try:
        while client is None or len(client.ids) < n:
            if process.poll() is not None:
                reason = process.stdout.read() or f"their host ended with exit code {process.returncode}"
                raise EnginesError(f"the engines cannot be started: {reason}")
            if time.monotonic() > until:
                found = 0 if client is None else len(client.ids)
                raise EnginesError(f"{found} of {n} engines connected within {timeout:g} s{_queue(folder)}")
            if client is None and read_json(connection_file(folder, "client")):
                with contextlib.suppress(TimeoutError):  # the controller has ended, or is slow: look again
                    client = ipyparallel.Client(str(connection_file(folder, "client")), timeout=2)
            time.sleep(0.05)
    except BaseException:
        if client is not None:
            client.close()
        raise
    process.stdin.write("!")  # from now on an engine may end without ending all
    process.stdin.flush()
    return client


def _queue(folder: Path) -> str:
    """The state of the job, if one is submitted yet, and advice."""
    if not (folder / "job").exists():
        return ": wait longer (timeout=)"
    job = slurm_commands.jobs([name := (folder / "job").read_text()]).get(name)
    state = f"{job.state} {job.reason}".strip() if job else "no longer known"
    return f": job {name} is {state}. Wait longer (timeout=), or request free nodes (sbatch_options=)"


def _close(client: Client, end_host: Callable[[], None]) -> None:
    client.close()
    end_host()


def _end(process: subprocess.Popen, folder: Path) -> None:
    """Let the host end the set; if it does not, end it here."""
    process.stdin.close()
    try:
        process.wait(host.GRACE + host.LET_GO + 10)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.stdout.close()
        end_tree(process, str(folder))
        shutil.rmtree(folder, ignore_errors=True)


class Magics(ParallelMagics):
    """A cell that fails or hangs on one engine ends on all; ipyparallel's own magics wait without a limit."""

    crew: Engines

    def parallel_execute(self, cell, block=None, groupby="type", save_name=None, **_):
        self.crew.require_all()
        result = super().parallel_execute(cell, block=False, save_name=save_name)
        self.crew.last = result
        if not (self.view.block if block is None else block):
            return result
        try:
            freed = settle(self.crew.client, result, self.crew.cell_timeout)
        finally:
            if result.ready():
                result.display_outputs(groupby)
        if freed:
            print(f"freed after waiting: engine {', '.join(map(str, freed))}", file=sys.stderr)
        result.get()
