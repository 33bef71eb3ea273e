"""Slurm's commands and their output. Nothing here depends on runs.

Every command gets its arguments as a list, and an environment without the variables of a job that this process may be
in: `sbatch` inside a job (JupyterLab on Open OnDemand is one) would pass them on.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import workspace
from hpc_utils.provenance.cpu import numbers

OF_A_JOB = re.compile(
    rf"(?!SLURM_CONF$|SLURM_CLUSTERS$|SLURM_TIME_FORMAT$|SBATCH_(ACCOUNT|PARTITION|QOS)$)"  # location of Slurm, and account
    rf"((SLURM|SLURMD|SRUN|SBATCH)_|PMI|OMP_NUM_THREADS$|(CUDA|ROCR)_VISIBLE_DEVICES$|({workspace.RANK_VARIABLES.pattern})$)"
)
ACCOUNTED = "JobID,Elapsed,AveCPU,AveRSS,MaxRSS,AllocTRES,State"  # the columns of `accounting`
LONGEST_PAUSE = 30.0
_TIMEOUT = 60  # s that one of Slurm's commands may take


# States of a job that has not run, or will run again, and of one that runs. All others are final, unknown ones too.
_WAITING = re.compile(
    "PENDING|CONFIGURING|REQUEUED|REQUEUE_FED|REQUEUE_HOLD|RESV_DEL_HOLD|SPECIAL_EXIT|SUSPENDED|STOPPED|RESIZING"
)
_ACTIVE = re.compile("RUNNING|COMPLETING|STAGE_OUT|SIGNALING")


class JobState(str):
    """Slurm's name for the state of a job; LOST is ours: Slurm does not know the job any more."""

    @property
    def is_waiting(self) -> bool:
        return bool(_WAITING.fullmatch(self))

    @property
    def is_over(self) -> bool:
        return not (self.is_waiting or _ACTIVE.fullmatch(self))


class SlurmError(RuntimeError):
    """Slurm is missing, does not answer, or refused; the message has the command, its output, and advice."""

    exit_code = 2


@dataclass(frozen=True)
class Job:
    """Slurm's data of one job or array task.

    Attributes:
        id: `123`, or `123_4` for an array task.
        reason: why it waits, or how it ended, as Slurm writes it: `exit code 1:0`, or `0:9` for signal 9.
        left: seconds until its limit, None if not known. nodes: where it ran. name, folder: as submitted.
    """

    id: str
    state: JobState
    reason: str = ""
    left: int | None = None
    nodes: str = ""
    name: str = ""
    folder: str = ""


def clean_environment() -> dict[str, str]:
    """The environment without variables of a job or a launcher that this process may be in."""
    return {name: value for name, value in workspace.environment().items() if not OF_A_JOB.match(name)}


def ask(command: Sequence[object]) -> str:
    """The output of one of Slurm's commands.

    Raises:
        SlurmError: it is not installed, failed, or did not answer within a minute.
    """
    return _run(command, {}).stdout


def _run(command: Sequence[object], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            env=clean_environment() | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
        )
    except FileNotFoundError:
        raise SlurmError(
            f"no {words[0]} here: run this on a login node of the cluster, or rehearse on this machine "
            f"with `hpc cluster up` and --cluster rehearsal, or run the study without Slurm: hpc study run"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]} did not answer within {_TIMEOUT} s: is the controller up? (`sinfo`)") from None
    if done.returncode:
        from . import symptoms  # which compiles its catalogue

        output = (done.stderr or done.stdout).strip() or "(no output)"
        finding = symptoms.first_cause(output)
        advice = f"\n{finding.symptom.remedy}" if finding and finding.is_known else ""
        raise SlurmError(f"{words[0]} refused (exit code {done.returncode}): {output}{advice}")
    return done


def sbatch(options: Sequence[str], script: Path, arguments: Sequence[str], environment: dict[str, str]) -> str:
    """Submit `script`; the job's id: the last line that sbatch prints, whatever a site's wrapper prints before.

    Raises:
        SlurmError: as `ask`; there is no id on it.
    """
    done = _run(["sbatch", "--parsable", *options, script, *arguments], environment)
    if answer := re.search(r"^(\d+)(;\S+)?\s*\Z", done.stdout, re.M):
        return answer[1]
    output = " | ".join((done.stdout + done.stderr).splitlines()) or "(no output)"
    raise SlurmError(f"sbatch answered without a job's id (`squeue --me` shows whether there is a job): {output}")


def scancel(jobs: Iterable[str]) -> None:
    """End jobs or array tasks; those that are over already are no error."""
    if jobs := list(jobs):
        with contextlib.suppress(SlurmError):  # an old id in the list makes scancel refuse, after ending the rest
            ask(["scancel", "--quiet", *jobs])


def wait(job: str, *, until_it_runs: bool = False) -> JobState:
    """Wait until the job ends, or at least runs; returns its state. `sbatch --wait` polls too rarely."""
    for pause in pauses():
        state = JobState(ask(["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}"]).strip())
        if state.is_over or (until_it_runs and not state.is_waiting):
            break
        time.sleep(pause)
    return state


def pauses() -> Iterator[float]:
    """The pauses between questions about a job (s): they grow with the time that it takes, since all users' questions load Slurm's
    one controller."""
    pause = 1.0
    while True:
        yield pause
        pause = min(1.2 * pause, LONGEST_PAUSE)


def is_gone(job: str) -> bool:
    """Whether Slurm answers that this job is not in the queue any more; False if it does not answer."""
    try:
        # For an array's number squeue lists all of its tasks, but one of them alone has that id.
        return job not in ask(["squeue", "--noheader", "--format=%A", f"--jobs={job}"]).split()
    except SlurmError as error:
        return "Invalid job id" in str(error)


def nodes(partition: str) -> list[str]:
    """The names of a partition's nodes. Raises SlurmError if it has none."""
    names = set(ask(["sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N"]).split())
    if not names:
        raise SlurmError(
            f"no partition {partition!r} with nodes here: `sinfo` lists them; set the node type's `partition`"
        )
    return sorted(names)


def jobs(ids: Iterable[str]) -> dict[str, Job]:
    """Slurm's data of these jobs, one entry an array task: from the queue, else from the accounting."""
    if not (ids := list(ids)):
        return {}
    return {job.id: job for job in _listed(ids) if job.id.partition("_")[0] in ids}


def of_folder(folder: Path) -> list[Job]:
    """The user's jobs that were submitted in `folder`: those that wait or run, and those that ended today."""
    return [job for job in _listed([]) if job.folder == str(folder)]


def _listed(ids: Sequence[str]) -> Iterable[Job]:
    """The user's jobs in the queue, and in the accounting these jobs (without ids those that ended today).

    The queue knows what waits, runs, or ended minutes ago; of what has ended the accounting knows more, but later.
    """
    queued = _queued()
    accounted = _accounted(ids)
    active = [job for job in queued if not job.state.is_over]
    ended = [job for job in accounted if job.state.is_over]
    return {job.id: job for job in [*accounted, *queued, *ended, *active]}.values()


def _queued() -> list[Job]:
    """The user's jobs in the queue."""
    # Queried for all of the user's jobs: squeue fails for an id that it has forgotten.
    output = ask(["squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%T|%r|%L|%N|%j|%Z"])
    rows = [line.split("|", 6) for line in output.splitlines()]
    return [
        Job(job, JobState(state), "" if reason == "None" else reason, seconds(left), nodes, name, folder)
        for job, state, reason, left, nodes, name, folder in rows
    ]


def _accounted(ids: Sequence[str]) -> list[Job]:
    """The data of these jobs; without ids of all the user's jobs that ended today."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", *([f"--jobs={','.join(ids)}"] if ids else ())]
    try:
        output = ask([*command, "--format=JobID,State,ExitCode,NodeList,JobName,WorkDir"])
    except SlurmError:
        return []  # a site without accounting: the queue and our own records must do
    rows = [line.split("|", 5) for line in output.splitlines()]
    states = [JobState(row[1].partition(" ")[0].rstrip("+")) for row in rows]  # may be `CANCELLED by 1000`
    return [
        Job(job, state, f"exit code {code}" if state.is_over else "", None, nodes, name, folder)
        for state, (listed, _, code, nodes, name, folder) in zip(states, rows, strict=True)
        for job in _tasks(listed)
        if state
    ]


def _tasks(listed: str) -> list[str]:
    """The ids in a row of the accounting: `7`, `7_1`, or those of the tasks of an array that never started,
    `7_[0-2,5%4]`."""
    if array := re.fullmatch(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]", listed):
        return [f"{array[1]}_{task}" for task in numbers(array[2])]
    return [listed] if re.fullmatch(r"\d+(_\d+)?", listed) else []


def accounting(job: str, name: str) -> str:
    """`sacct` of the job of that id and name, and of its steps, as CSV; "" where there is no accounting."""
    try:
        output = ask(["sacct", "--parsable2", f"--jobs={job}", f"--name={name}", f"--format={ACCOUNTED}"])
    except SlurmError:
        return ""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(line.split("|") for line in output.splitlines())
    return text.getvalue()


def seconds(text: str) -> int | None:
    """Slurm's `[days-][hours:]minutes:seconds` in seconds; None for UNLIMITED, INVALID and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if not match:
        return None
    days, hours, minutes, secs = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs
