"""Availability and command lines of Nsight Systems, Nsight Compute and py-spy.

nsys and ncu start the program that they profile, so srun or torchrun starts them in front of each rank. py-spy attaches to a
running process.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hpc_utils.config import ConfigError
from hpc_utils.provenance.tools import run_tool

STARTING = ("nsys", "ncu")  # those that start the profiled program
WINDOW = "window"  # the NVTX range that nsys waits for on a CPU

PROGRAMS = {"nsys": "nsys", "ncu": "ncu", "cpu": "py-spy"}
SOURCES = {
    "nsys": "Nsight Systems comes with the CUDA toolkit: load its module (`modules` in the cluster file); on a machine "
    "without one, PATH=$(env/nsight.sh):$PATH unpacks Debian's",
    "ncu": "Nsight Compute comes with the CUDA toolkit: load its module (`modules` in the cluster file)",
    "cpu": "pip install 'scaling-compendium[profile]'",
}

ONE_RANK = (
    "profile='ncu' on {ranks} ranks: ncu repeats each kernel many times, so a collective would wait for the other ranks "
    "forever; profile one rank (its kernels are the same), or use profile='nsys'"
)


def program(profile: str) -> str:
    """The path of the program for `profile`.

    Raises:
        ConfigError: it is not installed; with the remedy.
    """
    name = PROGRAMS[profile]
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    path = shutil.which(name, path=search_path)
    if path is None:
        raise ConfigError(f"profile={profile!r}: {name} is not on PATH. {SOURCES[profile]}")
    return path


def require(profile: str | None) -> None:
    """Raise ConfigError if the program for `profile` is not installed."""
    if profile in PROGRAMS:
        program(profile)


def version(profile: str) -> str:
    """The program's version, such as 2024.5.1 or 0.4.1; "" if unknown."""
    match = re.search(r"\d+\.\d+(\.\d+)*", run_tool(program(profile), "--version") or "")
    return match[0] if match else ""


def command(profile: str, report: Path, *, gpu: bool) -> list[str]:
    """The command line in front of a rank's Python. Profiling starts when the rank opens its window.

    Args:
        report: path of the report without its suffix. gpu: the rank trains on a CUDA device.
    """
    report = os.fspath(report).replace("%", "%%")  # both expand %
    if profile == "ncu":
        return [
            # By default ncu locks the GPU's clocks, below those of the timed runs, and for whoever shares the GPU.
            program("ncu"), "--clock-control", "none", "--profile-from-start", "off", "--set", "full",
            "--target-processes", "application-only", "--nvtx", "--force-overwrite", "--export", report,
        ]  # fmt: skip
    traced = "cuda,nvtx,cudnn,cublas" if gpu else "nvtx,osrt"
    window = ["--capture-range=cudaProfilerApi"] if gpu else ["--capture-range=nvtx", f"--nvtx-capture={WINDOW}"]
    return [
        # Without the three `none` a report is a hundred times larger. By default, CUDA graphs are traced without kernels.
        program("nsys"), "profile", f"--trace={traced}", "--sample=none", "--cpuctxsw=none", "--backtrace=none",
        "--cuda-graph-trace=node", *window, "--capture-range-end=stop", "--force-overwrite=true",
        f"--output={report}",
    ]  # fmt: skip


def variables(profile: str) -> dict[str, str]:
    """Environment variables for that command."""
    # By default nsys waits for a range with a registered name; torch and the package nvtx do not register names.
    return {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if profile == "nsys" else {}


def spying(pid: int, output: Path) -> Sequence[str]:
    """The command line of py-spy for a process until interrupted, waiting threads included."""
    options = ["--format", "speedscope", "--rate", "100", "--idle"]
    return [program("cpu"), "record", "--pid", str(pid), *options, "--output", str(output)]
