"""The state of submitted runs: our records joined with the state in Slurm."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from hpc_utils import paths, records
from hpc_utils.records import atomic
from hpc_utils.records.folder import SACCT, read_json, state

from . import failure, slurm_commands
from .slurm_commands import Job, JobState
from .submit import Submission, Task, submissions

OURS = "hpc-"  # how the names of jobs begin that `hpc` submits
LAG = 60  # s after its end in which a job may not be in the accounting yet


@dataclass(frozen=True)
class Entry:
    """One submitted run (or the report) and its state.

    Attributes:
        job: the task's id. detail: why it waits, its progress, or the line of its log that explains a failure.
        left: seconds, by its own pace; time_left: until the job's limit. advice: what to do about a failure.
        log: the job's log.
    """

    job: str
    run_id: str
    study: str
    state: JobState
    detail: str = ""
    left: float | None = None
    time_left: int | None = None
    nodes: str = ""
    advice: str = ""
    log: Path = Path()

    @property
    def is_over(self) -> bool:
        return self.state.is_over

    @property
    def has_failed(self) -> bool:
        return self.state.is_over and self.state != "COMPLETED"


def archive_accounting(study: str) -> None:
    """Write `sacct.csv` into the run folders of a study that jobs of this cluster made, once they have ended."""
    for run in records.read_study(study).runs:
        folder = paths.runs() / run.run_id
        job = (read_json(folder / "provenance.json") or {}).get("job") or {}
        if job.get("id") and state(folder) == "complete" and not (folder / SACCT).exists():
            text = slurm_commands.accounting(job["id"], job["name"])
            if text.count("\n") > 1:
                atomic.write_text(folder / SACCT, text)


def entries(study: str | None = None, *, gone: Collection[str] = ()) -> list[Entry]:
    """The newest submission's entry of every run of `study`, in the order of submission; without a study of all, and
    of the jobs that were submitted by hand.

    Args:
        gone: clusters that have ended, and their jobs with them; Slurm is not queried for those, nor for jobs by
            hand.

    Raises:
        SlurmError: Slurm does not answer.
    """
    newest: dict[str, tuple[Submission, Task]] = {}
    for submission in submissions(study):
        for task in submission.tasks:
            newest[task.run_id or f"report {submission.index}"] = submission, task
    job_ids = {task.id.partition("_")[0] for submission, task in newest.values() if submission.cluster not in gone}
    jobs = slurm_commands.jobs(job_ids)
    run_entries = []
    for submission, task in newest.values():
        job = submission.job(task, jobs)
        is_replaced = job is None and task.id in jobs  # by a job of the next cluster of that name
        log = submission.log(task.id)
        entry = _entry(submission, task, job, log, gone=is_replaced or submission.cluster in gone)
        if entry.advice and not task.run_id:  # `hpc retry` is for runs
            logs = f"`hpc logs {task.id}`, then " if entry.log.exists() else ""
            entry = replace(entry, advice=f"{logs}`hpc report {submission.index}`")
        run_entries.append(entry)
    return run_entries if study or gone else run_entries + _by_hand(newest)


def _by_hand(submitted: Collection[str]) -> list[Entry]:
    """The jobs of today that no submission made, with the run that each makes now, or those that an ended one
    made."""
    hand = Submission(path=paths.root(), study="", source="", index="by hand", cluster="", node_type="")
    try:
        jobs = [job for job in slurm_commands.of_folder(hand.path) if not job.name.startswith(OURS)]
    except slurm_commands.SlurmError:  # no Slurm here
        return []
    made: dict[tuple[str, str], list[Path]] = {}
    for folder in paths.runs().glob("*") if jobs else ():
        job_record = (read_json(folder / "provenance.json") or {}).get("job") or {}
        if folder.name not in submitted:
            made.setdefault((job_record.get("id"), job_record.get("name")), []).append(folder)
    hand_entries = []
    for job in jobs:
        folders = made.get((job.id, job.name), [])
        log = next(hand.path.glob(f"slurm-*-{job.id}.log"), hand.path / f"slurm-{job.id}.out")
        if not job.state.is_over:
            folders = [folder for folder in folders if state(folder) == "running"]
        # One that made no run here may be of other results.
        for name in [folder.name for folder in folders] or [""] * (job.state != "COMPLETED"):
            entry = _entry(hand, Task(job.id, name), job, log, gone=False)
            advice = entry.advice.replace("`hpc retry`", "the same `sbatch` command")
            hand_entries.append(replace(entry, run_id=name or f"({job.name})", advice=advice))
    return hand_entries


def _entry(submission: Submission, task: Task, job: Job | None, log: Path, *, gone: bool) -> Entry:
    def entry(state: str, detail: str = "", **fields: object) -> Entry:
        nodes = job.nodes if job else ""
        name = task.run_id or "report"
        return Entry(task.id, name, submission.index, JobState(state), detail, log=log, nodes=nodes, **fields)

    run = paths.runs() / task.run_id
    record = state(run)  # absent for the report
    reason = str((read_json(run / "status.json") or {}).get("reason", ""))
    done = record == "complete"
    if not task.run_id:
        by_job = job.state == "COMPLETED" if job else "report:" in failure.tail(log, 1)  # its last line
        done = by_job or _has_report(submission, log)
    if (job is None or job.state.is_over) and done:
        return entry("COMPLETED")
    if record == "failed" and (gone or job is None):  # its own record outlives Slurm's
        ended, line, advice = failure.explain_job("FAILED", reason, log)
        return entry(ended, line, advice=advice)
    if gone:
        return entry("LOST", f"its job ended with cluster {submission.cluster}", advice="`hpc retry`")
    if job is None:
        written = (log if log.exists() else submission.path).stat().st_mtime
        if time.time() - written < LAG:
            return entry("PENDING", "Slurm's accounting has not caught up")
        return entry("LOST", "Slurm does not know this job any more", advice="`hpc retry`")
    if job.state.is_waiting:
        again = " (requeued, resumes)" if record in ("stopped", "dead", "running") else ""
        return entry("PENDING", job.reason + again)
    if not job.state.is_over:
        detail, left = progress(run) if record == "running" else ("", None)
        if task.run_id and record != "running":
            detail = "waiting for other runs on its cores, or starting"
        return entry("RUNNING", detail, left=left, time_left=job.left)
    ended = "FAILED" if job.state == "COMPLETED" else job.state
    ended, line, advice = failure.explain_job(ended, reason, log)
    return entry(ended, line or job.reason, advice=advice)


def _has_report(submission: Submission, log: Path) -> bool:
    """Whether `hpc report` has written the report after its job ended or, if that did not begin, after the
    submission."""
    page = paths.results() / "report" / submission.index / "index.html"
    before = log if log.exists() else submission.path / "submission.json"
    return page.exists() and page.stat().st_mtime >= before.stat().st_mtime


def progress(run: Path) -> tuple[str, float | None]:
    """(progress, seconds left by its own pace) of a running run."""
    progress = read_json(run / "progress.json")
    status = read_json(run / "status.json")
    if not progress or not status or not progress.get("steps"):
        return "starting", None
    done, total = progress["step"], progress["steps"]
    begun = datetime.fromisoformat(status["started"]).timestamp()
    pace = (progress["at"] - begun) / done if done >= 5 else None  # the first steps are not typical
    return f"step {done} of {total} ({done / total:.0%})", pace * (total - done) if pace else None
