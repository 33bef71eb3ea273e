"""Asking the machine: files that may be absent, tools that may be missing, fail or hang."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import subprocess

Answer = TypeVar("Answer")

PATIENCE = 10.0  # seconds; nvidia-smi without the persistence daemon wakes eight GPUs in about five


def read(path: Path) -> str | None:
    """A small file's text, stripped; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(text: object) -> int | None:
    """A whole number, or None for `[N/A]`, `-1` and whatever else stands for "not known"."""
    try:
        value = int(float(str(text)))
    except (ValueError, OverflowError):
        return None
    return value if value >= 0 else None


def ask(*command: str, faults: list[str] | None = None, environment: Mapping[str, str] | None = None) -> str | None:
    """What a tool prints; None if it is missing, fails (noted in `faults`) or does not answer in time."""
    import shutil  # here, because importing the package costs nothing
    import subprocess

    program = shutil.which(command[0])
    if program is None:
        return None
    faults = [] if faults is None else faults
    patience = _patience()
    try:
        process = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**(os.environ if environment is None else environment), "LC_ALL": "C"},
            text=True,
            errors="replace",
            process_group=0,
        )
    except OSError as error:
        faults.append(f"{command[0]} cannot be started: {error.strerror}")
        return None
    try:
        out, err = process.communicate(timeout=patience)
    except BaseException as error:  # an interrupt, too, must not leave the tool behind
        _end(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        faults.append(f"{command[0]} did not answer within {patience:g} s")
        return None
    if process.returncode:
        said = (err.strip() or out.strip() or f"exit status {process.returncode}").splitlines()[0]
        faults.append(f"{command[0]} failed: {said[:200]}")
        return None
    return out


def attempt(probe: Callable[[], Answer], faults: list[str]) -> Answer | None:
    """A probe's answer; whatever goes wrong in it is noted, for a strange machine must not stop a run."""
    try:
        return probe()
    except Exception as error:
        faults.append(f"{type(error).__name__}: {error}"[:300])
        return None


def _patience() -> float:
    try:
        return float(os.environ["HPC_PROBE_TIMEOUT"])
    except (KeyError, ValueError):
        return PATIENCE


def _end(process: subprocess.Popen[str]) -> None:
    from subprocess import TimeoutExpired

    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)  # with its children, which may be what holds the pipe
    # A tool stuck inside a sick driver cannot even be killed: it is left behind, not waited for.
    with suppress(TimeoutExpired):
        process.wait(0.5)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
