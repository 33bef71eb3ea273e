"""The reason for a failed run or job, and its remedy, from the records of ranks, launcher and Slurm."""

from __future__ import annotations

import json
import re
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpc_utils import launcher
from hpc_utils.profilers import STARTING
from hpc_utils.records.folder import read_json
from hpc_utils.signals import Stopped

from . import symptoms
from .symptoms import Finding, Kind

STOPPED = "stopped.json"  # in a run's logs: how a signal stopped it
BANNER = "run-failed"  # tag of the first cell of the notebook of a run that is not complete
HEADINGS = {
    "failed": "# This run FAILED\n\nWhat follows is incomplete.",
    "stopped": "# This run was stopped\n\nWhat follows is incomplete: the same command continues from its checkpoint, if there is one.",
}

# Advice for Slurm's final states, whatever the log contains.
ENDED = {
    "TIMEOUT": "it did not finish in time and could not be requeued: raise [slurm] time, then `hpc retry`; it resumes from its last checkpoint",
    "NODE_FAIL": "a node failed and the job was not requeued: `hpc retry` resumes from the last checkpoint",
    "OUT_OF_MEMORY": "request more memory (the node type's `memory` in the cluster file), or lower the batch",
    "CANCELLED": "it stays cancelled; `hpc submit` or `hpc retry` continues it from its checkpoint, if there is one",
    "PREEMPTED": "`hpc retry` resumes from the last checkpoint",
    "DEADLINE": "the site's deadline passed: raise it or lower [slurm] time",
    "BOOT_FAIL": "a node did not start: `hpc retry`",
}

_ERROR = re.compile(r"(error|exception|fatal|killed|refused|no such|not found|denied|failed)\b", re.I)
_CONSEQUENCE = re.compile(r"CANCELLED|Exited with|torch/distributed/elastic")
_RAISED = re.compile(r"rank \d+ raised ")  # how the reason begins if a rank left an error report
FRAMES = 6  # of a rank that others wait for
CRASH_LINES = 3  # before a crash in native code
_SIZE = 65_536  # bytes of a log's end that are read


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a log without colours; "" if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _SIZE))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(without_colours(text).splitlines()[-lines:])


def last_words(log: Path, most: int) -> str:
    """The last words of a log, on one line."""
    return " ".join(tail(log, most).split()[-most:])


def without_colours(text: str) -> str:
    """`text` without ANSI colour codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def stopped(run: Path) -> Stopped | None:
    """How a signal stopped the run's ranks at a checkpoint, if one did."""
    left = read_json(run / "logs" / STOPPED)
    return left and Stopped(signal.Signals(left["signal"]), left["epoch"], left["step"])


def explain(run: Path, returncode: int, failures: Sequence[tuple[int, int]] = ()) -> str:
    """The first cause: a rank that ended without an error report, else the first that raised, else the launcher's
    log.

    Args:
        returncode: of the launcher. failures: (rank, exit code) of the ranks that failed, the first one first.
    """
    reports = [report for path in (run / "logs").glob("rank*.error") if (report := read_json(path))]
    cause = _silent(run, failures, reported={report["rank"] for report in reports})
    if not cause and reports:
        first = min(reports, key=lambda report: report["at"])
        cause = f"rank {first['rank']} raised {first['name']}: {first['message']}\n{first['traceback']}".rstrip()
    words = tail(run / "logs" / "launcher.log")
    cause = cause or f"the launcher ended with exit code {returncode}\n{words}".rstrip()
    finding = _first_cause(cause, words)
    if finding and finding.name == "collective-timeout":
        cause += _elsewhere(run, reported={report["rank"] for report in reports})
    if finding and finding.is_known and finding.name != "configuration":  # whose messages name the remedy themselves
        cause = f"{cause}\n\n{finding.symptom.title}: {finding.symptom.remedy}"
    try:  # in a full folder the ranks could not report an error either
        with tempfile.TemporaryFile(dir=run) as file:
            file.write(bytes(1 << 16))
    except OSError as error:
        return f"nothing can be written to {run}: {error.strerror}; free space, or set HPC_RESULTS to another folder\n{cause}"
    return cause


def mark(notebook: Path, state: str, reason: str) -> dict[str, Any]:
    """`notebook`'s content with a first cell that states that, and why, the run failed or was stopped."""
    try:
        content = json.loads(notebook.read_text())
    except ValueError:  # killed while it was being written
        content = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    source = f"{HEADINGS[state]}\n\n```\n{reason}\n```\n"
    content["cells"].insert(
        0, {"cell_type": "markdown", "id": BANNER, "metadata": {"tags": [BANNER]}, "source": source}
    )
    content["metadata"].setdefault("papermill", {})["exception"] = True
    return content


def explain_job(state: str, reason: str, log: Path) -> tuple[str, str, str]:
    """(state, the line that explains it, advice) of a failed job, from Slurm's state, the reason in the run's record, and the
    job's log; the line is "" if there is none."""
    text = tail(log, 1000)
    finding = _first_cause(reason, text)
    lines = [*reason.splitlines(), *([finding.text] if finding and finding.is_known else _likely_causes(text))]
    line = without_colours(next(filter(str.strip, lines), "")).strip()[:200]
    if state in ENDED and state != "CANCELLED":
        return state, line, ENDED[state]
    if finding and finding.is_known:
        return finding.symptom.state or state, line, finding.symptom.remedy
    return state, line, ENDED.get(state, "read the log (`hpc logs RUN`), correct the cause, then `hpc retry`")


def _likely_causes(log: str) -> Iterator[str]:
    """The lines of a log from its end, those that name an error first, and what follows from it last."""
    lines = list(reversed(log.splitlines()))
    yield from (line for line in lines if _ERROR.search(line) and not _CONSEQUENCE.search(line))
    yield from lines


def _first_cause(reason: str, log: str) -> Finding | None:
    """The symptom that is the first cause.

    If a rank raised, a vague symptom of the log is a consequence: torchrun ends the other ranks by SIGTERM, as
    scancel does.
    """
    finding = symptoms.first_cause(f"{reason}\n{log}", failed=True)
    if finding and finding.kind == Kind.VAGUE and _RAISED.match(reason):
        return symptoms.first_cause(reason)
    return finding


def _silent(run: Path, failures: Sequence[tuple[int, int]], reported: set[int]) -> str:
    """The first rank that was killed, or exited, without an error report."""
    config = (read_json(run / "request.json") or {}).get("config", {})
    own_launcher = launcher.find_launcher(config.get("workload", ""))
    if own_launcher and own_launcher.starts_ranks and reported:  # it ends the others in its own way
        return ""
    for number, (rank, code) in enumerate(failures):
        if rank in reported or (number and code == -signal.SIGTERM):  # as the others end when the first has failed
            continue
        how = f"was killed by {_name(-code)}" if code < 0 else f"left with exit code {code} and without an error"
        if code > 0 and (profile := config.get("profile")) in STARTING:
            how += f" (or was killed: {profile}, which had started it, hides signals)"
        return f"rank {rank} {how}\nIts last lines:\n{_last_lines(run / 'logs' / f'rank{rank}.log')}"
    return ""


def _elsewhere(run: Path, reported: set[int]) -> str:
    """Where the first rank without an error report was when the others had failed, by the stack in its log."""
    for log in sorted((run / "logs").glob("rank*.log")):
        rank = log.stem.removeprefix("rank")
        _, heading, stack = tail(log, 200).partition("Stack (most recent call first):\n")
        if heading and rank.isdigit() and int(rank) not in reported:
            frames = [line for line in stack.splitlines() if line.startswith("  File ")]
            return "\n".join([f"\nMeanwhile rank {rank} was here, innermost first:", *frames[:FRAMES]])
    return ""


def _name(number: int) -> str:
    why = {signal.SIGKILL: " (out of memory? killed by hand?)", signal.SIGSEGV: " (a crash in native code)"}
    return f"{signal.Signals(number).name}{why.get(number, '')}"


def _last_lines(log: Path) -> str:
    """A log's end; after a crash in native code what was written just before it (C++ names its exception), and the stack's inner
    end, which faulthandler writes first."""
    before, crash, stack = tail(log, 200).rpartition("Fatal Python error")
    if not crash:
        return tail(log) or "(no log)"
    return "\n".join([*before.splitlines()[-CRASH_LINES:], *(crash + stack).splitlines()[:20]])
