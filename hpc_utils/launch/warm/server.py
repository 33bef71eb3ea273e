"""The warm process: imports what ranks and torchrun need, then forks one of them for each client.

    python -m hpc_utils.launch.warm.server LISTENER          (a listening socket, inherited)

It has one thread, no GPU and no state that a run changes: whatever a run does happens in its fork.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.util
import inspect
import io
import json
import os
import re
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import psutil

from hpc_utils import provenance
from hpc_utils.launch.process_tree import die_with_parent
from hpc_utils.workspace import Launch

from .client import MOST, PASSED_ON, PMI, SPACES, end, is_own

# torch._dynamo: DDP imports it. Packages that only rank 0's cells need are imported here too, instead of by a rank.
MODULES = (
    "torch", "torch._dynamo", "torch.distributed.run", "torch.distributed.optim", "torch.distributed.fsdp",
    "hpc_utils.train", "hpc_utils.launch.rank_profiler", "papermill", "pandas", "hpc_utils.publish.plots.runs",
)  # fmt: skip
# Variables that the interpreter and libraries read when they are loaded: a fork cannot have others.
READ_AT_START = re.compile(
    r"LD_|LANG$|LC_|MALLOC_|GLIBC_|PYTHON(?!UNBUFFERED$)|(OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR)_"
    r"|TORCH_(LOGS|CPP_|SHOW_)|TORCH(DYNAMO|INDUCTOR)_|PYTORCH_|MPL(?!BACKEND$)"
)
PATIENCE = 10.0  # s for a client to send its request


class Server:
    """Answers clients one after another, in one thread, so that forking is safe."""

    def __init__(self, listener: socket.socket) -> None:
        self._forks: dict[int, socket.socket] = {}  # pid: the connection of its client
        self.broken = ""  # what could not be imported
        # Before anything is imported: importing torch._dynamo adds variables.
        self._state, self._environment = _state_of_code(), dict(os.environ)
        self._ended, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for readable in (listener, self._ended):
            self._selector.register(readable, selectors.EVENT_READ)
        self._listener = listener

    def serve(self) -> dict[str, Any]:
        """Fork for every client; returns only in a fork, with its request."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._reap()
                elif key.fileobj is self._listener:
                    if request := self._answer(self._listener.accept()[0]):
                        return request
                elif key.fileobj.fileno() >= 0:  # else closed just now
                    (pid,) = (pid for pid, connection in self._forks.items() if connection is key.fileobj)
                    try:
                        number = int(key.fileobj.recv(64) or signal.SIGKILL)
                    except OSError:
                        number = signal.SIGKILL
                    if number == signal.SIGKILL:  # the client has ended
                        self._selector.unregister(key.fileobj)
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)

    def _answer(self, connection: socket.socket) -> dict[str, Any] | None:
        """Fork, if that is safe; returns the request in the fork, None in the server."""
        server, pid, streams = os.getpid(), None, []
        try:
            connection.settimeout(PATIENCE)
            request, streams = _received(connection)
            if why := self._refusal(request):
                connection.send(json.dumps([0, why]).encode())
            else:
                pid = os.fork()
        except (OSError, ValueError):
            pass
        if pid == 0:
            connection.close()
            self._leave()
            _become(request, streams, server)
            return request
        for stream in streams:
            os.close(stream)
        if pid is None:
            connection.close()
            return None
        self._forks[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ)
        with suppress(OSError):  # if the client is gone, that is read next
            connection.send(json.dumps([pid, ""]).encode())
        return None

    def _refusal(self, request: dict[str, Any]) -> str:
        """Why a fork would differ from a new process; "" if it would not."""
        if self.broken:
            return self.broken
        import torch

        if threads := _threads():
            return f"the imports started threads: {', '.join(threads)} (OPENBLAS_NUM_THREADS other than 1? a sitecustomize?)"
        if torch.version.hip:
            return "HIP cannot be used after a fork"
        if torch.cuda.is_initialized() or "mpi4py.MPI" in sys.modules:
            return "CUDA or MPI was initialised when Python started, and cannot be used after a fork"
        asked = request["environment"]
        for name in sorted({*asked, *self._environment}):
            if READ_AT_START.match(name) and asked.get(name) != self._environment.get(name):
                return f"{name} is {asked.get(name)!r}, but the warm process started with {self._environment.get(name)!r}"
        if _state_of_code() != self._state:
            return "the code of hpc_utils changed since the warm process started"
        return ""

    def _reap(self) -> None:
        """Report the end of each fork to its client; kill orphans that the forks left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if (connection := self._forks.pop(pid, None)) is None:  # an orphan: this process is the forks' subreaper
                continue
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            for orphan in psutil.Process().children(recursive=True) if not self._forks else ():
                with suppress(psutil.Error):
                    orphan.kill()
            with suppress(KeyError):
                self._selector.unregister(connection)
            with suppress(OSError):
                connection.send(b"%d" % os.waitstatus_to_exitcode(status))
            connection.close()

    def _leave(self) -> None:
        """In a fork: close the server's files."""
        signal.set_wakeup_fd(-1)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._wakeup.close()
        self._selector.close()


def _threads() -> list[str]:
    """The names of this process's threads but the main one, of which fork would copy none."""
    tasks = Path("/proc/self/task")
    return [(tasks / one / "comm").read_text().strip() for one in os.listdir(tasks) if int(one) != os.getpid()]


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """(request, its three streams, an MPI rank's connection to mpiexec and, of a client on another node of this machine, its
    namespaces).

    Raises:
        ValueError, OSError: the client has ended, or is another user's.
    """
    if not is_own(connection):
        raise ValueError
    message, streams, *_ = socket.recv_fds(connection, MOST, 4 + len(SPACES))
    return json.loads(message), streams


def _become(request: dict[str, Any], streams: list[int], server: int) -> None:
    """In a fork: restore the state of a process that the client has started."""
    os.setsid()
    for number, stream in enumerate(streams[:3]):
        os.dup2(stream, number)
        os.close(stream)
    first_space = 3 + request["pmi"]
    for connection in streams[3:first_space]:
        request["environment"][PMI] = str(connection)
    here = {os.stat(f"/proc/self/ns/{kind}").st_ino for kind in SPACES}
    for space in streams[first_space:]:
        libc = ctypes.CDLL(None, use_errno=True)
        if os.fstat(space).st_ino not in here and libc.setns(space, 0):  # it needs root even where nothing changes
            raise OSError(ctypes.get_errno(), "setns")
        os.close(space)
    os.sched_setaffinity(0, request["processors"])
    for number, name in ((1, "stdout"), (2, "stderr")):  # unbuffered: the output of a killed process is not lost
        former = getattr(sys, name)
        raw = io.FileIO(number, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, former.encoding, former.errors, write_through=True))
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ.update(replace(Launch.of(os.environ), parent=server).variables)
    die_with_parent(server)
    sys.path[0] = os.getcwd()  # as `python -m` has it
    importlib.invalidate_caches()
    _, module, *rest = request["arguments"]
    sys.argv[:] = [module, *rest]
    pr_set_name = 15  # for `top`: rank, torchrun
    ctypes.CDLL(None).prctl(pr_set_name, module.rpartition(".")[2].encode())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules["numpy"].random.seed()  # Python's own does so by itself; torch's is the same in every process
    provenance.start = "warm"
    signal.pthread_sigmask(signal.SIG_SETMASK, request["mask"])


def _run(module: str) -> NoReturn:
    """Run it as `python -m` does, and end without freeing every module's objects, which would take longer than most runs."""
    spec = importlib.util.find_spec(module)
    if spec.submodule_search_locations:  # a package
        spec = importlib.util.find_spec(f"{module}.__main__")
    # Not by runpy: torchrun inspects its stack, and searches all modules for each of runpy's frames.
    main = importlib.util.module_from_spec(spec)
    main.__name__ = "__main__"
    sys.modules["__main__"] = main
    status: object = 0
    try:
        exec(spec.loader.get_code(spec.name), vars(main))
    except SystemExit as asked:
        status = 0 if asked.code is None else asked.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()  # these two as multiprocessing does in its forks
    atexit._run_exitfuncs()
    end(status)


def _state_of_code() -> set[tuple[Path, int]]:
    """Changes whenever a module of this package does."""
    return {(path, path.stat().st_mtime_ns) for path in Path(provenance.__file__).parents[1].rglob("*.py")}


if __name__ == "__main__":
    die_with_parent(Launch.of(os.environ).parent)
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # `_become` unblocks them at its end
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)
    server = Server(socket.socket(fileno=int(sys.argv[1])))
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank
    gc.disable()  # collecting what the imports make, and keep, is a quarter of their time
    try:
        for name in MODULES:
            importlib.import_module(name)
        sys.modules["hpc_utils.train.vision"].torchvision_models()
        provenance.measuring_digest()  # parses the code, which `source_code.parsed` keeps for the ranks
    except Exception as error:
        server.broken = f"the warm process could not import {name}: {error}"
    inspect.stack()  # torchrun calls it; the first call looks up every module's file
    gc.freeze()  # or a collection in a fork would touch, and so copy, every page of it
    gc.enable()
    _run(server.serve()["arguments"][1])
