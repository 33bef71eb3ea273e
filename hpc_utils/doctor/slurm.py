"""This job in Slurm: requeue, time limit, accounting."""

from __future__ import annotations

import re
import time

from hpc_utils import provenance
from hpc_utils.provenance.tools import run_tool

from .check import Context, Facts, Result, failed, judge, not_applicable, passed, unknown

OUTSIDE = not_applicable("not in a Slurm job")


def measure_job(context: Context) -> Facts:
    """What `scontrol` prints of this job."""
    job, faults = provenance.job().id, []
    shown = run_tool("scontrol", "show", "job", job, faults=faults) if job else None
    return {"job": job, "shown": parse_job(shown or ""), "faults": faults}


def parse_job(text: str) -> dict[str, str]:
    """State, limit and requeue of `scontrol show job`'s KEY=VALUE pairs; a value ends at the first space."""
    return dict(re.findall(r"(?:^|\s)(JobState|TimeLimit|Requeue)=(\S*)", text))


@judge("time limit", "a time limit, and Requeue=1: a run that reaches the limit continues in the next job", each=True)
def judge_job(facts: Facts) -> Result:
    """Time limit and requeue."""
    if not facts["job"]:
        return OUTSIDE
    shown, faults = facts["shown"], "; ".join(facts["faults"])
    if "Invalid job id" in faults or shown.get("JobState", "RUNNING") not in ("RUNNING", "COMPLETING"):
        fix = "the variables of an ended job were inherited: use a new shell (`env | grep ^SLURM_`)"
        return failed(f"job {facts['job']} does not run", fix)
    if not shown:
        fix = "`scontrol show job $SLURM_JOB_ID` must work on a compute node"
        return unknown(f"scontrol does not answer ({faults or 'not installed here'})", fix)
    measured = f"TimeLimit={shown['TimeLimit']}, Requeue={shown['Requeue']}"
    if shown["Requeue"] == "0":
        return failed(measured, "add `#SBATCH --requeue` (and --open-mode=append, which keeps the log)")
    if shown["TimeLimit"] == "UNLIMITED":
        return unknown(f"{measured}: no limit, so no signal before it", "request a limit: `--time`")
    return passed(measured)


def measure_accounting(context: Context) -> Facts:
    """Why sacct does not list the job; accounting may list a new job some seconds late."""
    job, faults = provenance.job().id, []
    options = ("--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=JobID,State")
    end = time.monotonic() + context.share(0.4, 8.0)
    while job and time.monotonic() < end:
        printed = run_tool("sacct", *options, faults=faults)
        if printed is None:  # missing, failed, or too late
            return {"job": job, "fault": "; ".join(faults) or "sacct is not installed here"}
        if printed.strip():
            return {"job": job, "fault": ""}
        time.sleep(0.5)
    return {"job": job, "fault": "sacct does not know this job"}


@judge("accounting", "`sacct` knows the job", each=True)
def judge_accounting(facts: Facts) -> Result:
    """Accounting is optional: without it Slurm soon forgets ended jobs."""
    if not facts["job"]:
        return OUTSIDE
    fix = "without accounting `hpc status` knows ended jobs only from their records; ask the site's support for sacct"
    return unknown(facts["fault"], fix) if facts["fault"] else passed("sacct answers")
