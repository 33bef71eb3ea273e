"""What a device cannot do, whatever the configuration wishes; no torch, so that a study knows it before it runs."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # the modes of torch.compile that replay them on a GPU
QUOTA_AT_LEAST = 0.001  # s: the kernel grants no smaller share of a period


def of_device(precision: object, compile: object, *, gpu: bool) -> str:
    """Why a CPU, or a GPU of any make, cannot compute so; empty if it can."""
    if gpu:
        return ""
    if precision == "tf32":
        return "precision='tf32' is a format of NVIDIA's tensor cores: a CPU would compute in fp32"
    if compile == "reduce-overhead":
        return "compile='reduce-overhead' replays CUDA graphs, which a CPU has not: use compile='default'"
    return ""


def busy_cores(cores: int, *, shares: bool) -> float:
    """How many of `cores` devices may use in sum: of shares 90 %, for they are to leave launchers and the kernel some."""
    return 0.9 * cores if shares else cores


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
