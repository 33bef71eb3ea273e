"""Slurm's own commands, asked and answered: nothing here knows of runs.

Every command gets its arguments as a list and an environment without the traces of a job that we may stand in:
`sbatch` inside a job (JupyterLab on Open OnDemand is one) would hand them on.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PREFIXES = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "TORCHELASTIC_", "PMI", "PMIX_")
# What says where Slurm is, not that we are in a job.
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS")
LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR")
LAUNCHED += ("MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HPC_RUN_DIR")
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "RESIZING")
ACTIVE = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING")

_TIMEOUT = 60  # s that one of Slurm's commands may take


class SlurmError(RuntimeError):
    """Slurm is not there, does not answer, or refused; says which command, its words, and what to do."""

    exit_code = 2


@dataclass(frozen=True)
class Job:
    """What Slurm says of one job or array task.

    Attributes:
        id: `123`, or `123_4` for an array task. state: such as PENDING, in full and without what follows it.
        reason: why it waits, or how it ended (exit code and signal). elapsed, left: seconds, None if not known.
        nodes: where it ran.
    """

    id: str
    state: str
    reason: str = ""
    elapsed: int | None = None
    left: int | None = None
    nodes: str = ""
    restarts: int = 0

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING

    @property
    def is_over(self) -> bool:
        return self.state not in WAITING + ACTIVE


def clean_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """`environment` (by default ours) without a trace of the job and the launcher that we may run in."""
    environment = os.environ if environment is None else environment
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT or not (name.startswith(PREFIXES) or name in LAUNCHED)
    }


def ask(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
    """What one of Slurm's commands prints.

    Raises:
        SlurmError: it is not installed, failed, or did not answer within a minute.
    """
    command = [str(part) for part in command]
    try:
        done = subprocess.run(
            command,
            env=clean_environment() | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
        )
    except FileNotFoundError:
        raise SlurmError(
            f"no {command[0]} here: run this on a login node of the cluster, or rehearse on this machine "
            f"with `hpc cluster up` and --cluster rehearsal, or run the study without Slurm: --local"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(
            f"{command[0]} did not answer within {_TIMEOUT} s: is the controller up? (`sinfo`)"
        ) from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or "(no word)"
        raise SlurmError(f"{command[0]} refused (exit code {done.returncode}): {said}{_advice(said)}")
    return done.stdout


def sbatch(
    options: Sequence[str],
    script: Path,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Submit `script`; the job's id."""
    said = ask(["sbatch", "--parsable", *options, str(script), *arguments], environment=environment)
    return said.strip().splitlines()[-1].partition(";")[0]


def scancel(jobs: Iterable[str]) -> None:
    """End jobs or array tasks; those that are over already are no error."""
    jobs = list(jobs)
    if jobs:
        with contextlib.suppress(SlurmError):  # an old id in the list makes scancel refuse, after ending the rest
            ask(["scancel", "--quiet", *jobs])


def wait(job: str, *, through: Sequence[str] = WAITING + ACTIVE, every: float = 1.0) -> str:
    """Until a job is `through` these states, by default over; its state. Not `sbatch --wait`, which looks ever more
    rarely."""
    while True:
        state = ask(["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}"]).strip()
        if state not in through:
            return state or "UNKNOWN"
        time.sleep(every)


def is_over(job: str) -> bool:
    """Whether Slurm answers that this job is not in the queue any more; False if it does not answer."""
    try:
        # For an array's number squeue lists all of its tasks, but one of them alone has that id.
        said = ask(["squeue", "--noheader", "--format=%A", f"--jobs={job}"])
        return job not in said.split()
    except SlurmError as error:
        return "Invalid job id" in str(error)


def nodes(partition: str) -> list[str]:
    """The names of a partition's nodes."""
    return sorted(set(ask(["sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N"]).split()))


def jobs(ids: Iterable[str]) -> dict[str, Job]:
    """What Slurm knows of these jobs, array tasks apart: the queue's word, else the accounting's."""
    ids = list(ids)
    if not ids:
        return {}
    found = {job.id: job for job in _accounted(ids)}
    return found | {job.id: job for job in _queued(ids)}


def _queued(ids: Sequence[str]) -> list[Job]:
    """Jobs that wait or run; those that ended minutes ago too, but the accounting knows them better."""
    # Asked for all of the user's jobs: for an id that it has forgotten squeue answers with an error.
    fields = "%i|%T|%r|%M|%L|%N"
    said = ask(["squeue", "--me", "--noheader", "--array", "--states=all", f"--format={fields}"])
    wanted, found = set(ids), []
    for line in said.splitlines():
        job, state, reason, elapsed, left, nodes = (line.split("|") + [""] * 6)[:6]
        if job.partition("_")[0] in wanted and state in WAITING + ACTIVE:
            reason = "" if reason == "None" else reason
            found.append(Job(job, state, reason, seconds(elapsed), seconds(left), nodes))
    return found


def _accounted(ids: Sequence[str]) -> list[Job]:
    fields = "JobID,State,ExitCode,ElapsedRaw,NodeList,Restarts"
    command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(ids)}"]
    try:
        said = ask([*command, f"--format={fields}"])
    except SlurmError:
        try:  # before 23.02 there is no Restarts
            said = ask([*command, f"--format={fields.removesuffix(',Restarts')}"])
        except SlurmError:
            return []  # a site without accounting: the queue and our own records must do
    found = []
    for line in said.splitlines():
        job, state, code, elapsed, nodes, restarts = (line.split("|") + [""] * 6)[:6]
        if re.fullmatch(r"\d+(_\d+)?", job):
            word = state.split()[0].rstrip("+") if state else "UNKNOWN"
            took = int(elapsed) if elapsed.isdigit() else None
            again = int(restarts) if restarts.isdigit() else 0
            found.append(Job(job, word, _exit(code), took, None, nodes, again))
    return found


def _exit(code: str) -> str:
    """`0:9` as Slurm writes it, in words."""
    status, _, signal = code.partition(":")
    if signal not in ("", "0"):
        return f"ended by signal {signal}"
    return f"exit code {status}" if status not in ("", "0") else ""


def seconds(text: str) -> int | None:
    """Slurm's `[days-][hours:]minutes:seconds` in seconds; None for UNLIMITED, INVALID and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if not match:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _advice(said: str) -> str:
    """What to do about a refusal that is known."""
    known = {
        r"invalid account|Invalid account or account/partition": "set [slurm] account in the cluster file "
        "(`sacctmgr show associations user=$USER` lists yours)",
        r"invalid partition|Invalid partition name": "set the node type's partition in the cluster file (`sinfo -s` lists them)",
        r"Requested time limit is invalid|time limit": "lower [slurm] time in the cluster file",
        r"Requested node configuration is not available|Invalid generic resource": "the node type in the cluster file "
        "asks for more GPUs, cores or memory than the partition's nodes have (`scontrol show node`)",
        r"Unable to contact slurm controller|Connection refused": "is the controller up? (`scontrol ping`; for the "
        "rehearsal cluster `hpc cluster status`)",
        r"MaxSubmitJob|QOSMaxSubmit|AssocMaxSubmit|job submit limit": "you have as many jobs queued as you may: wait, then "
        "`hpc submit` again: it adds what is missing",
    }
    for pattern, advice in known.items():
        if re.search(pattern, said, re.I):
            return f"\n{advice}"
    return ""
