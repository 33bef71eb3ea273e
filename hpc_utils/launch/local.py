"""Run a notebook on this machine: on every rank under torchrun, or in one plain process without a group."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any

from hpc_utils import datasets, provenance, signals
from hpc_utils.config import ConfigError
from hpc_utils.profilers import tools
from hpc_utils.records.claim import nobody_is_gone
from hpc_utils.records.folder import RUN_DIR, AlreadyComplete, RunFolder, read_json
from hpc_utils.records.load import Refused, verify

from . import exports, failure, warm
from .lifeline import GRACE, PARENT, end_tree
from .rank import PARTIAL
from .request import Request

POLL = 0.05  # s between looks at the ranks
LAST = 35.0  # s that ranks get after SIGTERM for a last checkpoint: torchrun itself gives them 30


class RunFailed(RuntimeError):
    """The run ended without being complete; `path` is its folder, the message says why."""

    label = "error"

    def __init__(self, path: Path, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.path, self.exit_code = path, exit_code


class RunStopped(RunFailed):
    """A signal stopped the run in order: the same request continues it from its checkpoint.

    Its `exit_code` is 75 after SIGUSR1, "run me again" (1 if twice at the same step), and 143 after SIGTERM.
    """

    label = "stopped"


def run(
    request: Request,
    *,
    redo: bool = False,
    launcher: Sequence[str] = (),
    warm_process: str = "",
    watch: Callable[[dict, str], None] | None = None,
    is_gone: Callable[[Mapping[str, Any]], bool] = nobody_is_gone,
) -> Path:
    """Run it and wait for its end; return the run's folder, complete.

    What was stopped or died before is continued from its last checkpoint. SIGUSR1 and SIGTERM are passed on to the
    launcher, and by it to the ranks.

    Args:
        redo: measure again although it is complete, and from the beginning.
        launcher: the command that starts every rank, to which the module that a rank runs is appended; by default
            torchrun on this machine, or one plain process.
        warm_process: what the ranks are forked from, as `warm.started` names it; by default torchrun starts one on each
            node, and `warm.OFF` starts every rank cold. A rank under nsys, ncu or py-spy always starts cold.
        watch: called now and then with (progress.json's content, new lines of rank 0's log).
        is_gone: whether the claimant of this run, on another machine, no longer works (see `records.claim`).

    Raises:
        AlreadyComplete, ClaimedElsewhere: nothing was started.
        ConfigError: nothing was started, because the run's folder cannot be written, or the profiler is not here.
        DataError: nothing was started, because the data set is not what it was when it was fetched.
        RunStopped: SIGUSR1 or SIGTERM came, and the ranks left a checkpoint; every process is gone.
        RunFailed: a rank raised or died, or the records cannot be true; every process is gone.
        KeyboardInterrupt: Ctrl-C; every process is gone.
    """
    if ":" not in request.config.workload:
        datasets.verify(request.config.dataset)
    if not launcher:  # else who knows where the ranks are: they look themselves
        tools.require(request.config.profile)
    before = failure.stopped(request.path)
    try:
        folder = RunFolder.claimed(request.path, redo=redo, is_gone=is_gone)
        (folder.path / "logs").mkdir()
        folder.write_json("request.json", _asked(request))
    except OSError as error:
        raise ConfigError(
            f"cannot write to {request.path}: {error.strerror} (HPC_RESULTS moves the results)"
        ) from None
    state, reason = "failed", "the launcher was ended"
    with signals.listen() as heard:  # to the very end: whoever is told again still writes down how it ended
        try:
            returncode = _launch(request, folder.path, launcher, warm_process, watch, heard)
            state, reason = _outcome(folder.path, returncode, heard)
            if state == "complete":
                exports.finish(
                    folder.path,
                    request.layout.ranks,
                    is_hurried=lambda: bool(heard),
                    say=lambda line: watch({}, f"{line}\n") if watch else None,
                )
        except KeyboardInterrupt:
            stopped = failure.stopped(folder.path)
            state, reason = ("stopped", f"interrupted; {stopped}") if stopped else ("failed", "interrupted")
            raise
        finally:
            try:
                _keep_notebook(request, folder.path, state, reason)
                folder.close(state, reason)
            except OSError as error:
                state, reason = "failed", f"{reason or 'complete'}; but that could not be written: {error}"
    if state == "complete":
        return folder.path
    code = signals.exit_code(signals.strongest(heard)) if SIGTERM in heard else 1
    if state == "stopped":
        stopped = failure.stopped(folder.path)
        message = f"{request.run_id}: {reason}; the same command continues it"
        code = signals.exit_code(signals.strongest([*heard, stopped.signal]))
        if code == signals.AGAIN and before and (before.epoch, before.step) == (stopped.epoch, stopped.step):
            message += ", but not one step further than the last time: give it more time (a longer limit)"
            code = 1  # or a job would go back into its queue for ever
        raise RunStopped(folder.path, message, code)
    raise RunFailed(folder.path, f"{request.run_id}: {reason}\n(logs and notebook: {folder.path})", code)


def _asked(request: Request) -> dict[str, Any]:
    """What the ranks read of it, and whoever wonders later."""
    asked = {"notebook": request.notebook.name, "nodes": request.layout.nodes}
    asked |= {"ranks_per_node": request.layout.ranks_per_node}
    return asked | {"config": request.config.model_dump(), "parameters": dict(request.inject)}


def _launch(
    request: Request,
    folder: Path,
    launcher: Sequence[str],
    warm_process: str,
    watch: Callable[[dict, str], None] | None,
    heard: Sequence[Signals],
) -> int:
    """Start the ranks and wait for their end; the launcher's exit code."""
    surroundings = environment()
    if launcher and surroundings.get(warm.SERVER) != warm.OFF:
        surroundings.pop(warm.SERVER, None)  # it is this node's
    if request.config.profile in tools.PROGRAMS:
        warm_process = warm.OFF
    ours = {RUN_DIR: str(folder), "PYTHONUNBUFFERED": "1"}
    ours |= {warm.SERVER: warm_process} if warm_process else {}
    ours |= {} if launcher else {PARENT: str(os.getpid())}  # ranks elsewhere are their own launcher's to end
    with (folder / "logs" / "launcher.log").open("wb") as log, signals.waiting():
        process = subprocess.Popen(
            _command(request, folder, launcher),
            env=surroundings | ours,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours to pass on, in order
        )
    try:
        _wait(process, folder, watch, heard)
    finally:
        end_tree(process, (RUN_DIR, str(folder)))
    return process.returncode


def _command(request: Request, folder: Path, launcher: Sequence[str]) -> list[str]:
    rank = ["-m", "hpc_utils.launch.rank", str(request.notebook), str(folder)]
    if launcher:
        return [*launcher, *rank]
    if request.config.parallel == "none":
        return warm.python(*rank)
    torchrun = ["-m", "hpc_utils.launch.torchrun", "--rdzv-backend=one-node", "--rdzv-endpoint=127.0.0.1:0"]
    return warm.python(*torchrun, f"--nproc-per-node={request.layout.ranks_per_node}", *rank)


def environment() -> dict[str, str]:
    """What the ranks inherit: no trace of a launcher or profiler that this process may run under."""
    inherited = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR")
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in (*inherited, "MASTER_PORT", tools.UNDER, provenance.REFUSED)
        and not name.startswith("TORCHELASTIC_")
    }
    # torchrun would set 1 and warn; every rank sets its own number of threads anyway (threads_per_rank). NumPy starts its
    # own, which no rank needs, when it is imported: then nothing could be forked.
    return {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | clean


def _wait(
    process: subprocess.Popen, folder: Path, watch: Callable[[dict, str], None] | None, heard: Sequence[Signals]
) -> None:
    log, seen = folder / "logs" / "rank0.log", 0
    passed_on: set[Signals] = set()
    failed, deadline = False, math.inf
    while True:
        for number in set(heard) - passed_on:
            process.send_signal(number)
            passed_on.add(number)
            if number == SIGTERM:
                deadline = min(deadline, time.monotonic() + LAST)
        if not failed and any(log.parent.glob("rank*.error")):  # then a rank may ignore torchrun's SIGTERM
            failed, deadline = True, min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            process.kill()
        ended = process.poll() is not None
        if watch and log.exists():
            with log.open("rb") as file:
                file.seek(seen)
                new = file.read()
            whole = new if ended else new[: new.rfind(b"\n") + 1]
            seen += len(whole)
            watch(read_json(folder / "progress.json") or {}, whole.decode(errors="replace"))
        if ended:
            return
        time.sleep(POLL)


def _outcome(folder: Path, returncode: int, heard: Sequence[Signals]) -> tuple[str, str]:
    """(state, why it is not complete)."""
    if stopped := failure.stopped(folder):
        return "stopped", str(stopped)
    if returncode and SIGTERM in heard:
        return "failed", "SIGTERM came, and no checkpoint was made after it"
    if returncode:
        return "failed", failure.explain(folder, returncode)
    try:
        verify(folder)
    except Refused as error:
        return "failed", f"every rank ended well, but the records cannot be true: {error}"
    return "complete", ""


def _keep_notebook(request: Request, folder: Path, state: str, reason: str) -> None:
    """Give rank 0's notebook its name; one of a run that is not complete says so on top."""
    partial, kept = folder / PARTIAL, folder / "notebook.ipynb"
    if state != "complete":
        text = failure.mark(partial if partial.exists() else request.notebook, state, reason)
        partial.write_text(json.dumps(text, indent=1) + "\n")
    if partial.exists():
        partial.replace(kept)


__all__ = ["AlreadyComplete", "RunFailed", "RunStopped", "run"]
