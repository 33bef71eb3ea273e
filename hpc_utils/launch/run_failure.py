"""Why a run is not complete: found in what its ranks left, and written where a reader will look."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpc_utils.profilers import STARTING
from hpc_utils.records.folder import read_json
from hpc_utils.signals import Stopped

from .logs import tail
from .rank import STOPPED

BANNER = "run-failed"  # tag of the notebook's cell that says so
HEADINGS = {
    "failed": "# This run FAILED\n\nWhat follows is incomplete.",
    "stopped": "# This run was stopped\n\nWhat follows is incomplete: run again, it continues from its checkpoint.",
}


def stopped(folder: Path) -> Stopped | None:
    """How a signal stopped the ranks in order, if one did."""
    left = read_json(folder / "logs" / STOPPED)
    return left and Stopped(signal.Signals(left["signal"]), left["epoch"], left["step"])


def explain(folder: Path, returncode: int) -> str:
    """The first cause: a rank that ended without an error, else the first that raised, else the launcher's output."""
    reports = [report for path in (folder / "logs").glob("rank*.error") if (report := read_json(path))]
    cause = _silent(folder, returncode, reported={report["rank"] for report in reports})
    if not cause and reports:
        first = min(reports, key=lambda report: report["at"])
        cause = f"rank {first['rank']} raised {first['name']}: {first['message']}\n{first['traceback']}"
    if not cause:
        cause = f"the launcher ended with exit code {returncode}:\n{_log_end(folder / 'logs' / 'launcher.log')}"
    return _unwritable(folder) + cause


def mark(notebook: Path, state: str, reason: str) -> dict[str, Any]:
    """`notebook`'s content with a first cell that says that, and why, the run failed or was stopped."""
    try:
        content = json.loads(notebook.read_text())
    except ValueError:  # killed while it was being written
        content = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    source = f"{HEADINGS[state]}\n\n```\n{reason}\n```\n"
    cell = {"cell_type": "markdown", "id": BANNER, "metadata": {"tags": [BANNER]}, "source": source}
    content["cells"].insert(0, cell)
    content["metadata"].setdefault("papermill", {})["exception"] = True
    return content


def _unwritable(folder: Path) -> str:
    """Whether the folder cannot be written to: then the ranks could not report an error either."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 16))
    except OSError as error:
        return f"nothing can be written to {folder}: {error.strerror}\n"
    return ""


def _silent(folder: Path, returncode: int, reported: set[int]) -> str:
    """The first rank that was killed, or exited without an error report."""
    config = (read_json(folder / "request.json") or {}).get("config", {})
    for rank, code in _ended(folder, returncode, alone=config.get("parallel") == "none"):
        if rank in reported:
            continue
        how = f"was killed by {_name(-code)}" if code < 0 else f"left with exit code {code} and without an error"
        if code > 0 and (profile := config.get("profile")) in STARTING:
            how += f" (or was killed: {profile}, which had started it, hides signals)"
        return f"rank {rank} {how}; its last lines:\n{_last_lines(folder / 'logs' / f'rank{rank}.log')}"
    return ""


def _ended(folder: Path, returncode: int, *, alone: bool) -> Iterator[tuple[int, int]]:
    """(rank, exit code) of the ranks that failed, as torchrun's wrapper on each node lists them."""
    if alone and returncode < 0:
        yield 0, returncode
    for path in sorted((folder / "logs").glob("failed*.json")):
        for place, one in enumerate(read_json(path) or ()):
            # torchrun itself ends by SIGTERM the ranks that are left when the first has failed.
            if not place or one["exit_code"] != -signal.SIGTERM:
                yield one["rank"], one["exit_code"]


def _name(number: int) -> str:
    why = {signal.SIGKILL: " (out of memory? killed by hand?)", signal.SIGSEGV: " (a crash in native code)"}
    return f"{signal.Signals(number).name}{why.get(number, '')}"


def _last_lines(log: Path) -> str:
    """A log's end; after a crash in native code the stack's inner end, which faulthandler writes first."""
    _, crash, stack = tail(log, 200).rpartition("Fatal Python error")
    return "\n".join((crash + stack).splitlines()[:20]) if crash else _log_end(log)


def _log_end(log: Path) -> str:
    return tail(log) or "(no log)"
