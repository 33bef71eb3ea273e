"""Of a job that failed: the last line that matters, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# (what a log says, the state it means if Slurm does not know better, what to do). The first that is found counts.
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
    (r"ConfigError|unknown parameter|does not divide", "", "mend the study or the cluster file, then submit again"),
    (r"is being run by process", "", "another job works on this run: wait for it, or `hpc cancel` one of the two"),
)  # fmt: skip

# What Slurm's own word for the end means, whatever the log says.
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


def last_words(reason: str, log: Path) -> str:
    """The last line that matters: of what the run's record says, else of the job's log; "" if there is none."""
    lines = [line.strip() for line in (reason or "").splitlines() if line.strip()]
    if lines:
        return _trim(lines[0])
    return _trim(_matters(_tail(log)))


def advise(state: str, texts: Iterable[str]) -> tuple[str, str]:
    """(state, what to do), from Slurm's state and all that is known of the end."""
    text = "\n".join(texts)
    if state in ENDED and state != "CANCELLED":
        return state, ENDED[state]
    for pattern, means, advice in KNOWN:
        if re.search(pattern, text, re.I):
            return means or state, advice
    return state, ENDED.get(state, "read the log (`hpc logs RUN`), mend it, then `hpc retry`")


def _matters(lines: list[str]) -> str:
    telling = [line for line in lines if line.strip() and not _NOISE.search(line)]
    return next((line for line in reversed(telling) if _MATTERS.search(line)), telling[-1] if telling else "")


def _tail(log: Path, size: int = 32_768) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def log_text(log: Path) -> str:
    """The log's end."""
    return "\n".join(_tail(log))


def _trim(line: str) -> str:
    line = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
    return line if len(line) <= 200 else line[:197] + "..."
