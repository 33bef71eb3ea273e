"""What Slurm says of this job: may it be requeued, when does it end, is it accounted for?"""

from __future__ import annotations

import os
import re
import time

from hpc_utils import provenance
from hpc_utils.provenance.tools import run_tool

from .bench import Bench
from .check import Check, Facts, failed, not_applicable, passed, unknown

REQUEUE = "a time limit, and Requeue=1: a run that reaches the limit goes on in the next job"
ACCOUNTED = "`sacct` knows the job"
OUTSIDE = "not in a Slurm job"


def look(bench: Bench) -> Facts:
    """What `scontrol` and `sacct` answer; accounting may hear of a new job some seconds late."""
    job = provenance.job().id if os.environ.get("SLURM_JOB_ID") else None
    if not job:
        return {"job": None}
    faults: list[str] = []
    shown = parse(run_tool("scontrol", "show", "job", job, faults=faults) or "")
    settings = parse_settings(run_tool("scontrol", "show", "config", faults=[]) or "")
    return {
        "job": job,
        "shown": {name: shown.get(name) for name in ("JobState", "TimeLimit", "Requeue", "Restarts")},
        "accounting": _accounting(job, bench.share(0.4, 8.0)),
        "storage": settings.get("AccountingStorageType"),
        "min_job_age": settings.get("MinJobAge"),
        "faults": faults,
    }


def parse(text: str) -> dict[str, str]:
    """`scontrol show job`'s KEY=VALUE pairs; those whose values hold spaces are cut at the first."""
    return dict(re.findall(r"(?:^|\s)([\w/:]+)=(\S*)", text))


def parse_settings(text: str) -> dict[str, str]:
    """`scontrol show config`'s lines `MinJobAge   = 300 sec`."""
    return dict(re.findall(r"^(\w+) *= (.*?) *$", text, re.MULTILINE))


def judge_limit(facts: Facts) -> Check:
    """Time limit and requeue."""
    if not facts["job"]:
        return not_applicable(OUTSIDE)
    shown = facts["shown"]
    faults = "; ".join(facts["faults"])
    if "Invalid job id" in faults or shown["JobState"] not in (None, "RUNNING", "COMPLETING"):
        fix = "variables of a job that is over were inherited: use a fresh shell (`env | grep ^SLURM_`)"
        return failed(f"job {facts['job']} does not run", REQUEUE, fix)
    if shown["TimeLimit"] is None:
        fix = "`scontrol show job $SLURM_JOB_ID` should answer on a compute node"
        return unknown(f"scontrol says nothing ({faults or 'not installed here'})", REQUEUE, fix)
    said = f"TimeLimit={shown['TimeLimit']}, Requeue={shown['Requeue']}"
    if shown["Requeue"] == "0":
        return failed(said, REQUEUE, "add `#SBATCH --requeue` (and --open-mode=append, which keeps the log)")
    if shown["TimeLimit"] in ("UNLIMITED", "INVALID"):
        return unknown(f"{said}: no limit, so no signal before it", REQUEUE, "ask for a limit: `--time`")
    return passed(said, REQUEUE)


def judge_accounting(facts: Facts) -> Check:
    """Without accounting the study can still be run; what became of its jobs is then soon forgotten."""
    if not facts["job"]:
        return not_applicable(OUTSIDE)
    known, said = facts["accounting"]["known"], facts["accounting"]["said"]
    if known:
        return passed(f"sacct answers ({facts['storage'] or 'storage not named'})", ACCOUNTED)
    age = f"; without it Slurm forgets a job {facts['min_job_age']} after its end" if facts["min_job_age"] else ""
    fix = "`hpc status` then knows of ended jobs only what our own records say; ask the site's support for sacct"
    return unknown(f"{said or 'sacct does not know this job'}{age}", ACCOUNTED, fix)


def _accounting(job: str, patience: float) -> Facts:
    """Whether sacct knows the job within `patience` seconds, and what it said otherwise."""
    end = time.monotonic() + patience
    while True:
        faults: list[str] = []
        said = run_tool("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=JobID,State",
                   faults=faults)  # fmt: skip
        if said and said.strip():
            return {"known": True, "said": said.strip().splitlines()[0]}
        if said is None or time.monotonic() > end:  # missing, refused, or not in time
            return {"known": False, "said": "; ".join(faults) or ("no sacct here" if said is None else "")}
        time.sleep(0.5)
