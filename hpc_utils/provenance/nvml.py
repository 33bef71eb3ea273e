"""NVIDIA's GPUs as their driver's management library knows them, through NVIDIA's own package of its functions."""

from __future__ import annotations

import functools
from typing import Any


class Gpu:
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

    def ask(self, function: str, *arguments: Any) -> Any:
        """What `function` says of this GPU; None if this model, driver or package has no answer."""
        if self._handle is None:
            return None
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None


@functools.cache  # opened once, and open until the process ends
def library() -> Any:
    """The package, ready to be asked. ImportError or pynvml.NVMLError: there is no package, or no driver."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml
