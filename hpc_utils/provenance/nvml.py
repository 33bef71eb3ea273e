"""NVIDIA's GPUs through NVML, the management library of their driver (package nvidia-ml-py).

python -m hpc_utils.provenance.nvml      # all GPUs as JSON
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any


class Device:
    """One GPU, or part of one, by its UUID.

    Args:
        nvml: the package `pynvml`, initialised; see `library`.
    """

    def __init__(self, uuid: str, nvml: Any) -> None:
        self.name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._nvml = nvml
        try:
            self._handle = nvml.nvmlDeviceGetHandleByUUID(self.name)
        except nvml.NVMLError:
            self._handle = None

    def query(self, function: str, *arguments: Any) -> Any:
        """The result of NVML's `function` for this GPU; None if the model, driver or package does not support it."""
        return None if self._handle is None else _query(self._nvml, function, self._handle, *arguments)


@functools.cache  # opened once, and open until the process ends
def library() -> Any:
    """The package, initialised. ImportError or pynvml.NVMLError: there is no package, or no driver."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def installed() -> bool:
    """Whether the driver's library is on this machine. The driver itself is not called."""
    import ctypes

    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def listed(nvml: Any) -> list[dict[str, Any]]:
    """The fields of a `gpu.Gpu` for each GPU of this machine; None for values that it does not report."""
    query = functools.partial(_query, nvml)
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = query("nvmlDeviceGetMemoryInfo", gpu)
        gpus.append(
            {
                "index": index,
                "name": query("nvmlDeviceGetName", gpu),
                "uuid": query("nvmlDeviceGetUUID", gpu),
                "memory_bytes": memory and memory.total,
                "driver": query("nvmlSystemGetDriverVersion"),
                "pcie_generation": query("nvmlDeviceGetMaxPcieLinkGeneration", gpu),
                "pcie_width": query("nvmlDeviceGetMaxPcieLinkWidth", gpu),
            }
        )
    return gpus


def free_memory() -> list[int]:
    """B that are free on each GPU of this machine; [] without a driver."""
    if not installed():
        return []
    nvml = library()
    handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    memory = (_query(nvml, "nvmlDeviceGetMemoryInfo", handle) for handle in handles)
    return [of_gpu.free if of_gpu else 0 for of_gpu in memory]


def _query(nvml: Any, function: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, function)(*arguments)
    except (AttributeError, nvml.NVMLError):
        return None


if __name__ == "__main__":
    try:
        print(json.dumps(listed(library())))
    except Exception as error:  # no package, no driver
        sys.exit(f"{error}")
