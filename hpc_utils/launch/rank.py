"""The process of a rank: executes the notebook, or the script, in this process.

    torchrun ... -m hpc_utils.launch.rank NOTEBOOK RUN_FOLDER

Rank 0 keeps the notebook with its outputs, every rank a log; one that raises writes `logs/rank<n>.error`. If a signal
has stopped the run at a checkpoint, rank 0 writes `logs/stopped.json` and every rank exits with 0. A rank under nsys
or ncu starts itself again under the profiler (`launch/rank_profiler.py`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import re
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from hpc_utils import launcher, profilers, signals, workspace
from hpc_utils.launch import rank_profiler
from hpc_utils.launch.external_launcher import receive_signals
from hpc_utils.launch.failure import STOPPED, without_colours
from hpc_utils.launch.process_tree import die_with_parent, log_to

# A frame of the user's code: of a cell other than at `train(config)`, or of a file that is neither ours nor a
# library's.
OWN = re.compile(
    r'Cell (?![^>]*> \d+ [^\n]*\btrain\()|File "?+(?!<|.*/(hpc_utils|(site|dist)-packages|python3\.\d+)/)'
)
PARTIAL = ".partial.ipynb"  # the launcher renames it at the end


def main(notebook: Path, folder: Path) -> None:
    """Execute `notebook` with the parameters in `folder/request.json`; never returns."""
    request = json.loads((folder / "request.json").read_text())
    record = workspace.adopt()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    own_launcher = launcher.find_launcher(request["config"]["workload"])
    # Joined now: mpiexec ends the others only if a rank fails after this.
    if own_launcher and own_launcher.starts_ranks:
        os.environ["RANK"] = str(own_launcher.join().rank)
    rank = int(os.environ.get("RANK", 0))
    if record.profiler:
        rank_profiler.settle(record.profiler)
    else:
        die_with_parent(record.parent)
        if request["config"]["profile"] in profilers.STARTING:
            _end(_under_profiler(request["config"], notebook, folder, rank))
    arguments = request.get("arguments")
    if arguments is None:
        signals.remember()  # until training listens
    else:  # a script writes no checkpoint: it may finish before its time is over
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if not record.parent:  # else the parent, or the profiler's front, has signals sent to this process
        receive_signals(folder)
    log_to(folder / "logs" / f"rank{rank}.log")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, all_threads=False)  # where this rank is when another one has failed
    status = 0
    try:
        if arguments is None:
            _execute(notebook, request["parameters"], folder / PARTIAL if rank == 0 else None)
        else:
            _run_script(notebook, arguments, request["config"], folder / "logs" / f"rank{rank}.log")
    except signals.Stopped as stopped:
        if rank == 0:
            where = {"signal": stopped.signal, "epoch": stopped.epoch, "step": stopped.step}
            (folder / "logs" / STOPPED).write_text(json.dumps(where))
        print(stopped, file=sys.stderr, flush=True)
    except BaseException as error:
        status = 1
        _report(error, folder, rank)
    if own_launcher and not status:  # otherwise its launcher ends the other ranks
        own_launcher.leave()
    _end(status)


def _execute(notebook: Path, parameters: Mapping[str, Any], output: Path | None) -> None:
    # jsonschema imports this only to check IRIs, which no notebook holds; it builds a grammar for 0.7 s.
    sys.modules.setdefault("rfc3987_syntax", None)
    import papermill

    from hpc_utils.launch.notebook_engine import InProcessEngine  # after papermill, which may import it itself

    papermill.engines.papermill_engines.register("hpc", InProcessEngine)
    # It warns of parameters that the notebook's own cell does not set; the launcher has checked them.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    kernel = {"engine_name": "hpc", "kernel_name": "python3"}
    papermill.execute_notebook(notebook, output, parameters, **kernel, progress_bar=False, cwd=None)


def _run_script(script: Path, arguments: list[str], config: Mapping[str, Any], log: Path) -> None:
    """Run a user's script as `python` does, on the cores or the GPU of this rank and seeded. `log` has its output."""
    from torch.distributed import distributed_c10d

    from hpc_utils.config import RunConfig
    from hpc_utils.train import randomness, ranks

    timeout = timedelta(seconds=config["collective_timeout"])  # of the group that the script creates
    distributed_c10d.default_pg_timeout = distributed_c10d.default_pg_nccl_timeout = timeout
    if config["parallel"] == "none":  # torchrun sets them for one process, too
        for name in filter(workspace.RANK_VARIABLES.fullmatch, list(os.environ)):
            os.environ.pop(name)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    # A job runs in the clone, but the script's files are where it was submitted.
    if "HPC_JOB_ENVIRONMENT" in os.environ:
        os.chdir(os.environ["SLURM_SUBMIT_DIR"])
    randomness.seed(config["seed"])
    with ranks.placed(RunConfig(**config)):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            if end.code:
                sys.stderr.flush()
                reason = log.read_text(errors="replace").strip().rpartition("\n")[2]
                raise RuntimeError(f"{script.name} {' '.join(arguments)}: exit code {end.code}: {reason}") from end


def _under_profiler(config: Mapping[str, Any], notebook: Path, folder: Path, rank: int) -> int:
    """Run this rank again, started by the profiler; its exit code."""
    try:
        return rank_profiler.run(config, ["-m", "hpc_utils.launch.rank", str(notebook), str(folder)], folder, rank)
    except Exception as error:
        _report(error, folder, rank)
        return 1


def _report(error: BaseException, folder: Path, rank: int) -> None:
    """Write the error with the frames of the user's code for the launcher, and all frames to
    `logs/rank<n>.traceback.log`."""
    # papermill's error has the cell's own error in `ename`, `evalue` and `traceback`.
    name = getattr(error, "ename", type(error).__name__)
    message = getattr(error, "evalue", str(error))
    frames = getattr(error, "traceback", None) or traceback.format_exception(error)
    frames = [without_colours(frame).strip() for frame in frames]
    report = {
        "rank": rank,
        "at": time.time(),
        "name": name,
        "message": message,
        "traceback": "\n".join(filter(OWN.match, frames)),
    }
    with contextlib.suppress(OSError):  # a full disk must not hide the error itself
        (folder / "logs" / f"rank{rank}.error").write_text(json.dumps(report))
        (folder / "logs" / f"rank{rank}.traceback.log").write_text("\n".join(frames))


def _end(status: int) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Not a normal exit: the others may still be inside a collective that this rank's teardown would wait for.
    if status < 0:  # the signal that ended the rank under a profiler
        with contextlib.suppress(OSError):  # SIGKILL's handler cannot be changed
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
