"""The profilers as the profiled rank controls them: start, stop and ranges."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from hpc_utils import profilers, workspace
from hpc_utils.config import PROFILE_STEPS, ConfigError
from hpc_utils.records.folder import PROFILE

from .ranks import Ranks

PATIENCE = 30.0  # s for py-spy to start, and to write its file


class Profiler:
    """Base class of the profilers. `version` is the profiler's version, "" if unknown."""

    version = ""

    def arm(self, run: Path) -> None:
        """Do the slow preparation before the first step."""
        self._folder = run / PROFILE
        self._folder.mkdir(exist_ok=True)

    def start(self) -> None:
        """Start profiling."""

    def stop(self) -> None:
        """Stop profiling and write the profile."""

    def push(self, name: str) -> None:
        """Start a nested range."""

    def pop(self) -> None:
        """End the innermost range."""


class TorchProfiler(Profiler):
    """torch.profiler: operators and GPU kernels, as profile/rank<N>.trace.json.gz.

    Shapes, stacks and memory are off, because each slows the steps down.
    """

    version = torch.__version__

    def __init__(self, ranks: Ranks) -> None:
        activity = torch.profiler.ProfilerActivity
        activities = [activity.CPU, *([activity.CUDA] if ranks.device.type == "cuda" else [])]
        self._profiler = torch.profiler.profile(activities=activities)
        self._name = f"rank{ranks.rank}.trace.json.gz"
        self._open: list[AbstractContextManager] = []

    def arm(self, run: Path) -> None:
        super().arm(run)
        self._profiler.prepare_trace()  # starting CUPTI is slow

    def start(self) -> None:
        self._profiler.start_trace()

    def stop(self) -> None:
        self._profiler.stop_trace()
        temporary = self._folder / f".{self._name}"
        self._profiler.export_chrome_trace(str(temporary))
        temporary.replace(self._folder / self._name)

    def push(self, name: str) -> None:
        self._open.append(torch.profiler.record_function(name))
        self._open[-1].__enter__()

    def pop(self) -> None:
        self._open.pop().__exit__(None, None, None)


class Nsight(Profiler):
    """nsys or ncu, which started this process and waits for the window.

    NVTX ranges come from torch if it is built with CUDA, else from the package nvtx.

    Raises:
        ConfigError: the profiler did not start this process, or waits on another device.
    """

    def __init__(self, profile: str, ranks: Ranks) -> None:
        started_by = workspace.launch().profiler
        self._gpu = ranks.device.type == "cuda"
        window = "cuda" if self._gpu else "nvtx"
        if started_by is None or (started_by.tool, started_by.window) != (profile, window):
            raise ConfigError(
                f"profile={profile!r}: {profile} must start this rank, with a {window} window for {ranks.device}: use "
                f"`hpc run` and -p device={ranks.device.type} (by hand: jobs/README.md)"
            )
        self.version = profilers.version(profile)
        if torch.backends.cuda.is_built():
            self.push, self.pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
        else:
            import nvtx

            self.push, self.pop = nvtx.push_range, nvtx.pop_range

    def start(self) -> None:
        torch.cuda.profiler.start() if self._gpu else self.push(profilers.WINDOW)

    def stop(self) -> None:
        torch.cuda.profiler.stop() if self._gpu else self.pop()


class PySpy(Profiler):
    """py-spy: stacks of all threads, a hundred times a second, as profile/rank<N>.speedscope.json. No ranges."""

    def __init__(self, ranks: Ranks) -> None:
        self.version = profilers.version("cpu")
        self._rank = ranks.rank

    def arm(self, run: Path) -> None:
        super().arm(run)
        self._log = run / "logs" / f"profiler{self._rank}.log"
        self._log.parent.mkdir(exist_ok=True)
        if sys.platform == "linux":  # under Yama, a process may otherwise trace only its children (prctl(2))
            pr_set_ptracer = 0x59616D61
            any_process = ctypes.c_ulong(-1)
            ctypes.CDLL(None).prctl(pr_set_ptracer, any_process, 0, 0, 0)

    def start(self) -> None:
        self._partial = self._folder / f".rank{self._rank}.speedscope.json"
        command = profilers.spying(os.getpid(), self._partial)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while b"Sampling" not in self._log.read_bytes():  # py-spy first searches Python's thread structures
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                raise RuntimeError(f"py-spy did not start: {self._log.read_text(errors='replace').strip()}")
            time.sleep(0.01)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
        self._partial.replace(self._folder / f"rank{self._rank}.speedscope.json")


def profiler(profile: str, ranks: Ranks) -> Profiler:
    """Create the profiler named `profile`. Raises ConfigError if it is unknown, or not available on this rank."""
    if profile not in PROFILE_STEPS:
        raise ConfigError(f"profile={profile!r}: expected one of {', '.join(PROFILE_STEPS)}")
    if profile == "torch":
        return TorchProfiler(ranks)
    if profile == "cpu":
        return PySpy(ranks)
    if profile == "ncu" and (ranks.world_size > 1 or ranks.device.type != "cuda"):
        raise ConfigError("profile='ncu' takes one rank on a GPU: use profile='nsys', 'torch' or 'cpu'")
    return Nsight(profile, ranks)
