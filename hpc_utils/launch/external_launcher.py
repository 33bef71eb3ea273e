"""The launcher of a run's ranks: `srun torchrun`, mpiexec, or any command that starts `launch.rank` on every rank.

Signals do not reach the ranks through it: torchrun and mpiexec would end at SIGUSR1. They are written to
`logs/signal` in the run's folder, where a rank on each node looks for them; ranks that start later find them there
too.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGTERM, Signals

from hpc_utils import signals
from hpc_utils.records import atomic

from .process_tree import end_tree, start_bound

SIGNAL = "signal"
FAILURE = re.compile(r"rank +: (\d+) \(local_rank.*\n *exitcode +: (-?\d+) ")  # in torchrun's list
POLL = 0.5  # s between a rank's looks for a signal


class ExternalLauncher:
    """A process that starts the ranks, on this machine or on others."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._folder = folder
        with (folder / "logs" / "launcher.log").open("wb") as log, signals.waiting():
            self._process = start_bound(command, environment, stdout=log, stderr=log)

    def poll(self, seconds: float) -> int | None:
        """Wait so long for its end. None while it runs, then its exit code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode

    @property
    def failures(self) -> list[tuple[int, int]]:
        """(rank, exit code) of the ranks that failed, as torchrun lists them at its end, the first one first."""
        if self._process.returncode is None:
            return []
        log = (self._folder / "logs" / "launcher.log").read_text(errors="replace")
        other_ranks, _, first = log.partition("Root Cause (first observed failure):")
        return [(int(rank), int(code)) for part in (first, other_ranks) for rank, code in FAILURE.findall(part)]

    def send(self, number: Signals) -> bool:
        """Pass a signal on to the ranks; before there are any, SIGTERM ends the launcher. False: the disk is full."""
        logs = self._folder / "logs"
        if number == SIGTERM and not any(logs.glob("rank*.log")):
            self._process.terminate()
        with contextlib.suppress(OSError):
            atomic.write_text(logs / SIGNAL, str(int(number)))
            return True
        return False

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """SIGTERM to it; after some seconds, or a second Ctrl-C, SIGKILL to it and all processes of the run here."""
        end_tree(self._process, str(self._folder))


def receive_signals(folder: Path) -> None:
    """In a rank, the first one of its node: send this process the signals that the launcher's `send` has written."""

    def watch() -> None:
        received = ""
        while True:
            try:
                written = (folder / "logs" / SIGNAL).read_text()
            except OSError:
                written = ""
            if written != received:
                received = written
                os.kill(os.getpid(), int(written))
            time.sleep(POLL)

    place = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or "0"
    if place == "0":  # one look a node: the ranks agree on what any of them has received
        threading.Thread(target=watch, daemon=True).start()
