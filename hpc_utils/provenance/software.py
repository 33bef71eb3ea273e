"""The software and the job of a measurement: versions, operating system, variables that change it, Slurm's job."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import runpy
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from .machine import hardware
from .tools import number, run_tool

PACKAGES = (
    "torch",
    "torchvision",
    "triton",
    "numpy",
    "pandas",
    "scipy",
    "pillow",
    "papermill",
    "xgboost",
    "xgboost-cpu",
    "lightgbm",
)

# What changes a measurement: libraries of communication, threading and numerics, and which devices are seen.
STEERS = re.compile(
    r"(NCCL|RCCL|GLOO|UCX|FI|OMP|GOMP|KMP|MKL|OPENBLAS|MIOPEN|HSA|TORCH|PYTORCH|TORCHINDUCTOR)_"
    r"|CUBLAS_WORKSPACE_CONFIG$|NVIDIA_TF32_OVERRIDE$"
    r"|(CUDA|HIP|ROCR)_(VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS|DEVICE_ORDER|MODULE_LOADING)$"
)
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
# A login in an address, an IPv4 address, an IPv6 address.
PRIVATE = re.compile(r"://[^/\s]*@|\b\d{1,3}(\.\d{1,3}){3}\b|([0-9a-f]{0,4}:){3}", re.IGNORECASE)


def versions() -> dict[str, str | None]:
    """The versions of Python, packages and the libraries of torch, without importing any; None if not known."""
    package_versions: dict[str, str | None] = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            package_versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            package_versions[name] = None
    driver = next((gpu.driver for gpu in hardware().gpus), None)
    return package_versions | _torch_build() | {"driver": driver, "slurm": _slurm()}


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that change measurements; secrets are omitted, addresses and logins withheld."""
    variables = os.environ if variables is None else variables
    return {
        name: "(withheld)" if PRIVATE.search(value) else value
        for name, value in sorted(variables.items())
        if STEERS.match(name) and not SECRET.search(name) and not name.endswith(("_HOME", "_DIR"))  # paths
    }


def host() -> dict[str, str | None]:
    """The system that this process runs on; None: there is none, or it is not known."""
    release = None
    with suppress(OSError):
        release = platform.freedesktop_os_release().get("PRETTY_NAME")
    system = os.uname()
    return {
        "hostname": system.nodename,
        "os": release or system.sysname,
        "kernel": system.release,
        "libc": " ".join(filter(None, platform.libc_ver())) or None,
        "container": _container(),
        "modules": os.environ.get("LOADEDMODULES", "").replace(":", " ").strip() or None,
    }


def job(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The Slurm job that this process runs in; its `scheduler` is None outside one."""
    variables = os.environ if environment is None else environment
    if not variables.get("SLURM_JOB_ID"):
        variables = {}
    names = ("id", "name", "partition", "account", "nodelist")
    return {
        "scheduler": "slurm" if variables else None,
        **{name: variables.get(f"SLURM_JOB_{name.upper()}") for name in names},
        **{name: variables.get(f"SLURM_{name.upper()}") for name in ("array_job_id", "array_task_id")},
        "nodes": number(variables.get("SLURM_JOB_NUM_NODES")),
        "restart_count": number(variables.get("SLURM_RESTART_COUNT")) or 0,  # set from the first restart on
    }


def _container() -> str | None:
    """The image's file name, or what kind of container this is; None outside, as far as one can see."""
    image = os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER")
    if image:
        return Path(image).name
    marks = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
    return next((kind for mark, kind in marks.items() if Path(mark).exists()), None)


def _slurm() -> str | None:
    """The version of Slurm on a job's node."""
    answer = run_tool("srun", "--version") if os.environ.get("SLURM_JOB_ID") else None
    return (answer or "").strip().removeprefix("slurm-wlm").removeprefix("slurm").strip() or None


# In the text by which torch describes its build.
BUILD = {"blas": r"\bBLAS_INFO=(\w+)", "mkl": r"Math Kernel Library Version ([\w.]+)", "onednn": r"MKL-DNN v([\d.]+)"}


def _torch_build() -> dict[str, str | None]:
    """CUDA, HIP, NCCL, cuDNN, BLAS and oneDNN of the torch build; the last four only where torch is imported."""
    libraries: dict[str, Any] = dict.fromkeys(("cuda", "hip", "nccl", "cudnn", "blas", "onednn"))
    torch = sys.modules.get("torch")
    with suppress(Exception):
        spec = importlib.util.find_spec("torch")
        build = torch.version.__dict__ if torch else runpy.run_path(str(Path(spec.origin).with_name("version.py")))
        libraries["cuda"], libraries["hip"] = build["cuda"], build["hip"]
    if torch is None:
        return libraries
    libraries["blas"], libraries["onednn"] = _numerics(torch.__config__.show())
    with suppress(Exception):
        libraries["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    with suppress(Exception):
        libraries["cudnn"] = _cudnn(torch.backends.cudnn.version())
    return libraries


def _numerics(text: str) -> tuple[str | None, str | None]:
    """(BLAS, with its version if it is MKL; oneDNN's version)."""
    blas, mkl, onednn = (match[1] if (match := re.search(pattern, text)) else None for pattern in BUILD.values())
    return (f"{blas} {mkl}" if blas == "mkl" and mkl else blas), onednn


def _cudnn(version: int | None) -> str | None:
    """8902 is 8.9.2; from version 9 on, there are two more digits: 90100 is 9.1.0."""
    if not version:
        return None
    major, remainder = divmod(version, 10_000 if version >= 90_000 else 1000)
    return f"{major}.{remainder // 100}.{remainder % 100}"
