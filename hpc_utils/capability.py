"""Why a device or compiler cannot run something, or not usefully. No torch, so that studies can check before they run."""

from __future__ import annotations

import math
import os
import shutil
import sysconfig
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # the modes of torch.compile that use CUDA graphs
QUOTA_AT_LEAST = 0.001  # s: the kernel's minimum quota per period
# In steps of fewer periods, the time depends on the remaining quota rather than on the work (study `shares`).
PERIODS_OF_A_STEP = 5

# Why a run in a precision that the device lacks is not worth making.
LACKS = {
    "fp32": "the cluster file does not list it",
    "tf32": "it is a format of NVIDIA's tensor cores, from Ampere on: other devices would compute in fp32",
    "fp16": "it needs a GPU's units; a CPU emulates it, slower than fp32",
    "bf16": "it has no instructions for it (NVIDIA's GPUs have from Ampere on, CPUs with AVX-512), so torch emulates it, many times slower",
}


def of_precision(precision: str, supported: Container[str]) -> str:
    """Why a device that computes in the `supported` precisions (none: not known) is of no use in another; empty if it is."""
    return LACKS.get(precision, "") if supported and precision not in supported else ""


def of_cpu(precision: str, *, bf16: bool) -> str:
    """Why a CPU, with or without instructions for `bf16`, is of no use in a precision; empty if it is."""
    return of_precision(precision, ("fp32", "bf16") if bf16 else ("fp32",))


def of_device(options: Mapping[str, Any], *, gpu: bool) -> str:
    """Why a CPU or GPU does not support the compile mode or step graph of `options`; empty if it does."""
    if gpu:
        return ""
    if options.get("compile") == "reduce-overhead":
        return "compile='reduce-overhead' uses CUDA graphs, which need a GPU: use compile='default'"
    if options.get("step_graph"):
        return "step_graph=true captures a CUDA graph, which needs a GPU"
    return ""


def largest_share(devices: int, cores: int) -> float:
    """The largest share of a core for each of `devices` on `cores`; together at most 90 %, to leave time for the kernel."""
    return 0.9 / -(-devices // cores)


def oversubscribed(devices: int, cores_per_device: float, cores: int) -> bool:
    """Whether `devices` of `cores_per_device` whole cores, or of that share of a core, need more than `cores`."""
    return (
        cores_per_device > largest_share(devices, cores)
        if cores_per_device < 1
        else devices * cores_per_device > cores
    )


def shortest_period(cores: float) -> float:
    """The shortest period in seconds (a multiple of 1 ms) of a share of `cores`."""
    return math.ceil(1e3 * QUOTA_AT_LEAST / cores - 1e-9) / 1e3


def of_compiler(compile: object) -> str:
    """Why this machine cannot compile the code that torch.compile generates; empty if it can or need not."""
    if compile in (None, "off"):
        return ""
    compiler = os.environ.get("CXX") or "g++"
    if not (shutil.which(compiler) or shutil.which("clang++")):
        return f"compile={compile!r} needs a C++ compiler, but {compiler} is not on PATH: load a compiler module"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return f"compile={compile!r} needs Python's headers, but {sysconfig.get_path('include')} has no Python.h"
    return ""
