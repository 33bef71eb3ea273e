"""This job in Slurm: requeue and time limit."""

from __future__ import annotations

import re

from hpc_utils import provenance
from hpc_utils.provenance.tools import run_tool

from .check import Context, Facts, Result, failed, judge, not_applicable, passed, unknown


def measure_job(context: Context) -> Facts:
    """What `scontrol` prints of this job."""
    job = provenance.job().id
    faults = []
    job_text = run_tool("scontrol", "show", "job", job, faults=faults) if job else None
    return {"job": job, "shown": parse_job(job_text or ""), "faults": faults}


def parse_job(text: str) -> dict[str, str]:
    """State, limit and requeue of `scontrol show job`'s KEY=VALUE pairs; a value ends at the first space."""
    return dict(re.findall(r"(?:^|\s)(JobState|TimeLimit|Requeue)=(\S*)", text))


@judge("time limit", "a time limit, and Requeue=1: a run that reaches the limit continues in the next job", each=True)
def judge_job(facts: Facts) -> Result:
    """Time limit and requeue."""
    if not facts["job"]:
        return not_applicable("not in a Slurm job")
    fields = facts["shown"]
    faults = "; ".join(facts["faults"])
    if "Invalid job id" in faults or fields.get("JobState", "RUNNING") not in ("RUNNING", "COMPLETING"):
        fix = "the variables of an ended job were inherited: use a new shell (`env | grep ^SLURM_`)"
        return failed(f"job {facts['job']} does not run", fix)
    if not fields:
        fix = "`scontrol show job $SLURM_JOB_ID` must work on a compute node"
        return unknown(f"scontrol does not answer ({faults or 'not installed here'})", fix)
    measured = f"TimeLimit={fields['TimeLimit']}, Requeue={fields['Requeue']}"
    if fields["Requeue"] == "0":
        return failed(measured, "add `#SBATCH --requeue` (and --open-mode=append, which keeps the log)")
    if fields["TimeLimit"] == "UNLIMITED":
        return unknown(f"{measured}: no limit, so no signal before it", "request a limit: `--time`")
    return passed(measured)
