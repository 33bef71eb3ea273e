"""After a profiled run: what nsys saw, as tables that need no nsys, beside each report.

A report can be opened only by an nsys that is as new as the one that wrote it: so it is exported where it was taken.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hpc_utils.config import ConfigError
from hpc_utils.profilers import tools
from hpc_utils.provenance import core_groups
from hpc_utils.records.folder import PROFILE, RunFolder, profiled_files, read_json

from .profiler import last_words

LIMIT = 900  # s for one of nsys' commands
REPORTS = {"nsys": "nsys-rep", "ncu": "ncu-rep"}

# `nsys stats` reports by both their names: those of 2022 and before, and those since.
SUMMARIES = {
    "nvtxsum": "nvtx_sum",
    "gpukernsum": "cuda_gpu_kern_sum",
    "gpumemtimesum": "cuda_gpu_mem_time_sum",
    "gpumemsizesum": "cuda_gpu_mem_size_sum",
    "cudaapisum": "cuda_api_sum",
    "osrtsum": "osrt_sum",
}


def finish(folder: Path, ranks: int, *, is_hurried: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Export the reports of a complete run under nsys or ncu, and note in `run.json` what there is and what failed.

    A failure is a remark: what was measured is not the worse for it.

    Args:
        is_hurried: whether somebody wants us to end: then the rest is left. say: hears of progress.
    """
    run = read_json(folder / "run.json") or {}
    profile = (run.get("config") or {}).get("profile")
    if profile not in REPORTS:
        return
    remarks = []
    for rank in range(ranks):
        if not (folder / PROFILE / f"rank{rank}.{REPORTS[profile]}").is_file():
            words = last_words(folder / "logs" / f"profiler{rank}.log", 40) or "it said nothing"
            remarks.append(f"{profile} left no report of rank {rank}: {words}")
    if profile == "nsys":
        remarks += _export_all(folder / PROFILE, is_hurried, say)
    for remark in remarks:
        say(f"profile: {remark}")
    run["remarks"] = [*run.get("remarks", ()), *remarks]
    run["profiled"] = {**(run.get("profiled") or {}), "files": profiled_files(folder)}
    RunFolder(folder).write_json("run.json", run)


def _export_all(folder: Path, is_hurried: Callable[[], bool], say: Callable[[str], None]) -> list[str]:
    reports = sorted(folder.glob("rank*.nsys-rep"), key=lambda path: int(re.sub(r"\D", "", path.stem) or 0))
    try:
        nsys = tools.program("nsys")
        summaries = _dialect(nsys)
    except (ConfigError, OSError, subprocess.SubprocessError) as error:
        return [f"not exported, which `nsys export` and `nsys stats` would do: {error}"]
    remarks: list[str] = []
    with ThreadPoolExecutor(max(1, len(core_groups()))) as pool:
        pending = [
            pool.submit(lambda *about: list(_export(*about)), nsys, report, summaries, is_hurried)
            for report in reports
        ]
        for number, (report, done) in enumerate(zip(reports, pending, strict=True), 1):
            remarks += [f"{report.name}: {text}" for text in done.result()]
            say(f"profile: {report.name} exported ({number} of {len(reports)})")
    return remarks


def _export(nsys: str, report: Path, summaries: list[str], is_hurried: Callable[[], bool]) -> Iterator[str]:
    """Beside `report`: <rank>.sqlite, and <rank>_<summary>.csv. What failed, in words."""
    tables, beside = report.with_suffix(".sqlite"), report.with_name(f".{report.stem}.sqlite")
    if is_hurried():
        yield "not exported, the job was asked to end"
        return
    said = _nsys(nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={beside}", str(report))
    if not beside.is_file():
        yield f"not exported: {said}"
        return
    beside.replace(tables)
    if is_hurried():
        yield "no summaries, the job was asked to end"
        return
    asked = [f"--report={name}" for name in summaries]
    prefix = f"--output={report.with_suffix('')}"
    said = _nsys(nsys, "stats", *asked, "--format=csv", "--force-overwrite=true", prefix, str(tables))
    # It ends with 0 even if it has skipped a summary for lack of such events, of which it leaves an empty file or none.
    made = {name: report.with_name(f"{report.stem}_{name}.csv") for name in summaries}
    for path in made.values():
        if path.is_file() and not path.stat().st_size:
            path.unlink()
    made = {name: path for name, path in made.items() if path.is_file()}
    if not made:
        yield f"no summary was made: {said}"
    elif not any(name.startswith("nvtx") for name in made):
        yield f"it holds no NVTX range, so no step and no phase can be told: {said}"


def _dialect(nsys: str) -> list[str]:
    """The summaries by the names that this nsys knows."""
    done = subprocess.run([nsys, "stats", "--help-reports"], capture_output=True, text=True, timeout=LIMIT)
    known = set(re.findall(r"\w+", done.stdout + done.stderr))
    return [new if new in known else old for old, new in SUMMARIES.items()]


def _nsys(*command: str) -> str:
    """Run it; the end of what it said."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return " ".join((done.stdout + done.stderr).split()[-40:])
