"""The profilers Nsight Systems, Nsight Compute and py-spy: whether they are here, and how they are called.

nsys and ncu start the program that they watch, so they stand in front of each rank, inside srun and torchrun, which they
know nothing of. py-spy is told the number of a process that runs already.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from hpc_utils.config import ConfigError

STARTING = ("nsys", "ncu")  # those that start what they watch
WINDOW = "window"  # the NVTX range that nsys waits for, where there is no GPU

PROGRAMS = {"nsys": "nsys", "ncu": "ncu", "cpu": "py-spy"}
SOURCES = {
    "nsys": "Nsight Systems comes with the CUDA toolkit: load its module (`modules` in the cluster file); on a machine "
    "without one, PATH=$(env/nsight.sh):$PATH unpacks Debian's",
    "ncu": "Nsight Compute comes with the CUDA toolkit: load its module (`modules` in the cluster file)",
    "cpu": "pip install 'scaling-compendium[profile]'",
}

# nsys up to here sees nothing of what the package nvtx says from that version on: no range, and no error.
DEAF, TOO_NEW = (2024, 2), (0, 2, 12)

ONE_RANK = (
    "profile='ncu' on {ranks} ranks: it runs each kernel dozens of times over, alone, and a collective would wait for the "
    "other ranks for ever; profile one rank (its kernels are the same), or use profile='nsys'"
)


def program(profile: str) -> str:
    """The path of the program that takes such a profile.

    Raises:
        ConfigError: it is not here; says where it comes from.
    """
    name = PROGRAMS[profile]
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=beside)
    if found is None:
        raise ConfigError(f"profile={profile!r}: there is no {name} on the PATH here. {SOURCES[profile]}")
    return found


def require(profile: str | None) -> None:
    """ConfigError if the program that takes such a profile is not on this machine."""
    if profile in PROGRAMS:
        program(profile)


def version(profile: str) -> str:
    """The program's version, such as 2024.5.1 or 0.4.1; "" if it does not say."""
    try:
        said = subprocess.run([program(profile), "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"\d+\.\d+(\.\d+)*", said)
    return found[0] if found else ""


def command(profile: str, report: Path | str, *, gpu: bool) -> list[str]:
    """What stands in front of a rank's Python; nothing is watched until the rank opens its window.

    Args:
        report: where to write, without the ending. gpu: the rank trains on a CUDA device.
    """
    if profile == "ncu":
        return [
            program("ncu"), "--profile-from-start", "off", "--target-processes", "application-only", "--set", "full",
            "--nvtx", "--force-overwrite", "--export", str(report),
        ]  # fmt: skip
    traced = "cuda,nvtx,cudnn,cublas" if gpu else "nvtx,osrt"
    window = ["--capture-range=cudaProfilerApi"] if gpu else ["--capture-range=nvtx", f"--nvtx-capture={WINDOW}"]
    return [
        # Without the three `none` a report is a hundred times as large. Graphs are traced whole by default: no kernels.
        program("nsys"), "profile", f"--trace={traced}", "--sample=none", "--cpuctxsw=none", "--backtrace=none",
        "--cuda-graph-trace=node", *window, "--capture-range-end=stop", "--force-overwrite=true",
        f"--output={report}",
    ]  # fmt: skip


def variables(profile: str) -> dict[str, str]:
    """What must stand in the environment of that command."""
    # Else nsys waits for a range whose name was registered first, which neither torch nor the package nvtx does.
    return {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if profile == "nsys" else {}


def literal(path: Path) -> str:
    """A path for nsys and ncu, which read % as a pattern."""
    return os.fspath(path).replace("%", "%%")


def nvtx_fault(nsys: str, nvtx: str | None = None) -> str:
    """Why that version of nsys would not see the ranges of the package nvtx here; "" if it does."""
    try:
        nvtx = nvtx or metadata.version("nvtx")
    except metadata.PackageNotFoundError:
        return f"this torch has no NVTX, and the package nvtx is not here: {SOURCES['cpu']}"
    if _numbers(nsys)[:2] <= DEAF and _numbers(nvtx) >= TOO_NEW:
        return f"nsys {nsys} does not see the ranges of the package nvtx {nvtx}: pip install nvtx==0.2.11, or a newer nsys"
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def spying(pid: int, output: Path) -> Sequence[str]:
    """py-spy on that process until it is interrupted; threads that wait are looked at too, for waiting is what a rank
    may do most."""
    shown = ["--format", "speedscope", "--rate", "100", "--idle"]
    return [program("cpu"), "record", "--pid", str(pid), *shown, "--output", str(output)]
