"""Classes of kernels by their names, and tables of kernels.

The name is what every profiler records of a kernel. The classes follow the libraries that PyTorch calls: cuDNN and MIOpen
(convolution, normalisation), cuBLAS, CUTLASS and Tensile (GEMM), FlashAttention and its kin (attention), ATen, Triton as
torch.compile writes it, NCCL and RCCL. The name of a fused Triton kernel lists its parts: a reducing one is a
normalisation if it holds one, any other is elementwise.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from .timeline import COMMUNICATION, COMPUTE, Timeline

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

# MSCCL, NVSHMEM and PyTorch's symmetric memory are not NCCL, but move the same bytes between the same devices.
_COMMUNICATION = re.compile(r"nccl|rccl|msccl|nvshmem|(?:one|two)_shot_all_reduce|multimem_(?:all|one)", re.I)

_NORM = r"(?:batch|layer|group|instance|rms)_?norm"
_CONV = r"conv(?!ert)"  # not FlashAttention's "Convert"
# The first that is found in the name, in lower case, decides.
_PATTERNS = [
    (TRANSFER, r"^mem(?:cpy|set)\b|^copy(?:host|device)"),
    # torch.compile: pointwise, templates, groups of pointwise (foreach: the optimizer's), reductions
    (ELEMENTWISE, r"^triton_poi_"),
    (OPTIMIZER, r"^triton_for_|multi_tensor_apply|\badam|_adam|fused_?adam|fused_?sgd|fused_?adagrad|lamb_stage"),
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
    (TRANSFER, r"nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|batched_transpose|catarray"),
    (REDUCTION, r"softmax"),
    (
        CONVOLUTION,
        rf"{_CONV}|winograd|fprop|dgrad|wgrad|im2col|im2d2col|col2im|[sdhc\d]cudnn|cask_cudnn|cudnn::cnn"
        r"|fft2d_|igemm_(?:fwd|bwd|wrw)|implicit_gemm|depthwise",
    ),
    (GEMM, r"gemm|gemv|nvjet|cijk_|cublas|splitk|cutlass|tensorop|xmma|matmul|dot_kernel|magma"),
    (REDUCTION, r"reduce|nll_|criterion|cross_entropy|arg_?m(?:ax|in)"),
    (TRANSFER, r"transpose|permute|copy|gather|scatter|embedding|index"),
    (ELEMENTWISE, r"relu|gelu|silu|sigmoid|tanh|dropout|\badd_|\bmul_|bias"),
]
_MATCH = [(name, re.compile(pattern)) for name, pattern in _PATTERNS]

# Templates that only start their argument.
_STARTERS = re.compile(r"(?:^|::)(?:cutlass\w*::(?:Kernel2?|device_kernel)|enable_\w+)$")
_NOISE = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\s*\[clone [^\]]*\]$|\.kd$")


@dataclass(frozen=True)
class Row:
    """A line of the table; times in ns, `share` of the time of all kernels."""

    name: str
    kind: KernelClass
    count: int
    total_ns: int
    mean_ns: float
    median_ns: float
    share: float


@functools.lru_cache(maxsize=65536)
def classify(name: str) -> KernelClass:
    """`name`: as the profiler gives it, preferably with template arguments."""
    if _COMMUNICATION.search(name):
        return COLLECTIVE
    lowered = name.lower()
    return next((kind for kind, pattern in _MATCH if pattern.search(lowered)), OTHER)


@functools.lru_cache(maxsize=65536)
def bare(name: str) -> str:
    """A demangled name with template arguments, without return type and parameters."""
    if re.match(r"mem(?:cpy|set)\b", name, re.I):
        return name
    name = _NOISE.sub("", name)
    start, end = _bounds(name)
    return name[start:end].strip() or name


@functools.lru_cache(maxsize=65536)
def short(name: str) -> str:
    """A demangled name without template arguments and parameters, for tables.

    Starters such as `cutlass::Kernel2<cutlass_80_...>` are called by their argument.
    """
    inside = name
    for _ in range(8):  # starters may be nested
        inside = bare(inside)
        starter, opened, arguments = inside.partition("<")
        if not opened or not inside.endswith(">") or not _STARTERS.search(starter):
            break
        inside = _first_argument(arguments[:-1])
    return _without_templates(inside).strip() or name


def ops_kinds(names: Sequence[str]) -> np.ndarray:
    """(len(names),) int8: COMMUNICATION (any age of NCCL, RCCL and the rarer libraries) or COMPUTE."""
    return np.array([COMMUNICATION if _COMMUNICATION.search(name) else COMPUTE for name in names], np.int8)


def rows(
    timelines: Iterable[Timeline], by: str = "name", kinds: Sequence[int] = (COMPUTE, COMMUNICATION)
) -> list[Row]:
    """The kernels of all timelines together, the longest total first; `by` "name", "short" or "kind" (the class).

    Times are sums over kernels, concurrent or not. Memory operations are not kernels.
    """
    called = {"name": str, "short": short, "kind": classify}[by]
    found: dict[tuple[str, KernelClass], list[np.ndarray]] = defaultdict(list)
    for ops in (one.ops.of_kind(*kinds) for one in timelines if one.ops is not None):
        order = np.argsort(ops.name, kind="stable")
        numbers, first = np.unique(ops.name[order], return_index=True)
        durations = np.split((ops.end - ops.start)[order], first[1:])
        for number, part in zip(numbers.tolist(), durations, strict=False):
            found[called(ops.names[number]), classify(ops.names[number])].append(part)
    durations = {key: np.concatenate(parts) for key, parts in found.items()}
    totals = {key: int(ns.sum()) for key, ns in durations.items()}
    everything = max(sum(totals.values()), 1)
    unsorted = [
        Row(*key, len(ns), totals[key], totals[key] / len(ns), float(np.median(ns)), totals[key] / everything)
        for key, ns in durations.items()
    ]
    return sorted(unsorted, key=lambda row: (-row.total_ns, row.name))


def table(timelines: Iterable[Timeline], by: str = "name") -> pd.DataFrame:
    """`rows` as a frame: name, kind (the class), count, total_ns, mean_ns, median_ns, share."""
    import pandas as pd

    return pd.DataFrame([vars(row) for row in rows(timelines, by)], columns=list(Row.__dataclass_fields__))


def _bounds(name: str) -> tuple[int, int]:
    """Where the called name begins, behind a return type, and where it ends, before its parameters."""
    depth, start = 0, 0
    for place, letter in enumerate(name):
        if letter in "<{[":
            depth += 1
        elif (letter == ">" and name[place - 1 : place] != "-") or letter in "}]":
            depth -= 1
        elif letter == "(":
            if depth == 0 and place > start and not name.startswith("()", place):
                return start, place
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == " " and depth == 0:
            start = place + 1
    return (start if start < len(name) else 0), len(name)


def _first_argument(arguments: str) -> str:
    depth = 0
    for place, letter in enumerate(arguments):
        depth += (letter in "<({[") - (letter in ">)}]")
        if letter == "," and depth == 0:
            return arguments[:place]
    return arguments


def _without_templates(name: str) -> str:
    while (plain := re.sub(r"<[^<>]*>", "", name)) != name:
        name = plain
    return name
