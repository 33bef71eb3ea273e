"""Why a job failed: the last line that matters, and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

from .logs import tail, without_colours
from .slurm_commands import JobState

# (pattern in a log, the state that it means if Slurm does not know better, what to do). The first that is found counts.
KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"CUDA out of memory|OutOfMemoryError|HIP out of memory", "", "lower batch_per_device or global_batch, or use precision=bf16"),
    (r"oom[-_ ]kill|Exceeded job memory limit|exceeded memory limit|MemoryError|DefaultCPUAllocator: can't allocate", "OUT_OF_MEMORY",
     "ask for more memory (the node type's `memory` in the cluster file), or lower the batch or loader_workers"),
    (r"No space left on device|Disk quota exceeded", "", "free space or move the results (HPC_RESULTS), then `hpc retry`: it resumes from the last checkpoint"),
    (r"the loss became (nan|inf)|NonFiniteLoss", "", "a smaller lr, a longer lr_warmup_epochs, or precision=fp32"),
    (r"NCCL.*(unhandled|timeout|timed out)|Watchdog caught collective|ProcessGroupNCCL", "", "`hpc doctor --cluster NAME` looks at the network; NCCL_DEBUG=INFO in the node type's environment shows more"),
    (r"Connection refused|Connection reset|Connection closed by peer|RendezvousTimeoutError|rendezvous", "", "a node did not join: `hpc retry`; if it comes back, `hpc doctor --cluster NAME`"),
    (r"no kernel image is available|not compatible with the current PyTorch", "", "this torch build lacks the GPU's architecture: install the build that the cluster file names ([software] torch)"),
    (r"torch sees no GPU", "", "a CPU build of torch, or no GPU was asked for: see [software] torch and the node type's gpus"),
    (r"hpc data fetch", "", "fetch the data set where there is internet (a login node), then `hpc retry`"),
    (r"module: command not found|Lmod has detected|ModuleNotFoundError|No module named|command not found", "", "the job's environment lacks it: see [software] in the cluster file"),
    (r"ConfigError|unknown parameter|does not divide", "", "correct the study or the cluster file, then submit again"),
    (r"is being run by process|locked by another process", "", "another job works on this run: wait for it, or `hpc cancel` one of the two"),
)  # fmt: skip

# What to do about Slurm's final states, whatever the log says.
ENDED = {
    "TIMEOUT": "it did not finish in time and could not be requeued: raise [slurm] time, then `hpc retry`; it resumes from its last checkpoint",
    "NODE_FAIL": "a node went down and the job was not requeued: `hpc retry` resumes from the last checkpoint",
    "OUT_OF_MEMORY": "ask for more memory (the node type's `memory` in the cluster file), or lower the batch",
    "CANCELLED": "it stays cancelled; `hpc submit` or `hpc retry` takes it up again, from its checkpoint if it left one",
    "PREEMPTED": "`hpc retry` resumes from the last checkpoint",
    "DEADLINE": "the site's deadline passed: raise it or lower [slurm] time",
    "BOOT_FAIL": "a node did not start: `hpc retry`",
}

_MATTERS = re.compile(r"(error|exception|fatal|killed|refused|no such|not found|denied|failed)\b", re.I)
_NOISE = re.compile(
    r"^\s*(File \"|~+|\^+|During handling|Traceback|srun: error: .*Exited with|srun: (launch/slurm|Terminating)|"
    r"slurmstepd: error: \*\*\* (STEP|JOB) .* CANCELLED|.*torch/distributed/elastic|=+$|-+$)"
)


def last_line(reason: str, log: Path) -> str:
    """The last line that matters: of the reason in the run's record, else of the job's log; "" if there is none."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()][:1]
    if not lines:
        telling = [line for line in _end(log).splitlines() if line.strip() and not _NOISE.search(line)]
        lines = [line for line in telling if _MATTERS.search(line)][-1:] or telling[-1:]
    line = without_colours("".join(lines)).strip()
    return line if len(line) <= 200 else line[:197] + "..."


def advise(state: JobState, reason: str, log: Path) -> tuple[JobState, str]:
    """(state, what to do), from Slurm's state, the reason in the run's record, and the job's log."""
    if state in ENDED and state != JobState.CANCELLED:
        return state, ENDED[state]
    text = f"{reason}\n{_end(log)}"
    for pattern, means, advice in KNOWN:
        if re.search(pattern, text, re.I):
            return JobState(means) if means else state, advice
    return state, ENDED.get(state, "read the log (`hpc logs RUN`), correct the cause, then `hpc retry`")


def _end(log: Path) -> str:
    return tail(log, 1000)
