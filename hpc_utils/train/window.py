"""The profiled window: a few steps that one of several profilers watches, on every rank the same ones."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from hpc_utils import profilers, workspace
from hpc_utils.config import PROFILE_STEPS, ConfigError
from hpc_utils.records.folder import PROFILE

from .ranges import Nvtx, Recorded, Speaker, Step
from .ranks import Ranks

T = TypeVar("T")

BEFORE = 2  # steps: by then the loader runs, and the order of the phases is known
PATIENCE = 30.0  # s for py-spy to begin, and to write


class Watcher(Protocol):
    """One profiler, from inside the rank that it watches.

    `version`: the profiler's; "" if not known. `speaker`: what hears of ranges, if anything.
    """

    version: str
    speaker: Speaker | None

    def arm(self, run: Path) -> None:
        """Do what takes time, before the run's first step. ConfigError: it cannot watch here."""

    def open(self) -> None:
        """Watch from now on."""

    def close(self) -> None:
        """Watch no more; write."""


class Unwatched:
    """No window: a loop that nobody watches."""

    facts: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()

    def arm(self, run: Path) -> None:
        pass

    def over(self, batches: Iterable[T], **where: int | None) -> Iterable[T]:
        return batches

    def lap(self, phase: str) -> None:
        pass

    def step(self) -> None:
        pass

    def close(self) -> None:
        pass


class Window:
    """Steps `BEFORE` + 1 and those after it, of this process's first, within one epoch.

    Args:
        length: steps; fewer where the epoch ends before. synchronize: waits for the device, so that the window holds
            the work of its steps and no other. pause: a context in which all ranks stand still and no time counts.

    Where the watcher cannot begin, the window is open all the same, and empty: at its end all ranks stand still, and one
    that did not would meet the others in no collective any more.

    Attributes:
        problems: what went wrong, in words; the run goes on.
    """

    def __init__(
        self,
        profile: str,
        watcher: Watcher,
        length: int,
        *,
        synchronize: Callable[[], None],
        pause: Callable[[], AbstractContextManager],
    ) -> None:
        self._watcher, self._length = watcher, length
        self._synchronize, self._pause = synchronize, pause
        self._step, self._seen, self._taken = Step(), 0, 0
        self._is_armed, self._is_due, self._is_open, self._is_watched = False, True, False, False
        self.problems: list[str] = []
        self.facts: dict[str, Any] = {"tool": profile, "version": watcher.version, "steps": 0}

    def arm(self, run: Path) -> None:
        """Get ready, once, before the clock starts."""
        if not self._is_armed:
            self._watcher.arm(run)
            self._is_armed = True

    def over(self, batches: Iterable[T], *, epoch: int, done: int, left: int | None) -> Iterator[T]:
        """Yield `batches` of `epoch`, `done` of whose steps lie behind and `left` (None: not known) ahead."""
        source, behind = iter(batches), done
        while True:
            if self._seen == BEFORE and self._is_due and done - behind != left:
                self._open(epoch, done + 1)
            if self._is_watched:
                self._step.begin(self._watcher.speaker or _Nobody())
            try:
                batch = next(source)
            except StopIteration:
                break
            yield batch
            done += 1
            self._seen += 1
            self._taken += self._is_open
            if self._is_open and (self._taken == self._length or done - behind == left):
                with self._pause():
                    self.close()
        if self._is_open:
            with self._pause():
                self.close()

    def lap(self, phase: str) -> None:
        """`phase` ends here."""
        self._step.lap(phase)

    def step(self) -> None:
        """A step ends here."""
        self._step.end()

    def close(self) -> None:
        """End it, if it is open: in order, or because the run has failed."""
        if not self._is_open:
            return
        self._is_open = False
        if not self._is_watched:
            return
        self._is_watched = False
        try:
            self._step.abandon()
            self._synchronize()
            self._watcher.close()
        except Exception as error:  # a full disk, a device that has failed: the run has its own words for those
            self.problems.append(f"no profile: {type(error).__name__}: {error}")
        self.facts |= {"steps": self._taken, "ended": time.time()}

    def _open(self, epoch: int, step: int) -> None:
        self._is_due, self._is_open = False, True
        self._synchronize()
        try:
            self._watcher.open()
        except Exception as error:
            self.problems.append(f"no profile: {type(error).__name__}: {error}")
            return
        self._is_watched = True
        self.facts |= {"epoch": epoch, "first_step": step, "begun": time.time()}


class _Nobody:
    """py-spy hears of no ranges."""

    def push(self, name: str) -> None:
        pass

    def pop(self) -> None:
        pass


class Trace:
    """torch.profiler: operators, and on a GPU its kernels, as profile/rank<N>.trace.json.gz.

    No shapes, stacks or memory: each makes the steps themselves longer.
    """

    version = torch.__version__

    def __init__(self, ranks: Ranks) -> None:
        activity = torch.profiler.ProfilerActivity
        seen = [activity.CPU, *([activity.CUDA] if ranks.device.type == "cuda" else [])]
        self._profiler = torch.profiler.profile(activities=seen)
        self._name = f"rank{ranks.rank}.trace.json.gz"
        self.speaker = Recorded()

    def arm(self, run: Path) -> None:
        self._folder = _folder(run)
        self._profiler.prepare_trace()  # CUPTI takes its time

    def open(self) -> None:
        self._profiler.start_trace()

    def close(self) -> None:
        self._profiler.stop_trace()
        beside = self._folder / f".{self._name}"
        self._profiler.export_chrome_trace(str(beside))
        beside.replace(self._folder / self._name)


class Nsight:
    """nsys or ncu, which has started this process and waits for the window.

    Raises:
        ConfigError: it has not, or waits for a window on another device.
    """

    def __init__(self, profile: str, ranks: Ranks) -> None:
        started = workspace.launch().profiler
        program, waits = (started.tool, started.window) if started else ("", "")
        gpu = ranks.device.type == "cuda"
        if program != profile:
            raise ConfigError(_by_hand(profile, gpu=gpu))
        if waits != ("cuda" if gpu else "nvtx"):
            raise ConfigError(
                f"profile={profile!r}: {profile} waits for a window on {'a GPU' if waits == 'cuda' else 'the CPU'}, but "
                f"this rank trains on {ranks.device}: say device=cuda or device=cpu"
            )
        self._gpu = gpu
        self.version = profilers.version(profile)
        self.speaker = Nvtx(self.version)

    def arm(self, run: Path) -> None:
        pass

    def open(self) -> None:
        torch.cuda.profiler.start() if self._gpu else self.speaker.push(profilers.WINDOW)

    def close(self) -> None:
        torch.cuda.profiler.stop() if self._gpu else self.speaker.pop()


class Spy:
    """py-spy: the stacks of all threads, a hundred times a second, as profile/rank<N>.speedscope.json."""

    speaker = None

    def __init__(self, ranks: Ranks) -> None:
        profilers.require("cpu")
        self.version = profilers.version("cpu")
        self._rank = ranks.rank

    def arm(self, run: Path) -> None:
        self._folder = _folder(run)
        self._log = run / "logs" / f"profiler{self._rank}.log"
        self._log.parent.mkdir(exist_ok=True)
        _let_be_traced()
        try:
            subprocess.run(
                [profilers.program("cpu"), "dump", "--pid", str(os.getpid())],
                capture_output=True, text=True, check=True, timeout=PATIENCE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ConfigError(f"profile='cpu': py-spy did not answer within {PATIENCE:g} s") from None
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or ["it said nothing"]
            raise ConfigError(
                f"profile='cpu': py-spy may not look into this process: {said[0]}. The system forbids ptrace "
                f"(/proc/sys/kernel/yama/ptrace_scope is 2 or 3, or a container without SYS_PTRACE): use profile='torch'"
            ) from None

    def open(self) -> None:
        self._partial = self._folder / f".rank{self._rank}.speedscope.json"
        command = profilers.spying(os.getpid(), self._partial)
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        end = time.monotonic() + PATIENCE
        while b"Sampling" not in self._log.read_bytes():  # until then it reads where Python keeps its threads
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                raise RuntimeError(f"py-spy did not begin: {self._log.read_text(errors='replace').strip()}")
            time.sleep(0.01)

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not self._partial.exists():
            raise RuntimeError(f"py-spy wrote nothing: {self._log.read_text(errors='replace').strip()}")
        self._partial.replace(self._folder / f"rank{self._rank}.speedscope.json")


def window(
    parameters: Mapping[str, Any], ranks: Ranks, pause: Callable[[], AbstractContextManager]
) -> Window | Unwatched:
    """What `parameters` ask for: `profile`, and `profile_steps`.

    Raises:
        ConfigError: it cannot be had here; says why and what to do.
    """
    profile = parameters.get("profile")
    if profile is None:
        return Unwatched()
    if profile not in PROFILE_STEPS:
        raise ConfigError(f"profile={profile!r}: expected one of {', '.join(PROFILE_STEPS)}")
    watcher = _watcher(profile, ranks)
    length = int(parameters.get("profile_steps") or PROFILE_STEPS[profile])
    return Window(profile, watcher, length, synchronize=ranks.synchronize, pause=pause)


def _watcher(profile: str, ranks: Ranks) -> Watcher:
    if profile == "torch":
        return Trace(ranks)
    if profile == "cpu":
        return Spy(ranks)
    if ranks.device_kind == "rocm":
        raise ConfigError(f"profile={profile!r} watches NVIDIA's GPUs, and this one is AMD's: use profile='torch'")
    if profile == "ncu" and ranks.world_size > 1:
        raise ConfigError(profilers.ONE_RANK.format(ranks=ranks.world_size))
    if profile == "ncu" and ranks.device.type != "cuda":
        raise ConfigError(
            "profile='ncu' counts on a GPU, and torch sees none here: use profile='cpu', 'torch' or 'nsys'"
        )
    return Nsight(profile, ranks)


def _by_hand(profile: str, *, gpu: bool) -> str:
    """How to start a rank under `profile` where `hpc run` does not."""
    settings = [f"{name}={value}" for name, value in profilers.variables(profile).items()]
    own = workspace.Launch(profiler=workspace.Profiler(profile, "cuda" if gpu else "nvtx"))
    settings += [shlex.quote(f"{name}={value}") for name, value in own.variables.items()]
    words = " ".join([*settings, f"{profile} ..."])
    return (
        f"profile={profile!r}: {profile} must have started this rank, which `hpc run` sees to. By hand it stands between "
        f"torchrun and Python, `torchrun --no-python ./rank.sh`, whose last line is: exec env {words} python -m "
        f'hpc_utils.train "$@" (jobs/README.md has it in full)'
    )


def _folder(run: Path) -> Path:
    folder = run / PROFILE
    folder.mkdir(exist_ok=True)
    return folder


def _let_be_traced() -> None:
    """Linux with Yama: a process may look into those that it started only, unless they allow it (prctl(2))."""
    if sys.platform == "linux":
        pr_set_ptracer, any_process = 0x59616D61, ctypes.c_ulong(-1)
        ctypes.CDLL(None).prctl(pr_set_ptracer, any_process, 0, 0, 0)
