"""The ranks of a run on this machine: forks of Python's forkserver, which has imported what they need.

    hpc ──▶ forkserver ──▶ rank 0, rank 1, ...

The forkserver lives as long as this process, so all runs of a study share its imports. A fork that would differ from
a new process (`preload.refusal`), and any rank with `--cold` or under a profiler, becomes `python -m
hpc_utils.launch.rank`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIGKILL, SIGTERM, SIGUSR2, Signals
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hpc_utils import provenance, signals, workspace
from hpc_utils.config import ConfigError
from hpc_utils.workspace import Launch

from .process_tree import GRACE, descendants, die_with_parent, kill, log_to

if TYPE_CHECKING:
    import psutil

PRELOAD = "hpc_utils.launch.preload"
MODULES = [PRELOAD]  # that the forkserver imports
RANK = "hpc_utils.launch.rank"


def start(*, cold: bool = False) -> int:
    """Start the forkserver unless it runs; its process id. Its imports go on while this process prepares a run.

    Args:
        cold: without imports, for ranks that are new processes.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(MODULES)
    record = Launch(owner=workspace.launch().owner, parent=os.getpid(), cold="requested" if cold else "")
    with workspace.exporting(workspace.child_environment() | record.variables), signals.waiting():
        forkserver.ensure_running()
    return forkserver._forkserver._forkserver_pid


def run(module: str, *arguments: str, log: Path | None = None) -> int:
    """Run `python -m MODULE ARGUMENTS` to its end; its exit code.

    It is a fork of the forkserver where that runs. With `log`, its output goes there.
    """
    environment = workspace.child_environment() | workspace.launch().variables
    server = forkserver._forkserver._forkserver_pid
    if server is None:
        parent = os.getpid()
        with log.open("ab") if log else contextlib.nullcontext() as output:
            return subprocess.run(  # in this session, so that Ctrl-C reaches it
                [sys.executable, "-m", module, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=lambda: die_with_parent(parent),
            ).returncode
    process = _fork(module, arguments, environment, log=log)
    try:
        process.join()
        return process.exitcode
    finally:
        kill(descendants(server))


class LocalRanks:
    """The ranks of one run, started on this machine.

    Attributes:
        failures: (rank, exit code) of what failed first; the others are ended then.
    """

    def __init__(
        self, arguments: Sequence[str], ranks: int, environment: dict[str, str], log: Path, *, cold: bool
    ) -> None:
        """
        Args:
            arguments: of `launch.rank`. ranks: how many; 0 is one process without a process group. log: for output
                before a rank has its own log. cold: the ranks are new processes instead of forks.
        """
        if ranks:
            _require_loopback()
        self._server = start(cold=cold)
        self._owner = Launch.of(environment).owner
        self.failures: list[tuple[int, int]] = []
        # Bound for as long as the run: the kernel gives this port to nobody else, and rank 0 may listen there.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        group = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._port.getsockname()[1]),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
        }
        self._ranks: list[BaseProcess] = []
        for rank in range(max(ranks, 1)):
            variables = group | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks else {}
            self._ranks.append(_fork(RANK, arguments, environment | variables, log=log, cold=cold))

    def poll(self, seconds: float) -> int | None:
        """Wait so long for the next end of a rank. None while one runs; then 0, or the exit code of the first that
        failed.

        The code is negative after a signal. When one rank has failed, the others write their stacks to
        their logs, and get SIGTERM.
        """
        wait([rank.sentinel for rank in self._ranks if rank.exitcode is None], seconds)
        codes = [rank.exitcode for rank in self._ranks]
        if not self.failures and any(codes):
            self.failures = [(rank, code) for rank, code in enumerate(codes) if code]
            self.send(SIGUSR2)
            self.send(SIGTERM)
        if None in codes:
            return None
        return self.failures[0][1] if self.failures else 0

    def send(self, number: Signals) -> bool:
        """Send a signal to every rank that runs."""
        for rank in self._ranks:
            if rank.exitcode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank.pid, number)
        return True

    def kill(self) -> None:
        """End the ranks at once."""
        self.send(SIGKILL)

    def end(self) -> None:
        """SIGTERM to the ranks; after some seconds, or a second Ctrl-C, SIGKILL to them and to all that they have
        started."""
        deadline = time.monotonic() + GRACE
        try:
            self.send(SIGTERM)
            for rank in self._ranks:
                rank.join(max(0.0, deadline - time.monotonic()))
        finally:
            self.kill()
            sessions = {rank.pid for rank in self._ranks}
            for rank in self._ranks:
                rank.join()
                rank.close()
            self._port.close()
            kill([process for process in descendants(self._server) if self._is_ours(process, sessions)])

    def _is_ours(self, process: psutil.Process, sessions: set[int]) -> bool:
        """Whether it is of this run; others may run beside it. A fork has the environment of the forkserver, but its rank's
        session."""
        import psutil

        with contextlib.suppress(psutil.Error, OSError):  # ended meanwhile
            return os.getsid(process.pid) in sessions or Launch.of(process.environ()).owner == self._owner
        return False


def _require_loopback() -> None:
    """Raise ConfigError where the ranks of this machine could not meet."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=2),
        ):
            pass
    except OSError as error:
        raise ConfigError(
            f"ranks meet at 127.0.0.1, which this machine does not reach ({error}): `ip link set lo up`"
        ) from None


def _fork(
    module: str, arguments: Sequence[str], environment: dict[str, str], *, log: Path | None, cold: bool = False
) -> BaseProcess:
    """Start `python -m MODULE ARGUMENTS` with `environment`, as a fork where that makes no difference."""
    task = (module, arguments, environment, os.getcwd(), log, cold)
    process = multiprocessing.get_context("forkserver").Process(target=_begin, args=task)
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")  # multiprocessing would import ours in every process
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
    return process


def _begin(
    module: str, arguments: Sequence[str], environment: dict[str, str], folder: str, log: Path | None, cold: bool
) -> None:
    """In the fork: become a process that was started with this environment in this folder, and run the module."""
    preload = sys.modules.get(PRELOAD)
    server = os.getppid() if preload is None else preload.server
    die_with_parent(server)
    os.setsid()  # Ctrl-C reaches hpc alone, which ends the ranks
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if log:
        log_to(log)
    reason = preload.refusal() if preload else "other code of this process has started its forkserver"
    cold = cold or not (preload and preload.is_done)
    os.environ.update(replace(Launch.of(environment), parent=server, cold="" if cold else reason).variables)
    if cold or reason:
        os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
    multiprocessing.set_start_method(None, force=True)  # of a data loader's workers: Python's default
    sys.path.insert(0, folder)  # as `python -m` has it
    importlib.invalidate_caches()
    sys.modules["numpy"].random.seed()  # Python's own does so by itself; torch's is the same in every process
    provenance.start = "warm"
    store = _open_store() if module == RANK and "RANK" in environment else None  # noqa: F841  (open until this process ends)
    sys.argv[1:] = arguments
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends its processes without


def _open_store() -> Any:
    """On rank 0 the store where the ranks meet, before any of them looks for it: each vain attempt costs half a
    second."""
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}  # it is there already
    if os.environ["RANK"] != "0":
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return sys.modules["torch.distributed"].TCPStore(address, port, is_master=True, wait_for_workers=False)
