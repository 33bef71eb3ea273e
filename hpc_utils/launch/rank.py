"""What every rank's process runs: the notebook, in this process.

    python -m torch.distributed.run ... -m hpc_utils.launch.rank NOTEBOOK RUN_FOLDER

Rank 0 keeps the notebook with its outputs, every rank a log; one that raises also leaves `logs/rank<n>.error`. Of a
run that a signal stopped in order rank 0 leaves `logs/stopped.json`, and every rank ends well. A rank that nsys or ncu
shall watch has itself started again by them (`launch/profiler.py`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from hpc_utils import signals
from hpc_utils.launch import profiler, warm
from hpc_utils.launch.lifeline import die_with_parent
from hpc_utils.profilers import tools

STOPPED = "stopped.json"
PARTIAL = ".partial.ipynb"  # no name of a finished notebook: the launcher gives it its own at the end


def main(notebook: Path, folder: Path) -> None:
    """Execute `notebook` with the parameters in `folder/request.json`; never returns."""
    rank = int(os.environ.get("RANK", 0))
    profiler.settle() if tools.UNDER in os.environ else die_with_parent()
    os.environ.pop(warm.SERVER, None)  # a run that a cell starts has a warm process of its own
    request = json.loads((folder / "request.json").read_text())
    if profiler.is_wanted(request["config"]):
        _end(_under_profiler(request["config"], notebook, folder, rank))
    signals.remember()  # until training listens
    _log_to(folder / "logs" / f"rank{rank}.log")
    faulthandler.enable()
    # jsonschema imports this only to check IRIs, which no notebook holds; it builds a grammar for 0.7 s.
    sys.modules.setdefault("rfc3987_syntax", None)
    import papermill

    # Knobs that the notebook's own cell does not set are injected too; the launcher has checked them.
    logging.getLogger("papermill").setLevel(logging.ERROR)

    status = 0
    try:
        papermill.execute_notebook(
            notebook,
            folder / PARTIAL if rank == 0 else None,
            parameters=request["parameters"],
            engine_name="hpc",
            kernel_name="python3",
            progress_bar=False,
            cwd=None,
        )
    except signals.Stopped as stopped:
        if rank == 0:
            where = {"signal": stopped.signal, "epoch": stopped.epoch, "step": stopped.step}
            (folder / "logs" / STOPPED).write_text(json.dumps(where))
        print(stopped, file=sys.stderr, flush=True)
    except BaseException as error:
        status = 1
        _report(error, folder, rank)
    _end(status)


def _under_profiler(config: Mapping[str, Any], notebook: Path, folder: Path, rank: int) -> int:
    """This rank once more, started by the profiler; its exit code."""
    try:
        return profiler.run(config, ["-m", "hpc_utils.launch.rank", str(notebook), str(folder)], folder, rank)
    except Exception as error:
        _report(error, folder, rank)
        return 1


def _report(error: BaseException, folder: Path, rank: int) -> None:
    """Leave word of it for the launcher, and in the log."""
    with contextlib.suppress(OSError):  # a full disk must not hide the error itself
        text = _without_colours(str(error) if hasattr(error, "ename") else traceback.format_exc())
        report = {"rank": rank, "at": time.time(), "name": getattr(error, "ename", type(error).__name__)}
        report |= {"message": getattr(error, "evalue", str(error)), "traceback": text}
        (folder / "logs" / f"rank{rank}.error").write_text(json.dumps(report))
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _end(status: int) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if status < 0:  # a signal has ended the process that this one stands for
        signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    # Not a normal exit: the others may still be inside a collective that this rank's teardown would wait for.
    os._exit(status)


def _log_to(path: Path) -> None:
    """Everything that this process prints, C++ included, goes to `path`."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    sys.stdout.reconfigure(line_buffering=True)
    sys.stderr.reconfigure(line_buffering=True)


def _without_colours(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
