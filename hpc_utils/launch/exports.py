"""After a profiled run: exports each nsys report to SQLite tables next to it, which can be read without nsys.

Only an nsys at least as new as the one that wrote a report can open it, so it is exported on the machine that measured.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hpc_utils import profilers
from hpc_utils.config import ConfigError
from hpc_utils.provenance import core_groups
from hpc_utils.records.folder import PROFILE, RunFolder, profiled_files, read_json

from .failure import last_words

LIMIT = 900  # s for one export
REPORTS = {"nsys": "nsys-rep", "ncu": "ncu-rep"}


def finish(folder: Path, ranks: int, *, is_hurried: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Export the reports of a complete run under nsys or ncu, and record files and errors in `run.json`.

    A failure is a remark of the run, no error: the measurement itself is complete.

    Args:
        is_hurried: whether the job has received a signal to end: then the rest is skipped. say: called with lines of progress.
    """
    run = read_json(folder / "run.json") or {}
    profile = (run.get("config") or {}).get("profile")
    if profile not in REPORTS:
        return
    remarks = []
    for rank in range(ranks):
        if not (folder / PROFILE / f"rank{rank}.{REPORTS[profile]}").is_file():
            words = last_words(folder / "logs" / f"profiler{rank}.log", 40) or "it printed nothing"
            remarks.append(f"{profile} left no report of rank {rank}: {words}")
    if profile == "nsys":
        remarks += _export_all(folder / PROFILE, is_hurried, say)
    for remark in remarks:
        say(f"profile: {remark}")
    run["remarks"] = [*run.get("remarks", ()), *remarks]
    run["profiled"] = {**(run.get("profiled") or {}), "files": profiled_files(folder)}
    RunFolder(folder).write_json("run.json", run)


def _export_all(folder: Path, is_hurried: Callable[[], bool], say: Callable[[str], None]) -> list[str]:
    reports = sorted(folder.glob("rank*.nsys-rep"))
    try:
        nsys = profilers.program("nsys")
    except ConfigError as error:
        return [f"not exported: {error}"]
    say(f"profile: exporting {len(reports)} reports")
    with ThreadPoolExecutor(max(1, len(core_groups()))) as pool:
        remarks = pool.map(lambda report: _export(nsys, report, is_hurried), reports)
        return [f"{report.name}: {remark}" for report, remark in zip(reports, remarks, strict=True) if remark]


def _export(nsys: str, report: Path, is_hurried: Callable[[], bool]) -> str:
    """Write `report` as <rank>.sqlite; returns the errors."""
    if is_hurried():
        return "not exported: the job received a signal to end"
    unfinished = report.with_name(f".{report.stem}.sqlite")
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={unfinished}", str(report)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        words = " ".join((done.stdout + done.stderr).split()[-40:])
    except (OSError, subprocess.SubprocessError) as error:
        words = str(error)
    if not unfinished.is_file():
        return f"not exported: {words}"
    tables = report.with_suffix(".sqlite")
    unfinished.replace(tables)
    with contextlib.closing(sqlite3.connect(tables)) as database, contextlib.suppress(sqlite3.Error):
        if database.execute("SELECT 1 FROM NVTX_EVENTS LIMIT 1").fetchone():
            return ""
    return "it holds no NVTX range, so steps and phases are unknown"
