"""Number formats: fp32 is IEEE single precision, and TF32 is a format of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from hpc_utils import provenance


@contextlib.contextmanager
def matmul_precision(precision: str, *, deterministic: bool = False) -> Iterator[None]:
    """Switch TF32 on for `tf32` only, in matmul and convolution, and determinism if `deterministic`; undo it at the end.

    cuDNN allows TF32 by default: "fp32" convolutions on Ampere and later would be TF32 (PyTorch docs, "CUDA
    semantics").
    """
    before = (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
    )
    if deterministic:  # cuBLAS reads it when it starts (PyTorch docs, "Reproducibility")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    tf32 = precision == "tf32"
    _set(tf32, tf32, not deterministic, deterministic)
    try:
        yield
    finally:
        _set(*before)


def _set(matmul: bool, convolution: bool, benchmark: bool, deterministic: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = matmul
    torch.backends.cudnn.allow_tf32 = convolution
    torch.backends.cudnn.benchmark = benchmark
    if deterministic != torch.are_deterministic_algorithms_enabled():  # it imports the compiler, for a second
        torch.use_deterministic_algorithms(deterministic)


def default_precision(device: torch.device) -> str:
    """The format of a user's loop that does not name one: on a GPU with TF32 allowed anywhere, that is not fp32."""
    allowed = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    return "tf32" if device.type == "cuda" and allowed else "fp32"


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager:
    """Mixed precision for the forward pass; nothing for fp32 and tf32."""
    formats = {"bf16": torch.bfloat16, "fp16": torch.float16}
    if precision not in formats:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=formats[precision])


def emulated(precision: str, device: torch.device) -> str:
    """Why `precision` is slower than fp32 on this device; empty if it need not be."""
    if device.type == "cpu" and (precision == "fp16" or (precision == "bf16" and provenance.emulates_bf16())):
        return (
            f"NOTE: this processor has no instructions for {precision}: it is emulated, many times slower than fp32"
        )
    return ""


def grad_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Loss scaling, which fp16 needs (Micikevicius et al. 2018); does nothing for other formats."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
