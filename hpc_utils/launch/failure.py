"""Why a run is not complete: found in what its ranks left, and written where a reader will look."""

from __future__ import annotations

import json
import re
import signal
import tempfile
from pathlib import Path
from typing import Any

from hpc_utils.profilers.tools import STARTING
from hpc_utils.records.folder import read_json
from hpc_utils.signals import Stopped

from .rank import STOPPED

BANNER = "run-failed"  # tag of the cell that says so
HEADINGS = {
    "failed": "# This run FAILED\n\nWhat follows is incomplete.",
    "stopped": "# This run was stopped\n\nWhat follows is incomplete: run again, it continues from its checkpoint.",
}


def stopped(folder: Path) -> Stopped | None:
    """How a signal stopped the ranks in order, if one did."""
    left = read_json(folder / "logs" / STOPPED)
    return left and Stopped(signal.Signals(left["signal"]), left["epoch"], left["step"])


def explain(folder: Path, returncode: int) -> str:
    """The first cause: a rank that ended without a word, else the first that raised, else the launcher's own words."""
    reports = [report for path in (folder / "logs").glob("rank*.error") if (report := read_json(path))]
    silent = _silent(folder, returncode, spoke={report["rank"] for report in reports})
    if silent:
        cause = silent
    elif reports:
        first = min(reports, key=lambda report: report["at"])
        cause = f"rank {first['rank']} raised {first['name']}: {first['message']}\n{first['traceback']}"
    else:
        cause = f"the launcher ended with exit code {returncode}:\n{_tail(folder / 'logs' / 'launcher.log')}"
    return _full(folder) + cause


def mark(notebook: Path, state: str, reason: str) -> dict[str, Any]:
    """`notebook`'s content with a first cell that says that, and why, the run failed or was stopped."""
    try:
        content = json.loads(notebook.read_text())
    except ValueError:  # killed while it was being written
        content = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    banner = {
        "cell_type": "markdown",
        "id": BANNER,
        "metadata": {"tags": [BANNER]},
        "source": f"{HEADINGS[state]}\n\n```\n{reason}\n```\n",
    }
    content["cells"].insert(0, banner)
    content["metadata"].setdefault("papermill", {})["exception"] = True
    return content


def _full(folder: Path) -> str:
    """Whether nothing more can be written there: then the ranks could not leave a word either."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 16))
    except OSError as error:
        return f"nothing can be written to {folder}: {error.strerror}\n"
    return ""


def _silent(folder: Path, returncode: int, spoke: set[int]) -> str:
    """Which rank was killed or left at once, by torchrun's closing report or a plain process's own exit code."""
    report = _tail(folder / "logs" / "launcher.log", 200)
    pattern = r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+) "
    _, _, root = report.rpartition("Root Cause")
    ended = [(int(rank), int(code)) for part in (root, report) for rank, code in re.findall(pattern, part)]
    asked = read_json(folder / "request.json") or {}
    if returncode < 0 and asked.get("config", {}).get("parallel") == "none":
        ended = [(0, returncode)]
    for place, (rank, code) in enumerate(ended):
        # torchrun itself ends by SIGTERM the ranks that are left when the first has failed.
        if rank in spoke or (place and code == -signal.SIGTERM):
            continue
        how = f"was killed by {_name(-code)}" if code < 0 else f"left with exit code {code} and without an error"
        if code > 0 and (profile := asked.get("config", {}).get("profile")) in STARTING:
            how += f" (or was killed: {profile}, which had started it, tells no signal)"
        return f"rank {rank} {how}; its last lines:\n{_last_words(folder / 'logs' / f'rank{rank}.log')}"
    return ""


def _name(number: int) -> str:
    why = {signal.SIGKILL: " (out of memory? killed by hand?)", signal.SIGSEGV: " (a crash in native code)"}
    return f"{signal.Signals(number).name}{why.get(number, '')}"


def _last_words(log: Path) -> str:
    """A log's end; of a crash in native code the stack's inner end, which faulthandler writes first."""
    text = _tail(log, 200)
    _, crash, stack = text.rpartition("Fatal Python error")
    return "\n".join((crash + stack).splitlines()[:20]) if crash else _tail(log)


def _tail(path: Path, lines: int = 20) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
