"""What tests of any room use."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_utils.records import packed

# Whatever tells a process that it is one of several, or part of a launched run or job.
LAUNCHED = (
    "HPC_CLUSTER",
    "HPC_LAUNCH",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
    "RANK",
    "SLURM_JOB_ID",
    "WORLD_SIZE",
)


def soak(*values: object) -> object:
    """A set of parameters that is tried in `make soak` only: another way to the same end."""
    return pytest.param(*values, marks=pytest.mark.soak)


def copy_runs(results: Path, target: Path, pattern: str = "*", limit: int | None = None) -> list[Path]:
    """Runs of a (packed) result set as folders `target/runs/<run>`: the first `limit` whose names match `pattern`."""
    found = [run for run in packed.folders(results) if run.match(pattern)][:limit]
    for run in found:
        packed.unpack(run, target / "runs" / run.name)
    return [target / "runs" / run.name for run in found]


def wait_for(condition: Callable[[], object], seconds: float = 120, every: float = 0.02) -> None:
    """Wait until `condition()` is true; the limit is only for what hangs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(every)


def pdf_text(path: Path) -> str:
    """What a PDF says, on one line."""
    import pypdf

    said = " ".join(page.extract_text() for page in pypdf.PdfReader(path).pages)
    return re.sub(r"\s+", " ", said.replace("\u00a0", " ").replace("\u202f", " "))


def write_files(root: Path, files: dict[str, str]) -> Path:
    """Write {path below `root`: text}; returns `root`."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


class Nvml:
    """A stand-in for the package `pynvml`: a function returns what `answers` holds under its name, else it is not supported."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1

    def __init__(self, **answers: object) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Callable[..., object]:
        def answer(*_: object) -> object:
            if name not in self._answers:
                raise self.NVMLError("Not Supported")
            return self._answers[name]

        return answer
