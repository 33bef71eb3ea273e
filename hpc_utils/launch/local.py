"""Run a notebook on every rank, or in one process without a process group: on this machine, or by a launcher such as
srun.

`run` takes a request (`launch.request`) through its life: wait for the cores, claim its folder, start the ranks,
monitor them, close the folder.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any

from hpc_utils import datasets, profilers, signals, source_code, workspace
from hpc_utils.config import ConfigError
from hpc_utils.records.claim import assume_alive
from hpc_utils.records.folder import AlreadyComplete, RunFolder, read_json
from hpc_utils.records.load import Refused, verify
from hpc_utils.workspace import Launch

from . import core_lock, failure, rank_profiler
from .external_launcher import ExternalLauncher
from .forkserver import RANK, LocalRanks
from .process_tree import GRACE
from .rank import PARTIAL
from .request import Layout, Request

POLL = 0.05  # s between looks at the ranks
LAST = 35.0  # s that ranks get after SIGTERM for a last checkpoint

ENDPOINT = re.compile(r"--rdzv-endpoint=(.+):(\d+)")

Watch = Callable[[dict, str], None]


@dataclass(frozen=True)
class Place:
    """Where and how ranks are started.

    Attributes:
        launcher: the command that starts every rank, to which the module that a rank runs is appended, such as a job's
            `srun ... torchrun ...`; (): the ranks are forked from the forkserver of this process, or started by their
            loop's own launcher.
        cold: each rank is a new process instead of a fork, as under nsys, ncu and py-spy.
        is_gone: whether the claimant of a run, on another machine, has ended (see `records.claim`).
    """

    launcher: tuple[str, ...] = ()
    cold: bool = False
    is_gone: Callable[[Mapping[str, Any]], bool] = assume_alive

    @property
    def host(self) -> str:
        """The address of this process for the ranks: in a job, that at which they meet, on the first node."""
        return next((match[1] for word in self.launcher if (match := ENDPOINT.fullmatch(word))), "127.0.0.1")

    def part(self, layout: Layout, number: int) -> Place:
        """That of the job's run `number`, which shares the nodes with others: as many as `layout` has, from the first one."""
        options = {"nodes": layout.nodes, "ntasks": layout.nodes, "nnodes": layout.nodes}
        options |= {"nproc-per-node": layout.ranks_per_node}
        words = []
        for word in self.launcher:
            name = word.removeprefix("--").partition("=")[0]
            if match := ENDPOINT.fullmatch(word):
                word = f"--rdzv-endpoint={match[1]}:{int(match[2]) + number}"
            elif name in options:
                word = f"--{name}={options[name]}"
            words += [word, "--overlap", "--relative=0"] if word == "srun" else [word]
        return replace(self, launcher=tuple(words))


HERE = Place()


class RunFailed(RuntimeError):
    """The run ended without being complete; `path` is its folder, the message states the reason."""

    label = "error"

    def __init__(self, path: Path, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.path = path
        self.exit_code = exit_code


class RunStopped(RunFailed):
    """A signal stopped the run at a checkpoint: the same request continues from it.

    Its `exit_code` is 75 after SIGUSR1, a request to requeue (1 if twice at the same step), and 143 after SIGTERM.
    """

    label = "stopped"


def run(
    request: Request,
    place: Place = HERE,
    *,
    watch: Watch = lambda progress, new: None,
) -> Path:
    """Run the request, wait for its end, and return the folder of the complete run.

    A run that was stopped or died before continues from its last checkpoint. SIGUSR1 and SIGTERM are forwarded to the
    ranks.

    Args:
        watch: called repeatedly with (progress.json's content, new lines of rank 0's log).

    Raises:
        AlreadyComplete, ClaimedElsewhere: nothing was started.
        ConfigError: nothing was started: the run's folder cannot be written, the profiler is not installed, or a user's own code
            has changed.
        DataError: nothing was started: the data set has changed since it was fetched.
        RunStopped: SIGUSR1 or SIGTERM was received, and the ranks wrote a checkpoint; every process has ended.
        RunFailed: a rank raised or died, or the records contradict each other; every process has ended.
        KeyboardInterrupt: Ctrl-C; every process has ended.
    """
    require_startable(request, place)
    # Listen to the end: a second signal must not prevent the outcome from being written.
    with lock_cores([request]), signals.listen() as received:
        looks = attend(request, received, place, watch=watch)
        with contextlib.closing(looks):
            try:
                next(looks)
                while True:
                    looks.send(POLL)
            except StopIteration as end:
                return end.value


def require_startable(request: Request, place: Place) -> None:
    """Raise as `run` does where nothing would be started."""
    if not source_code.is_own(request.config.workload):
        datasets.verify(request.config.dataset)
    if not place.launcher:  # else the ranks may be on other machines
        profilers.require(request.config.profile)
    if request.state == "complete" and not request.redo:
        raise AlreadyComplete(request.path)


def attend(
    request: Request,
    received: Sequence[Signals],
    place: Place = HERE,
    *,
    turns: str = "",
    watch: Watch = lambda progress, new: None,
) -> Generator[None, float, Path]:
    """`run` as a generator, which yields before each look at the ranks and is sent how long (s) that look may wait.

    Args:
        received: signals that this process receives; grows. turns: where the ranks ask for their turns (`launch.turns`).
    """
    if source_code.is_own(request.config.workload) and not request.is_current:  # it may have waited for the machine
        raise ConfigError(
            f"the code of {request.config.workload} changed since {request.run_id} was planned: give the command again"
        )
    before = failure.stopped(request.path)
    folder = _claim(request, place.is_gone)
    path = folder.path
    state = "failed"
    reason = "the launcher was ended"
    try:
        ranks = _start(request, place, turns)
        try:
            code = yield from _watch(ranks, path, watch, received)
        finally:
            ranks.end()
        state, reason = _outcome(path, code, ranks.failures, received)
        if state == "complete":
            rank_profiler.export_reports(
                path, request.layout.ranks, received, say=lambda line: watch({}, f"{line}\n")
            )
    except KeyboardInterrupt:
        stopped = failure.stopped(path)
        state, reason = ("stopped", f"interrupted; {stopped}") if stopped else ("failed", "interrupted")
        raise
    finally:
        try:
            _keep_notebook(request, state, reason)
            folder.close(state, reason)
        except OSError as error:
            state, reason = "failed", f"{reason or 'complete'}; this could not be written: {error}"
    if state == "complete":
        return path
    if state == "stopped":
        raise _stopped(request, before, received, reason)
    code = signals.exit_code(signals.strongest(received)) if SIGTERM in received else 1
    raise RunFailed(
        path,
        f"{request.run_id}: {reason}\n(logs and notebook: {path}; the same command moves "
        "them to earlier/ and runs it again, from its checkpoint if there is one)",
        code,
    )


_KINETO = re.compile(r"^(?:INFO|STAGE|USDT|WARNING):\d{4}-.*\n?", re.M)  # torch.profiler's, for its log


@contextlib.contextmanager
def follow(request: Request, *, lines: bool = True) -> Iterator[Watch]:
    """A `watch` for `run`: a progress bar on a terminal, and in logs the output of rank 0; the request's warning
    first."""
    from tqdm import tqdm

    if request.warning:
        print(request.warning, file=sys.stderr, flush=True)
    bar = tqdm(total=1, desc=request.run_id, leave=False, dynamic_ncols=True, disable=not sys.stderr.isatty())
    bar.bar_format = "{desc} |{bar}| {percentage:3.0f}%"

    def watch(progress: dict, new: str) -> None:
        if lines and (new := _KINETO.sub("", new)):
            bar.write(new.rstrip("\n"), file=sys.stderr)
        if progress.get("steps"):
            bar.total, bar.n = progress["steps"], progress["step"]
        bar.refresh()

    try:
        yield watch
    finally:
        bar.close()


def lock_cores(requests: Sequence[Request]) -> contextlib.AbstractContextManager:
    """The lock of this machine's cores, for which other runs wait; none for GPUs, and for shares, which the kernel
    enforces."""
    locking = [request.run_id for request in requests if not (request.config.cores_per_rank or request.on_gpus)]
    return core_lock.lock_cores(locking[0]) if locking else contextlib.nullcontext()


def _claim(request: Request, is_gone: Callable[[Mapping[str, Any]], bool]) -> RunFolder:
    """Claim the run's folder, and write the request for the ranks."""
    content = {
        "notebook": request.notebook.name,
        "nodes": request.layout.nodes,
        "ranks_per_node": request.layout.ranks_per_node,
        "config": request.config.model_dump(),
        "parameters": dict(request.inject),
    }
    if request.is_script:
        content["arguments"] = request.arguments
    try:
        folder = RunFolder.claimed(request.path, redo=request.redo, is_gone=is_gone)
        (folder.path / "logs").mkdir()
        folder.write_json("request.json", content)
    except OSError as error:
        raise ConfigError(f"cannot write to {request.path}: {error.strerror} (see HPC_RESULTS)") from None
    return folder


def _start(request: Request, place: Place, turns: str) -> LocalRanks | ExternalLauncher:
    """Start the ranks, or the launcher that starts them."""
    folder = str(request.path)
    record = Launch(owner=folder, run=folder, turns=turns)
    environment = workspace.child_environment() | workspace.variables() | record.variables | {"PYTHONUNBUFFERED": "1"}
    arguments = [str(request.notebook), folder]
    launcher = place.launcher
    if not launcher and request.launcher:
        launcher = [*request.launcher.command(request.layout.ranks), sys.executable]
    if launcher:
        return ExternalLauncher([*launcher, "-m", RANK, *arguments], environment, request.path)
    ranks = 0 if request.config.parallel == "none" else request.layout.ranks_per_node
    cold = place.cold or request.config.profile in profilers.PROGRAMS
    return LocalRanks(arguments, ranks, environment, request.path / "logs" / "launcher.log", cold=cold)


def _watch(
    ranks: LocalRanks | ExternalLauncher, folder: Path, watch: Watch, received: Sequence[Signals]
) -> Generator[None, float, int]:
    """Until they end: forward signals, show the log, and kill them if they do not end in time after a signal or an
    error.

    Returns:
        The exit code of the launcher, or of the first rank that failed.
    """
    log = folder / "logs" / "rank0.log"
    position = 0
    passed_on: set[Signals] = set()
    failed = False
    deadline = math.inf
    while True:
        for number in set(received) - passed_on:
            if ranks.send(number):
                passed_on.add(number)
                if number == SIGTERM:
                    deadline = min(deadline, time.monotonic() + LAST)
        if not failed and (ranks.failures or any(log.parent.glob("rank*.error"))):  # another rank may ignore SIGTERM
            failed = True
            deadline = min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            ranks.kill()
        code = ranks.poll((yield))
        if log.exists():
            with log.open("rb") as file:
                file.seek(position)
                new = file.read()
            lines = new if code is not None else new[: new.rfind(b"\n") + 1]
            position += len(lines)
            watch(read_json(folder / "progress.json") or {}, lines.decode(errors="replace"))
        if code is not None:
            return code


def _outcome(
    folder: Path, code: int, failures: Sequence[tuple[int, int]], received: Sequence[Signals]
) -> tuple[str, str]:
    """(state, why it is not complete)."""
    if stopped := failure.stopped(folder):
        return "stopped", str(stopped)
    if code and SIGTERM in received:
        return "failed", "SIGTERM was received, and no checkpoint was written after it"
    if code:
        return "failed", failure.explain(folder, code, failures)
    try:
        verify(folder)
    except Refused as error:
        return "failed", f"every rank succeeded, but the records contradict each other: {error}"
    return "complete", ""


def _keep_notebook(request: Request, state: str, reason: str) -> None:
    """Give rank 0's notebook its final name, marked if the run is not complete."""
    if request.is_script:
        return
    partial = request.path / PARTIAL
    if state != "complete":
        text = failure.mark(partial if partial.exists() else request.notebook, state, reason)
        partial.write_text(json.dumps(text, indent=1) + "\n")
    if partial.exists():
        partial.replace(request.path / "notebook.ipynb")


def _stopped(request: Request, before: signals.Stopped | None, received: list[Signals], reason: str) -> RunStopped:
    stopped = failure.stopped(request.path)
    message = f"{request.run_id}: {reason}; the same command continues it"
    code = signals.exit_code(signals.strongest([*received, stopped.signal]))
    if code == signals.AGAIN and before and (before.epoch, before.step) == (stopped.epoch, stopped.step):
        message += ", but it did no step since the last stop: use a longer time limit"
        code = 1  # 75 would requeue the job without end
    return RunStopped(request.path, message, code)
