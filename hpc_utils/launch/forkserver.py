"""The ranks of a run on this machine: forks of Python's forkserver, which has imported what they need.

    hpc ──▶ forkserver ──▶ rank 0, rank 1, ...

The forkserver lives as long as this process, so all runs of a study share its imports. A rank that cannot be forked (a
profiler, `--cold`, see `preload.refusal`) becomes `python -m hpc_utils.launch.rank` in its own process.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from types import ModuleType
from typing import Any, NoReturn

from hpc_utils import provenance, signals, workspace
from hpc_utils.workspace import Launch

from .process_tree import GRACE, kill

PRELOAD = "hpc_utils.launch.preload"
RANK = "hpc_utils.launch.rank"


def start(*, cold: bool = False) -> int:
    """Start the forkserver unless it runs; its process id. Its imports go on while this process prepares a run.

    Args:
        cold: without imports, for ranks that are new processes.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload([PRELOAD])
    record = Launch(owner=workspace.launch().owner, parent=os.getpid(), cold="requested" if cold else "")
    with workspace.exporting(workspace.child_environment() | record.variables), signals.waiting():
        forkserver.ensure_running()
    return forkserver._forkserver._forkserver_pid


class LocalRanks:
    """The ranks of one run, started on this machine."""

    def __init__(
        self, arguments: Sequence[str], ranks: int, environment: Mapping[str, str], log: Path, *, cold: bool
    ) -> None:
        """
        Args:
            arguments: of `launch.rank`. ranks: how many; 0 is one process without a process group. log: for output before a
                rank has its own log. cold: the ranks are new processes instead of forks.
        """
        self._server = start(cold=cold)
        self._failed: dict[int, int] = {}
        # Bound for as long as the run: the kernel gives this port to nobody else, and rank 0 may listen there.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._port.getsockname()[1])}
        world = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        process = multiprocessing.get_context("forkserver").Process
        self._ranks = []
        for rank in range(max(ranks, 1)):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank)} | world | address if ranks else {}
            self._ranks.append(
                process(target=_begin, args=(arguments, {**environment, **place}, os.getcwd(), str(log), cold))
            )
        with _without_main():
            for rank in self._ranks:
                rank.start()

    def poll(self) -> int | None:
        """None while a rank runs; then 0, or the exit code of the first one that failed (negative after a signal).

        When one has failed, the others get SIGTERM.
        """
        failed_before = bool(self._failed)
        codes = {number: rank.exitcode for number, rank in enumerate(self._ranks)}
        self._failed |= {number: code for number, code in codes.items() if code and number not in self._failed}
        if self._failed and not failed_before:
            self.send(SIGTERM)
        if None in codes.values():
            return None
        return next(iter(self._failed.values()), 0)

    @property
    def failures(self) -> list[tuple[int, int]]:
        """(rank, exit code) of those that failed, the first one first."""
        return list(self._failed.items())

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
        """SIGTERM to the ranks; after some seconds, or a second Ctrl-C, SIGKILL to them and to all that they have started."""
        deadline = time.monotonic() + GRACE
        try:
            self.send(SIGTERM)
            for rank in self._ranks:
                rank.join(max(0.0, deadline - time.monotonic()))
        finally:
            self.kill()
            for rank in self._ranks:
                rank.join()
                rank.close()
            self._port.close()
            kill(_descendants(self._server))


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide this process's main module in the block: multiprocessing would import it in every rank."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _descendants(pid: int) -> list:
    import psutil

    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _begin(arguments: Sequence[str], environment: Mapping[str, str], folder: str, log: str, cold: bool) -> NoReturn:
    """In the fork: become a process that was started with this environment, and run the rank."""
    os.setsid()  # Ctrl-C reaches hpc alone, which ends the ranks
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    _redirect(log)
    preload = sys.modules[PRELOAD]
    reason = "" if cold else preload.refusal()
    os.environ.update(replace(Launch.of(environment), parent=preload.server, cold=reason).variables)
    if cold or reason:
        os.execv(sys.executable, [sys.executable, "-m", RANK, *arguments])
    multiprocessing.set_start_method(None, force=True)  # of a data loader's workers: Python's default
    sys.path.insert(0, folder)  # as `python -m` has it
    importlib.invalidate_caches()
    sys.modules["numpy"].random.seed()  # Python's own does so by itself; torch's is the same in every process
    provenance.start = "warm"
    store = _open_store() if "RANK" in environment else None  # noqa: F841  (open until this process ends)
    sys.modules[RANK].main(*map(Path, arguments))


def _open_store() -> Any:
    """On rank 0 the store where the ranks meet, before any of them looks for it: each vain attempt costs half a second."""
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}  # it is there already
    if os.environ["RANK"] != "0":
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return sys.modules["torch.distributed"].TCPStore(address, port, is_master=True, wait_for_workers=False)


def _redirect(log: str) -> None:
    """Send output to `log`, unbuffered: that of a process that is killed is not lost."""
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(stream, number)
        raw = io.FileIO(number, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True))
    os.close(stream)
