"""What a device cannot do, whatever the configuration wishes; no torch, so that a study knows it before it runs."""

from __future__ import annotations

import math
import os
import shutil
import sysconfig
from pathlib import Path

CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # the modes of torch.compile that replay them on a GPU
QUOTA_AT_LEAST = 0.001  # s: the kernel grants no smaller share of a period
# Fewer periods of a share of a core than this, and a step takes what they left of it, not what it costs: study `shares`.
PERIODS_OF_A_STEP = 5


def of_device(precision: object, compile: object, *, gpu: bool) -> str:
    """Why a CPU, or a GPU of any make, cannot compute so; empty if it can."""
    if gpu:
        return ""
    if precision == "tf32":
        return "precision='tf32' is a format of NVIDIA's tensor cores: a CPU would compute in fp32"
    if compile == "reduce-overhead":
        return "compile='reduce-overhead' replays CUDA graphs, which a CPU has not: use compile='default'"
    return ""


def largest_share(devices: int, cores: int) -> float:
    """Of a core, that each of `devices` which go round the `cores` may be: together 90 % of one, for they are to leave
    launchers and the kernel some."""
    return 0.9 / -(-devices // cores)


def shortest_period(cores: float) -> float:
    """The shortest period (s, in whole ms) of such a share of a core."""
    return math.ceil(1e3 * QUOTA_AT_LEAST / cores - 1e-9) / 1e3


def of_compiler(compile: object) -> str:
    """Why this machine cannot compile what torch.compile generates; empty if it can, or need not."""
    if compile in (None, "off"):
        return ""
    compiler = os.environ.get("CXX") or "g++"
    if not (shutil.which(compiler) or shutil.which("clang++")):
        return (
            f"compile={compile!r} needs a C++ compiler, and there is no {compiler} on PATH: load a compiler's module"
        )
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return f"compile={compile!r} needs Python's headers, and {sysconfig.get_path('include')} has no Python.h"
    return ""
