"""Number formats. fp32 is IEEE single precision; TF32 is a separate format."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from hpc_utils.provenance import cpu


@contextlib.contextmanager
def matmul_precision(precision: str, *, deterministic: bool = False) -> Iterator[None]:
    """Enable TF32 in matmul and convolution for `tf32` only, and deterministic kernels on request; restore both on exit.

    By default cuDNN uses TF32 for fp32 convolutions on Ampere and later (PyTorch docs, "CUDA semantics").
    """
    before = (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
    )
    if deterministic:  # cuBLAS reads the variable when it starts (PyTorch docs, "Reproducibility")
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
    if (
        deterministic != torch.are_deterministic_algorithms_enabled()
    ):  # the call imports the compiler, which takes a second
        torch.use_deterministic_algorithms(deterministic)


def default_precision(device: torch.device) -> str:
    """The default format of a user's loop: tf32 on a GPU where TF32 is enabled, else fp32."""
    matmul = torch.backends.cuda.matmul
    cudnn = torch.backends.cudnn
    # Since torch 2.9, reading the older names raises once the loop has set the newer ones.
    if hasattr(torch.backends, "fp32_precision"):
        allowed = "tf32" in (matmul.fp32_precision, cudnn.conv.fp32_precision)
    else:
        allowed = matmul.allow_tf32 or cudnn.allow_tf32
    return "tf32" if device.type == "cuda" and allowed else "fp32"


def supported(precision: str, device: torch.device) -> str:
    """The format of `precision` on `device`: of `amp` bf16, or fp16 where the device does not compute in bf16."""
    if precision != "amp":
        return precision
    gpu = device.type == "cuda"
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if gpu else not cpu.emulates_bf16()
    return "bf16" if has_bf16 else "fp16"


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager:
    """Autocast for the forward pass in bf16 and fp16; a null context for fp32 and tf32."""
    formats = {"bf16": torch.bfloat16, "fp16": torch.float16}
    if precision not in formats:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=formats[precision])


def grad_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Loss scaling for fp16 (Micikevicius et al. 2018); disabled for other formats."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
