"""Classes of kernels by their names, and tables of kernels.

The name is what every profiler records of a kernel. The classes follow the libraries that PyTorch calls: cuDNN and MIOpen
(convolution, normalisation), cuBLAS, CUTLASS and Tensile (GEMM), FlashAttention and its kin (attention), ATen, Triton as
torch.compile writes it, NCCL and RCCL. The name of a fused Triton kernel lists its parts: a reducing one is a
normalisation if it holds one, any other is elementwise.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from . import intervals
from .timeline import COMMUNICATION, COMPUTE, Events, Timeline

if TYPE_CHECKING:
    import pandas as pd


class KernelClass(StrEnum):
    CONVOLUTION = "convolution"
    GEMM = "GEMM"
    ATTENTION = "attention"
    NORMALISATION = "normalisation"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    OPTIMIZER = "optimizer"
    COLLECTIVE = "communication"
    TRANSFER = "memory"
    OTHER = "other"


CONVOLUTION, GEMM, ATTENTION, NORMALISATION, ELEMENTWISE, REDUCTION, OPTIMIZER, COLLECTIVE, TRANSFER, OTHER = (
    KernelClass
)

KINDS = [NORMALISATION, GEMM, CONVOLUTION, OTHER, COLLECTIVE]  # those that `kinds` shows

# MSCCL, NVSHMEM, PyTorch's symmetric memory, and kernels of Transformer Engine, vLLM, TensorRT-LLM and oneCCL are not NCCL, but move
# the same bytes between the same devices.
_COMMUNICATION = re.compile(
    r"^(?:gloo|mpi|ucc|xccl):|nccl|rccl|msccl|nvshmem|deep_ep|(?:one|two)_shot_all_reduce|multimem_(?:all|one)"
    r"|userbuffers_|cross_device_reduce|allreduce_fusion|alltoallv|oneapi::ccl",
    re.I,
)
PAIRS = re.compile(r"send|recv|p2p|point_?to_?point", re.I)  # what runs between two ranks
LAYOUT = re.compile(
    r"nchw(?:to|2)nhwc|nhwc(?:to|2)nchw|batched_transpose", re.I
)  # changes of layout around convolutions
SOFTMAX = re.compile(
    r"^(?!.*log_?softmax)(?!.*softmax_warp_\w+<[^>]*\d, true).*softmax", re.I
)  # of attention, not of a loss
UNFUSED_ATTENTION = re.compile(rf"{SOFTMAX.pattern}|dropout|\b(?:bmm|baddbmm)", re.I)
# Kinds of collectives, by what the names of kernels, ranges and events have in common.
_COLLECTIVES = {
    "all_to_all": r"all[-_ ]?(?:to|2)[-_ ]?all|deep_ep",
    "reduce_scatter": r"reduce[-_ ]?scatter",
    "all_gather": r"all[-_ ]?gather",
    "all_reduce": r"all[-_ ]?reduce",
    "broadcast": r"broadcast",
    "gather": r"^(?:nccl:)?gather\b",
    "scatter": r"^(?:nccl:)?scatter\b",
}

_NORM = r"(?:batch|layer|group|instance|rms)_?norm"
_CONV = r"conv(?!ert)"  # not FlashAttention's "Convert"
_POINTWISE = "add|sub|rsub|mul|div|neg|abs|exp|log|pow|sqrt|rsqrt|square|sin|cos|clamp|where|masked_fill|fill|zero|lerp|addcmul|addcdiv"
# The first that is found in the name, in lower case, decides.
_PATTERNS = [
    (TRANSFER, r"^mem(?:cpy|set)\b|^copy(?:host|device)"),
    # torch.compile: pointwise, templates, groups of pointwise (foreach: the optimizer's), reductions
    (ELEMENTWISE, r"^triton_poi_"),
    (
        OPTIMIZER,
        r"^optimizer: |^triton_for_|multi_tensor_apply|\badam|_adam|fused_?adam|fused_?sgd|fused_?adagrad|lamb_stage",
    ),
    (ATTENTION, r"^triton_tem_.*(?:flex_)?attention"),
    (CONVOLUTION, r"^triton_tem_.*" + _CONV),
    (GEMM, r"^triton_tem_|^triton_(?:b?mm|addmm)\b"),
    (NORMALISATION, rf"^triton_(?:red|per|spl)_.*(?:{_NORM}|var_mean|rsqrt)"),
    (REDUCTION, r"^triton_(?:red|per|spl)_"),
    (ATTENTION, r"flash|fmha|attention|attn_|\bmha_|_sdpa"),
    (NORMALISATION, rf"{_NORM}|cudnn::bn_|\bbn_[fb]w|rowwisemoments|gammabeta|welford|\bln_[fb]wd"),
    (
        ELEMENTWISE,
        r"elementwise|pointwise|op_?tensor|subtensorop|scalepackedtensor|fused_dropout|distribution_|activation",
    ),
    (OTHER, r"pool"),
    (TRANSFER, rf"{LAYOUT.pattern}|catarray"),
    (REDUCTION, r"softmax"),
    (
        CONVOLUTION,
        rf"{_CONV}|winograd|fprop|dgrad|wgrad|im2col|im2d2col|col2im|[sdhc\d]cudnn|cask_cudnn|cudnn::cnn"
        r"|fft2d_|igemm_(?:fwd|bwd|wrw)|implicit_gemm|depthwise",
    ),
    (
        GEMM,
        r"(?<!fb)gemm|gemv|addmm|bmm|aten::(?:linear|mm)\b|mmbackward|nvjet|cijk_|cublas|splitk|cutlass|tensorop|xmma|matmul|dot_kernel|magma",
    ),
    (REDUCTION, r"reduce(?!r\b)|nll_|criterion|cross_entropy|arg_?m(?:ax|in)"),
    (TRANSFER, r"transpose|permute|copy|gather|scatter|embedding|grad_weight|index|radix_?sort"),
    (ELEMENTWISE, r"relu|gelu|silu|sigmoid|tanh|dropout|\badd_|\bmul_|bias"),
    (ELEMENTWISE, rf"^(?:aten::)?(?:{_POINTWISE})(?:_?\b|backward)"),  # operators of a CPU
    (REDUCTION, r"^(?:aten::)?(?:sum|mean|var|std|max|min|norm|linalg_vector_norm|cumsum|prod|topk)(?:\b|backward)"),
]

HALF = ("fp8", "bf16", "fp16")
SINGLE = ("tf32", "fp32")
# Of operands, by the names of cuBLAS, cuDNN, CUTLASS, Tensile and PyTorch. The first that is found decides: sums of narrow types are float.
_PRECISIONS = [
    ("fp8", r"e4m3|cijk_[a-z]+_[a-z]+_f8|e5m2|fp8|float8|nvjet_(?:sm\d+_)?[qr]"),
    ("bf16", r"bf16|bfloat16|cijk_[a-z]+_[a-z]+_b|nvjet_(?:sm\d+_)?t"),
    ("tf32", r"tf32|tfloat32"),
    (
        "fp16",
        r"f16|fp16|cijk_[a-z]+_[a-z]+_h|half|hmma|[hs](?:884|16816|161616)|h1688|hgemm|hcudnn|nvjet_(?:sm\d+_)?h",
    ),
    ("tf32", r"s1688|nvjet_(?:sm\d+_)?s"),
    ("fp64", r"f64|double|cijk_[a-z]+_[a-z]+_d|dgemm|d884"),
    ("fp32", r"f32|fp32|cijk_[a-z]+_[a-z]+_s|float|sgemm|scudnn"),
    ("fp16", r"flash"),
]

# Templates whose first argument is the kernel.
_STARTER = re.compile(r"(?:void )?cutlass\w*::(?:Kernel2?|device_kernel)<(?:[\w:]*enable_\w+<)*")
_NOISE = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\s*\[clone [^\]]*\]$|\.kd$|->")


@functools.lru_cache(maxsize=65536)
def classify(name: str) -> KernelClass:
    """`name`: as the profiler gives it, preferably with template arguments."""
    if _COMMUNICATION.search(name):
        return COLLECTIVE
    lowered = name.lower()
    return next((kind for kind, pattern in _PATTERNS if re.search(pattern, lowered)), OTHER)


@functools.lru_cache(maxsize=65536)
def short(name: str) -> str:
    """A demangled name without return type, template arguments and parameters.

    Templates that only start their argument, such as `cutlass::Kernel2<cutlass_80_...>`, are called by it.
    """
    plain = _NOISE.sub("", name)
    if starter := _STARTER.match(plain):
        return re.split("[<,>(]", plain[starter.end() :])[0]
    while (inner := re.sub(r"<[^<>]*>", "", plain)) != plain:
        plain = inner
    return plain.partition("(")[0].split(" ")[-1] or name


def ops_kinds(names: Sequence[str]) -> np.ndarray:
    """(len(names),) int8: COMMUNICATION (any age of NCCL, RCCL and the rarer libraries) or COMPUTE."""
    return np.array([COMMUNICATION if _COMMUNICATION.search(name) else COMPUTE for name in names], np.int8)


def collective(name: str) -> str:
    """The kind of collective that a kernel, a range or an event of this name is; "": none that is known."""
    return next((kind for kind, pattern in _COLLECTIVES.items() if re.search(pattern, name, re.I)), "")


def is_generic(name: str) -> bool:
    """Whether a communication kernel of this name may be any collective: of sends and receives, or RCCL's Generic."""
    return bool(PAIRS.search(name)) or not collective(name)


def named_collectives(ops: Events, ranges: Events) -> Events:
    """Communication kernels of any collective (`is_generic`), launched inside a range that names one, get its name: NCCL runs
    all-to-all, gather and scatter by kernels called SendRecv."""
    generic = [number for number, name in enumerate(ops.names) if is_generic(name)]
    kinds = np.array([collective(text) for text in ranges.names])
    names, codes = [*ops.names], ops.name.copy()
    for kind in sorted(set(kinds.tolist()) - {""}):
        windows = ranges.where((kinds == kind)[ranges.name]).union()
        codes[np.isin(codes, generic) & (ops.kind == COMMUNICATION) & intervals.holds(ops.launched, windows)] = len(
            names
        )
        names.append(f"nccl:{kind}")
    return replace(ops, name=codes, names=tuple(names))


@functools.lru_cache(maxsize=65536)
def precision(name: str) -> str:
    """Of the operands in a name or in a list of types; "": not known."""
    lowered = name.lower()
    return next((kind for kind, pattern in _PRECISIONS if re.search(pattern, lowered)), "")


def kernel_ns(timelines: Iterable[Timeline]) -> dict[str, int]:
    """Time (ns) of compute kernels by name."""
    time_by_name: Counter[str] = Counter()
    for ops in (timeline.ops.of_kind(COMPUTE) for timeline in timelines if timeline.worked):
        total = np.bincount(ops.name, ops.end - ops.start, len(ops.names))
        for name, ns in zip(ops.names, total.tolist(), strict=True):
            time_by_name[name] += int(ns)
    return time_by_name


def kernel_table(timelines: Iterable[Timeline], by: str = "short") -> pd.DataFrame:
    """Compute and communication kernels by `short` name or by `kind`, their class; the longest first.

    Columns: name, kind, count, total_ns, mean_ns, median_ns, share (of the time of all kernels).
    """
    import pandas as pd

    parts = [pd.DataFrame(columns=["name", "kind", "ns"])]
    for ops in (timeline.ops.of_kind(COMPUTE, COMMUNICATION) for timeline in timelines if timeline.worked):
        kinds = list(map(classify, ops.names))
        labels = pd.DataFrame({"name": map(short, ops.names) if by == "short" else kinds, "kind": kinds})
        parts.append(labels.iloc[ops.name].assign(ns=ops.end - ops.start))
    ns = pd.concat(parts[len(parts) > 1 :]).groupby(["name", "kind"]).ns
    frame = ns.agg(count="size", total_ns="sum", mean_ns="mean", median_ns="median").reset_index()
    frame["share"] = frame.total_ns / frame.total_ns.sum()
    return frame.sort_values(["total_ns", "name"], ascending=[False, True], ignore_index=True)


def kinds(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per profile with kernels, of its `kernel_table` by `kind`: configuration (its name), and the share of each of `KINDS` in
    the time of all kernels; those of all other classes are "other"."""
    import pandas as pd

    rows = []
    for name, table in tables.items():
        if len(table):
            shares = table.set_index("kind").share.groupby(lambda kind: kind if kind in KINDS else OTHER).sum()
            rows.append({"configuration": name} | shares.reindex(KINDS, fill_value=0.0).to_dict())
    return pd.DataFrame(rows, columns=["configuration", *KINDS])
