"""This job in Slurm: requeue, time limit, accounting."""

from __future__ import annotations

import re
import time

from hpc_utils import provenance
from hpc_utils.provenance.tools import run_tool

from .check import Context, Facts, Result, failed, not_applicable, passed, unknown

REQUEUE = "a time limit, and Requeue=1: a run that reaches the limit continues in the next job"
ACCOUNTED = "`sacct` knows the job"
OUTSIDE = "not in a Slurm job"


def measure(context: Context) -> Facts:
    """What `scontrol` and `sacct` print; accounting may list a new job some seconds late."""
    job = provenance.job().id
    if not job:
        return {"job": None}
    faults: list[str] = []
    shown = parse_job(run_tool("scontrol", "show", "job", job, faults=faults) or "")
    return {
        "job": job,
        "shown": {name: shown.get(name) for name in ("JobState", "TimeLimit", "Requeue", "Restarts")},
        "faults": faults,
        "accounting_fault": _accounting_fault(job, context.share(0.4, 8.0)),
    }


def parse_job(text: str) -> dict[str, str]:
    """`scontrol show job`'s KEY=VALUE pairs; a value ends at the first space."""
    return dict(re.findall(r"(?:^|\s)([\w/:]+)=(\S*)", text))


def _accounting_fault(job: str, seconds: float) -> str:
    """Why sacct does not list the job within `seconds`; "" if it does."""
    end = time.monotonic() + seconds
    while True:
        faults: list[str] = []
        options = ("--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=JobID,State")
        printed = run_tool("sacct", *options, faults=faults)
        if printed is None:  # missing, failed, or too late
            return "; ".join(faults) or "sacct is not installed here"
        if printed.strip():
            return ""
        if time.monotonic() > end:
            return "sacct does not know this job"
        time.sleep(0.5)


def judge_limit(facts: Facts) -> Result:
    """Time limit and requeue."""
    if not facts["job"]:
        return not_applicable(OUTSIDE)
    shown, faults = facts["shown"], "; ".join(facts["faults"])
    if "Invalid job id" in faults or shown["JobState"] not in (None, "RUNNING", "COMPLETING"):
        fix = "the variables of an ended job were inherited: use a new shell (`env | grep ^SLURM_`)"
        return failed(f"job {facts['job']} does not run", REQUEUE, fix)
    if shown["TimeLimit"] is None:
        fix = "`scontrol show job $SLURM_JOB_ID` must work on a compute node"
        return unknown(f"scontrol does not answer ({faults or 'not installed here'})", REQUEUE, fix)
    measured = f"TimeLimit={shown['TimeLimit']}, Requeue={shown['Requeue']}"
    if shown["Requeue"] == "0":
        return failed(measured, REQUEUE, "add `#SBATCH --requeue` (and --open-mode=append, which keeps the log)")
    if shown["TimeLimit"] in ("UNLIMITED", "INVALID"):
        return unknown(f"{measured}: no limit, so no signal before it", REQUEUE, "request a limit: `--time`")
    return passed(measured, REQUEUE)


def judge_accounting(facts: Facts) -> Result:
    """Accounting is optional: without it Slurm soon forgets ended jobs."""
    if not facts["job"]:
        return not_applicable(OUTSIDE)
    if not facts["accounting_fault"]:
        return passed("sacct answers", ACCOUNTED)
    fix = "without accounting `hpc status` knows ended jobs only from their records; ask the site's support for sacct"
    return unknown(facts["accounting_fault"], ACCOUNTED, fix)
