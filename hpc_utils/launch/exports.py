"""After a profiled run: exports each nsys report to SQLite tables next to it, which can be read without nsys.

Only an nsys at least as new as the one that wrote a report can open it, so it is exported on the machine that
measured.
"""

from __future__ import annotations

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


def finish(folder: Path, ranks: int, *, is_hurried: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Export the reports of a complete run under nsys or ncu, and record files and errors in `run.json`.

    A failure is a remark of the run, no error: the measurement itself is complete.

    Args:
        is_hurried: whether the job has received a signal to end: then the rest is skipped. say: called with lines of
            progress.
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
        with ThreadPoolExecutor(max(1, len(core_groups()))) as pool:
            errors = pool.map(lambda report: _export(report, is_hurried), filter(Path.is_file, reports))
            remarks += filter(None, errors)
    for remark in remarks:
        say(f"profile: {remark}")
    run["remarks"] = [*run.get("remarks", ()), *remarks]
    run["profiled"] = {**(run.get("profiled") or {}), "files": profiled_files(folder)}
    RunFolder(folder).write_json("run.json", run)


def _export(report: Path, is_hurried: Callable[[], bool]) -> str:
    """Write `report` as <rank>.sqlite; returns why it could not be written."""
    if is_hurried():
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
