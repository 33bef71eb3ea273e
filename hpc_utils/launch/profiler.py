"""A rank that nsys or ncu has to start, because they watch from outside.

    torchrun ─▶ rank (this) ─▶ nsys ─▶ rank that trains

The process that torchrun knows stays in front: it hands signals on to the one that trains, which nsys would not, ends with
its exit code or by its signal, and takes both with it if it is killed. What nsys prints is in `logs/profiler<rank>.log`.
"""

from __future__ import annotations

import contextlib
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

from hpc_utils import provenance
from hpc_utils.config import ConfigError
from hpc_utils.profilers import tools
from hpc_utils.records.folder import PROFILE

from .lifeline import die_with_parent

POLL = 0.1  # s
HEARD = (signal.SIGUSR1, signal.SIGTERM)


def is_wanted(config: Mapping[str, Any]) -> bool:
    """Whether a rank of such a run has to be started by a profiler, and was not yet."""
    return config.get("profile") in tools.STARTING and tools.UNDER not in os.environ


def run(config: Mapping[str, Any], python: Sequence[str], folder: Path, rank: int) -> int:
    """Run `python` (its arguments) under the profiler that `config` names; its exit code.

    Raises:
        ConfigError: that profiler is not here.
    """
    profile, gpu = config["profile"], _on_gpu(config)
    (folder / PROFILE).mkdir(exist_ok=True)
    report = tools.literal(folder / PROFILE / f"rank{rank}")
    command = [*tools.command(profile, report, gpu=gpu), sys.executable, *python]
    mark = f"{profile}:{'cuda' if gpu else 'nvtx'}:{os.getpid()}"
    # Of its own: in /tmp the profilers would keep folders that belong to whoever profiled on this node first.
    scratch = tempfile.mkdtemp(prefix="hpc-profile-")
    ours = {tools.UNDER: mark, "TMPDIR": scratch} | tools.variables(profile)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, {*before, signal.SIGUSR1})  # which waits until the rank listens
        die_with_parent()

    log = folder / "logs" / f"profiler{rank}.log"
    try:
        with log.open("ab") as said:
            process = subprocess.Popen(
                command, env=os.environ | ours, stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=prepare
            )
        code = _wait(process, mark)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if code and not (folder / "logs" / f"rank{rank}.log").exists():
        raise ConfigError(f"profile={profile!r}: {profile} did not start the rank: {_words(log)}")
    return code


def die_with_front() -> None:
    """Have this process, which a profiler has started, end with the one in front of it.

    Not by the kernel, as `die_with_parent`: it would take the end of the profiler's thread that started us for its end.
    """

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

    threading.Thread(target=watch, args=[int(os.environ[tools.UNDER].split(":")[2])], daemon=True).start()


def _wait(process: subprocess.Popen, mark: str) -> int:
    """Until it ends; meanwhile hand signals on."""
    waiting: list[signal.Signals] = []
    while process.poll() is None:
        if told := signal.sigtimedwait(HEARD, POLL):
            waiting.append(signal.Signals(told.si_signo))
        while waiting and (rank := _trains(mark)):  # it may not have started yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, waiting.pop(0))
    return process.returncode


def _trains(mark: str) -> int | None:
    """The process that trains under that profiler: the oldest Python that has its mark."""
    found = min(_marked(mark), default=None)
    return found and found[1]


def _marked(mark: str) -> Iterator[tuple[float, int]]:
    import psutil

    python = os.path.realpath(sys.executable)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or somebody else's
            if process.exe() == python and process.environ().get(tools.UNDER) == mark:
                yield process.create_time(), process.pid


def _on_gpu(config: Mapping[str, Any]) -> bool:
    device = config.get("device")
    return device == "cuda" or (device == "auto" and bool(provenance.hardware()["gpus"]))


def _words(log: Path) -> str:
    return " ".join(log.read_text(errors="replace").split()[-60:])
