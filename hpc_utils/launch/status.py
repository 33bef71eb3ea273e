"""What became of submitted runs: our records joined with Slurm's word."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils import paths
from hpc_utils.records.folder import read_json, state

from . import diagnosis, slurm
from .submission import Submission, Task, submissions

if TYPE_CHECKING:
    import pandas as pd

FAILED = (
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "CANCELLED",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "LOST",
)
# Jobs that ended this many seconds ago may not be in the accounting yet.
LAG = 60


@dataclass(frozen=True)
class Entry:
    """One submitted run (or the report) as it stands.

    Attributes:
        job: the task's id. state: PENDING, RUNNING, COMPLETED, FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, CANCELLED, or
            LOST (Slurm knows nothing of it any more). detail: why it waits, how far it is, or the last line that matters.
        left: seconds, by its own pace; time_left: until the job's limit. advice: what to do about a failure.
        log: what the job printed.
    """

    job: str
    run_id: str
    study: str
    state: str
    detail: str = ""
    left: float | None = None
    time_left: int | None = None
    nodes: str = ""
    advice: str = ""
    log: Path = Path()

    @property
    def is_over(self) -> bool:
        return self.state in (*FAILED, "COMPLETED")


def entries(study: str | None = None, *, gone: Collection[str] = ()) -> list[Entry]:
    """The newest submission's word on every run of `study` (of all studies), in the order of submission.

    Args:
        gone: clusters that are no more, and their jobs with them; Slurm is not asked for those.

    Raises:
        SlurmError: Slurm does not answer.
    """
    newest: dict[str, tuple[Submission, Task]] = {}
    for one in submissions(study):
        for task in one.tasks:
            newest[task.run_id or f"report {one.index}"] = one, task
    jobs = slurm.jobs({task.id.partition("_")[0] for one, task in newest.values() if one.cluster not in gone})
    return [
        _entry(one, task, None if one.cluster in gone else jobs.get(task.id), gone=one.cluster in gone)
        for one, task in newest.values()
    ]


def frame(study: str | None = None) -> pd.DataFrame:
    """`entries` as a table for a notebook: one row a run."""
    import pandas as pd

    columns = ["job", "run_id", "study", "state", "detail", "left", "time_left", "nodes", "advice"]
    return pd.DataFrame([asdict(entry) for entry in entries(study)], columns=columns).set_index("run_id")


def live(study: str | None = None, *, every: float = 5.0, timeout: float = 24 * 3600) -> pd.DataFrame:
    """The table in a notebook, renewed in place until all is over (interrupt the kernel to leave it earlier)."""
    from IPython.display import display

    shown, end = None, time.monotonic() + timeout
    while True:
        table = frame(study)
        if shown is None:
            shown = display(table, display_id=True)
        else:
            shown.update(table)
        if time.monotonic() > end or not set(table.state) - {*FAILED, "COMPLETED"}:
            return table
        time.sleep(every)


def counts(found: Iterable[Entry]) -> dict[str, int]:
    """How many are in each state."""
    totals: dict[str, int] = {}
    for entry in found:
        totals[entry.state] = totals.get(entry.state, 0) + 1
    return totals


def log_of(one: Submission, task: Task) -> Path:
    """Where the task's job prints."""
    return one.path / "logs" / f"{task.id}.log"


def _entry(one: Submission, task: Task, job: slurm.Job | None, *, gone: bool) -> Entry:
    run, log = paths.runs() / task.run_id, log_of(one, task)
    what = task.run_id or "report"
    common = {"job": task.id, "run_id": what, "study": one.index, "log": log, "nodes": job.nodes if job else ""}
    record = state(run) if task.run_id else ("complete" if job and job.state == "COMPLETED" else "absent")
    if record == "complete" and (job is None or job.is_over):
        return Entry(state="COMPLETED", **common)
    if gone:
        return Entry(state="LOST", detail=f"cluster {one.cluster} is not up any more", advice="`hpc retry`", **common)
    if job is None:
        written = one.path.stat().st_mtime if not log.exists() else log.stat().st_mtime
        if time.time() - written < LAG:
            return Entry(state="PENDING", detail="Slurm's accounting has not caught up", **common)
        return Entry(state="LOST", detail="Slurm knows nothing of this job any more", advice="`hpc retry`", **common)
    if job.is_waiting:
        again = " (requeued, resumes)" if record in ("stopped", "dead", "running") else ""
        return Entry(state="PENDING", detail=job.reason + again, **common)
    if not job.is_over:
        detail, left = _progress(run) if task.run_id else ("", None)
        return Entry(state="RUNNING", detail=detail, left=left, time_left=job.left, **common)
    reason = str((read_json(run / "status.json") or {}).get("reason", "")) if task.run_id else ""
    ended = "FAILED" if job.state == "COMPLETED" else job.state
    ended, advice = diagnosis.advise(ended, (reason, diagnosis.log_text(log)))
    detail = diagnosis.last_words(reason, log) or job.reason
    return Entry(state=ended, detail=detail, advice=advice, **common)


def _progress(run: Path) -> tuple[str, float | None]:
    """(how far, seconds left by its own pace) of a run under way."""
    progress, status = read_json(run / "progress.json"), read_json(run / "status.json")
    if not progress or not progress.get("steps"):
        return "starting", None
    done, total = progress["step"], progress["steps"]
    from datetime import datetime

    begun = progress.get("begun") or (datetime.fromisoformat(status["started"]).timestamp() if status else None)
    pace = (progress["at"] - begun) / done if begun and done >= 5 else None  # the first steps say little
    return f"step {done} of {total} ({done / total:.0%})", pace * (total - done) if pace else None
