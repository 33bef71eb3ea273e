"""System tools and files: tools may be missing, fail or hang; files may be absent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

Answer = TypeVar("Answer")

PATIENCE = 10.0  # s; without the persistence daemon a driver wakes eight GPUs in about five


def read_text(path: Path) -> str | None:
    """A small file's text, stripped; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(text: object) -> int | None:
    """A whole number, or None for `[N/A]`, `-1` and other text."""
    try:
        value = int(float(str(text)))
    except (ValueError, OverflowError):
        return None
    return value if value >= 0 else None


def run_tool(
    *command: str, faults: list[str] | None = None, environment: Mapping[str, str] | None = None, name: str = ""
) -> str | None:
    """What a tool prints; None if it is missing, fails or does not answer in time, which is noted in `faults`.

    Args:
        name: what `faults` call it; by default the command.
    """
    name = name or command[0]
    faults = [] if faults is None else faults
    if (program := shutil.which(command[0])) is None:
        return None
    seconds = float(os.environ.get("HPC_PROBE_TIMEOUT") or PATIENCE)
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
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:  # an interrupt, too, must not leave the tool behind
            _end(process)
            raise
    except subprocess.TimeoutExpired:
        faults.append(f"{name} did not answer within {seconds:g} s")
    except OSError as error:
        faults.append(f"{name} cannot be started: {error.strerror}")
    else:
        if not process.returncode:
            return out
        reason = (err.strip() or out.strip() or f"exit status {process.returncode}").splitlines()[0]
        faults.append(f"{name} failed: {reason[:200]}")
    return None


def attempt(probe: Callable[[], Answer], faults: list[str]) -> Answer | None:
    """A probe's answer; an exception in it is noted, so that an unusual machine does not stop a run."""
    try:
        return probe()
    except Exception as error:
        faults.append(f"{type(error).__name__}: {error}"[:300])
        return None


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)  # with its children, which may hold the pipe open
    # A tool that is stuck inside a faulty driver cannot be killed: it is left behind.
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.stdout.close()
    process.stderr.close()
