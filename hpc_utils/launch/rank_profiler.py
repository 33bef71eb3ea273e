"""A rank under nsys or ncu, which start the program that they profile.

    forkserver or torchrun ─▶ rank (this) ─▶ nsys ─▶ rank that trains

The process in front passes signals on to the one that trains, which nsys does not do, and ends with its exit
code or signal. If it is killed, the one that trains ends, and then nsys by itself: a killed nsys may leave a lock in
/dev/shm, and then no nsys starts on that node any more. The profiler's output is in `logs/profiler<rank>.log`.

After the run the launcher exports each nsys report to SQLite tables next to it, which can be read without nsys: only an
nsys at least as new as the one that wrote a report can open it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpc_utils import file_lock, profilers, provenance, signals, workspace
from hpc_utils.config import ConfigError
from hpc_utils.records.atomic import umask
from hpc_utils.records.folder import PROFILE, RunFolder, profiled_files, read_json
from hpc_utils.workspace import Profiler

from . import process_tree
from .failure import last_words

POLL = 0.1  # s
LIMIT = 900  # s for one export
PATIENCE = 20.0  # s that a profiler gets to start the rank, and its own processes to end


def run(config: Mapping[str, Any], python: Sequence[str], folder: Path, rank: int) -> int:
    """Run `python` (its arguments) under the profiler that `config` names; its exit code, negative after a signal.

    Raises:
        ConfigError: that profiler is not here, or did not start the rank.
    """
    profile = config["profile"]
    gpu = config["device"] == "cuda" or (config["device"] == "auto" and bool(provenance.hardware().gpus))
    (folder / PROFILE).mkdir(exist_ok=True)
    report = folder / PROFILE / f"rank{rank}"
    command = [*profilers.command(profile, report, gpu=gpu), sys.executable, *python]
    mask = umask()
    mark = Profiler(profile, "cuda" if gpu else "nvtx", os.getpid(), mask)
    # nsys uses fixed names in TMPDIR, which another user on this node may own; and sockets, whose paths must be
    # short.
    scratch = tempfile.mkdtemp(prefix="hpc-", dir="/tmp")
    environment = os.environ | replace(workspace.launch(), profiler=mark).variables
    environment |= {"TMPDIR": scratch} | profilers.variables(profile)
    log = folder / "logs" / f"profiler{rank}.log"
    started = folder / "logs" / f"rank{rank}.log"
    try:
        with signals.listen() as received:
            # One rank of a node after another: two at once may collide in /dev/shm.
            with file_lock.hold(Path(tempfile.gettempdir()) / f"hpc-profiler-{os.getuid()}.lock"):
                process = _start(command, environment, log, mark)
                if process.poll() and not (
                    received or started.exists()
                ):  # another user's nsys may have collided with it
                    process = _start(command, environment, log, mark)
            code = _wait(process, mark, received)
            # The launcher kills what a run leaves running, and would kill the profiler's helpers.
            _until(lambda: not list(_under(mark)))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for left in (folder / PROFILE).glob(f"rank{rank}.*"):
            left.chmod(0o666 & ~mask)
    if code and not started.exists():
        hint = "if a killed nsys left its lock on this node, remove /dev/shm/NSys-*"
        raise ConfigError(f"profile={profile!r}: {profile} did not start the rank: {last_words(log, 60)} ({hint})")
    return 128 - code if code > 128 else code  # nsys reports a signal as a shell does


def settle(mark: Profiler) -> None:
    """In the process that a profiler has started: take the umask of the one in front, and end when that ends.

    `die_with_parent` does not work here: the parent is a thread of the profiler, which ends earlier.
    """
    if mark.front is None or mark.umask is None:  # started by hand
        return
    os.umask(mark.umask)  # nsys starts processes with one that lets everybody write

    def watch(front: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(front, 0)
                time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, args=[mark.front], daemon=True).start()


def _start(command: Sequence[str], environment: Mapping[str, str], log: Path, mark: Profiler) -> subprocess.Popen:
    """Start the profiler, and wait until it has started the rank or has ended."""
    with log.open("ab") as output, signals.waiting():
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # torchrun signals a rank's whole group, at which nsys would end
        )
    _until(lambda: process.poll() is not None or _training(mark))
    return process


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(POLL)


def _wait(process: subprocess.Popen, mark: Profiler, received: Sequence[signal.Signals]) -> int:
    """Wait for its end, and pass signals on to the rank that trains."""
    sent = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(POLL)
        while sent < len(received) and (rank := _training(mark)):  # it may not have started yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, received[sent])
            sent += 1


def _training(mark: Profiler) -> int | None:
    """The process that trains under that profiler: the oldest Python there."""
    python = os.path.realpath(sys.executable)
    return min(((begun, pid) for begun, pid, program in _under(mark) if program == python), default=(0, None))[1]


def _under(mark: Profiler) -> Iterator[tuple[float, int, str]]:
    """(start time, pid, program) of the profiler's processes."""
    import psutil

    for process in process_tree.find_processes(lambda launch: launch.profiler == mark):
        with contextlib.suppress(psutil.Error, OSError):
            yield process.create_time(), process.pid, process.exe()


def export_reports(folder: Path, ranks: int, received: Sequence[signal.Signals], say: Callable[[str], None]) -> None:
    """Export the reports of a complete run under nsys or ncu, and record files and errors in `run.json`.

    A failure is a remark of the run, no error: the measurement itself is complete.

    Args:
        received: signals to end, which grows: with the first one the rest is skipped. say: called with lines of progress.
    """
    run = read_json(folder / "run.json")
    profile = run["config"].get("profile")
    if profile not in profilers.STARTING:
        return
    reports = [folder / PROFILE / f"rank{rank}.{profile}-rep" for rank in range(ranks)]
    remarks = [
        f"{profile} left no report of {report.stem}: {last_words(folder / 'logs' / f'profiler{rank}.log', 40)}"
        for rank, report in enumerate(reports)
        if not report.is_file()
    ]
    if profile == "nsys":
        say(f"profile: exporting {len(reports)} reports")
        with ThreadPoolExecutor(max(1, len(provenance.core_groups()))) as pool:
            errors = pool.map(lambda report: _export(report, received), filter(Path.is_file, reports))
            remarks += filter(None, errors)
    for remark in remarks:
        say(f"profile: {remark}")
    run["remarks"] = [*run.get("remarks", ()), *remarks]
    run["profiled"] = {**(run.get("profiled") or {}), "files": profiled_files(folder)}
    RunFolder(folder).write_json("run.json", run)


def _export(report: Path, received: Sequence[signal.Signals]) -> str:
    """Write `report` as <rank>.sqlite; returns why it could not be written."""
    if received:
        return f"{report.name} was not exported: the job received a signal to end"
    unfinished = report.with_name(f".{report.stem}.sqlite")
    options = ["--type=sqlite", "--force-overwrite=true"]
    try:
        command = [profilers.program("nsys"), "export", *options, f"--output={unfinished}", str(report)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    except (ConfigError, OSError, subprocess.SubprocessError) as error:
        return f"{report.name} was not exported: {error}"
    if not unfinished.is_file():
        return f"{report.name} was not exported: {' '.join((done.stdout + done.stderr).split()[-40:])}"
    unfinished.replace(report.with_suffix(".sqlite"))
    return ""
