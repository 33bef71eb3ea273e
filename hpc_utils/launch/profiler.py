"""A rank that nsys or ncu has to start, because they watch from outside.

    torchrun ─▶ rank (this) ─▶ nsys ─▶ rank that trains

The process that torchrun knows stays in front: it hands signals on to the one that trains, which nsys would not, and ends
with its exit code or by its signal. If it is killed, the one that trains ends too, and nsys after that, in order: an nsys
that is killed may leave the lock that all of a node's share in /dev/shm, and then none starts there any more. What nsys
prints is in `logs/profiler<rank>.log`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_utils import provenance, signals
from hpc_utils.config import ConfigError
from hpc_utils.profilers import tools
from hpc_utils.records.folder import PROFILE

POLL = 0.1  # s
PATIENCE = 20.0  # s that a profiler gets to start the rank, and its own processes to end
LOCKED = "Agent launcher failed"


def is_wanted(config: Mapping[str, Any]) -> bool:
    """Whether a rank of such a run has to be started by a profiler, and was not yet."""
    return config.get("profile") in tools.STARTING and tools.UNDER not in os.environ


def run(config: Mapping[str, Any], python: Sequence[str], folder: Path, rank: int) -> int:
    """Run `python` (its arguments) under the profiler that `config` names; its exit code, negative where a signal ended it.

    Raises:
        ConfigError: that profiler is not here.
    """
    profile, gpu = config["profile"], _on_gpu(config)
    (folder / PROFILE).mkdir(exist_ok=True)
    report = tools.literal(folder / PROFILE / f"rank{rank}")
    command = [*tools.command(profile, report, gpu=gpu), sys.executable, *python]
    mask = os.umask(0o077)
    os.umask(mask)
    mark = f"{profile}:{'cuda' if gpu else 'nvtx'}:{os.getpid()}:{mask}"
    # Of its own: in /tmp the profilers would keep folders that belong to whoever profiled on this node first. Short,
    # because nsys makes sockets there, whose paths have at most some hundred letters.
    usual = tempfile.gettempdir()
    scratch = tempfile.mkdtemp(prefix="hpc-", dir=usual if len(usual) < 40 else "/tmp")
    ours = {tools.UNDER: mark, "TMPDIR": scratch} | tools.variables(profile)
    log = folder / "logs" / f"profiler{rank}.log"
    try:
        with signals.listen() as heard:
            with _one_at_a_time():
                with log.open("ab") as said, signals.waiting():
                    process = subprocess.Popen(
                        command,
                        env=os.environ | ours,
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        start_new_session=True,  # torchrun tells a rank's whole group; nsys would end, and the rank with it
                    )
                _begun(process, mark)
            code = _wait(process, mark, heard)
            _settled(mark)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for left in (folder / PROFILE).glob(f"rank{rank}.*"):
            left.chmod(0o666 & ~mask)
    if code and not (folder / "logs" / f"rank{rank}.log").exists():
        words = last_words(log, 60)
        if LOCKED in words:
            words += (
                " (an nsys that was killed on this node has left its lock: remove /dev/shm/NSys-* while none runs)"
            )
        raise ConfigError(f"profile={profile!r}: {profile} did not start the rank: {words}")
    return 128 - code if code > 128 else code  # as nsys and shells tell of a signal that has ended it


def settle() -> None:
    """Have this process, which a profiler has started, be as the one in front of it, and end with that.

    Not by the kernel, as `die_with_parent`: it would take the end of the profiler's thread that started us for its end.
    """
    _, _, front, mask = os.environ[tools.UNDER].split(":")
    os.umask(int(mask))  # nsys starts us with one that lets everybody write

    def watch(front: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            try:
                select.select([os.pidfd_open(front)], [], [])
            except ProcessLookupError:
                raise
            except (AttributeError, OSError):  # a kernel before 5.3
                while True:
                    os.kill(front, 0)
                    time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, args=[int(front)], daemon=True).start()


def last_words(log: Path, most: int) -> str:
    """What a profiler said at the end, on one line; "" if there is nothing."""
    try:
        return " ".join(log.read_text(errors="replace").split()[-most:])
    except OSError:
        return ""


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Of a node's ranks one starts its profiler, then the next: two at once may trip over what they set up in /dev/shm."""
    path = Path(tempfile.gettempdir()) / f"hpc-profiler-{os.getuid()}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _begun(process: subprocess.Popen, mark: str) -> None:
    """Wait until the rank runs under its profiler, or that has failed."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and _trains(mark) is None and time.monotonic() < end:
        time.sleep(POLL)


def _wait(process: subprocess.Popen, mark: str, heard: Sequence[signal.Signals]) -> int:
    """Until it ends; meanwhile hand on what is heard."""
    told = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(POLL)
        while told < len(heard) and (rank := _trains(mark)):  # it may not have started yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, heard[told])
            told += 1


def _settled(mark: str) -> None:
    """Wait for the profiler's helpers: whoever ends what a run has left behind would kill them."""
    end = time.monotonic() + PATIENCE
    while any(True for _ in _marked(mark)) and time.monotonic() < end:
        time.sleep(POLL)


def _trains(mark: str) -> int | None:
    """The process that trains under that profiler: the oldest Python that has its mark."""
    python = os.path.realpath(sys.executable)
    return min(((begun, pid) for begun, pid, exe in _marked(mark) if exe == python), default=(0, None))[1]


def _marked(mark: str) -> Iterator[tuple[float, int, str]]:
    """(when it was started, number, program) of what runs under that profiler, itself included."""
    import psutil

    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or somebody else's
            # Not `process_iter`, which remembers the program: nsys' launcher has the rank's number until it becomes Python.
            process = psutil.Process(pid)
            if process.environ().get(tools.UNDER) == mark:
                yield process.create_time(), process.pid, process.exe()


def _on_gpu(config: Mapping[str, Any]) -> bool:
    device = config.get("device")
    return device == "cuda" or (device == "auto" and bool(provenance.hardware().gpus))
