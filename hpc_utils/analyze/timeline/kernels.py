"""What a kernel does, told by its name; and the table of a timeline's kernels.

Names are the only thing that every profiler gives. The classes follow the libraries that PyTorch calls: cuDNN and MIOpen
(convolution, normalisation), cuBLAS, CUTLASS and Tensile (GEMM), FlashAttention and its kin (attention), ATen, Triton as
torch.compile writes it, NCCL and RCCL. A fused Triton kernel lists what it fuses: one that reduces is a normalisation if
it holds one, one that does not is elementwise. Ten million kernels have a few hundred names: only those are looked at.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from . import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, Ops, Timeline

if TYPE_CHECKING:
    import pandas as pd

CONVOLUTION, GEMM, ATTENTION, NORMALISATION = "convolution", "GEMM", "attention", "normalisation"
ELEMENTWISE, REDUCTION, OPTIMIZER, TRANSFER = "elementwise", "reduction", "optimizer", "memory"
COLLECTIVE, OTHER = "communication", "other"
CLASSES = (
    CONVOLUTION, GEMM, ATTENTION, NORMALISATION, ELEMENTWISE, REDUCTION, OPTIMIZER, COLLECTIVE, TRANSFER, OTHER,
)  # fmt: skip

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

# Templates that only start what their argument does.
_STARTERS = re.compile(r"(?:^|::)(?:cutlass\w*::(?:Kernel2?|device_kernel)|enable_\w+)$")
_NOISE = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\s*\[clone [^\]]*\]$|\.kd$")


@dataclass(frozen=True)
class Row:
    """One line of the table; times in ns, `share` of the time of all kernels together."""

    name: str
    kind: str
    count: int
    total_ns: int
    mean_ns: float
    median_ns: float
    share: float


def is_communication(name: str) -> bool:
    """Whether a kernel of this name moves data between devices: NCCL of all ages, RCCL, and the rarer ones."""
    return bool(_COMMUNICATION.search(name))


@functools.lru_cache(maxsize=65536)
def classify(name: str) -> str:
    """One of `CLASSES`. `name`: as the profiler gives it, the better with template arguments."""
    if is_communication(name):
        return COLLECTIVE
    lowered = name.lower()
    return next((kind for kind, pattern in _MATCH if pattern.search(lowered)), OTHER)


@functools.lru_cache(maxsize=65536)
def bare(name: str) -> str:
    """A demangled name without return type and parameters, but with its template arguments."""
    if re.match(r"mem(?:cpy|set)\b", name, re.I):
        return name
    name = _NOISE.sub("", name)
    start, end = _bounds(name)
    return name[start:end].strip() or name


@functools.lru_cache(maxsize=65536)
def short(name: str) -> str:
    """A demangled name without template arguments and parameters, for tables.

    `cutlass::Kernel2<cutlass_80_...>` and the like say nothing by themselves: they are called by their argument.
    """
    inside = name
    for _ in range(8):  # such wrappers hold each other
        inside = bare(inside)
        if "<" not in inside or not inside.endswith(">"):
            break
        opened = inside.index("<")
        if not _STARTERS.search(inside[:opened]):
            break
        inside = _first_argument(inside[opened + 1 : -1])
    return _without_templates(inside).strip() or name


def names_of_kind(names: Sequence[str]) -> np.ndarray:
    """(len(names),) int8: COMMUNICATION or COMPUTE, by which a reader tells its kernels apart."""
    return np.array([COMMUNICATION if is_communication(name) else COMPUTE for name in names], np.int8)


def rows(timelines: Timeline | Iterable[Timeline], by: str = "name") -> list[Row]:
    """The kernels of all the timelines together, the longest total first; `by` "name", "short" or "kind" (the class).

    Memory operations are no kernels, and the time is the sum of each one's, side by side or not.
    """
    timelines = [timelines] if isinstance(timelines, Timeline) else list(timelines)
    called = {"name": str, "short": short, "kind": classify}[by]
    known: dict[tuple[str, str], int] = {}
    names, durations = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for ops in (one.ops for one in timelines if one.ops is not None):
        kernels = (ops.kind != MEMORY) & (ops.kind != UNKNOWN)
        labels = [(called(name), classify(name)) for name in ops.names]
        numbers = np.array([known.setdefault(label, len(known)) for label in labels], np.int64)
        names.append(numbers[ops.name[kernels]])
        durations.append((ops.end - ops.start)[kernels])
    return _rows(np.concatenate(names), np.concatenate(durations), list(known))


def kernel_table(timelines: Timeline | Iterable[Timeline], by: str = "name") -> pd.DataFrame:
    """`rows` as a frame: name, kind (the class), count, total_ns, mean_ns, median_ns, share."""
    import pandas as pd

    return pd.DataFrame([vars(row) for row in rows(timelines, by)], columns=list(Row.__dataclass_fields__))


def classes(ops: Ops) -> np.ndarray:
    """(len(ops),) int8: of each operation where in `CLASSES` its class stands."""
    told = np.array([CLASSES.index(classify(name)) for name in ops.names], np.int8)
    found = told[ops.name] if len(told) else np.empty(0, np.int8)
    found[ops.kind == MEMORY] = CLASSES.index(TRANSFER)
    found[ops.kind == UNKNOWN] = CLASSES.index(OTHER)
    return found


def _rows(names: np.ndarray, durations: np.ndarray, known: list[tuple[str, str]]) -> list[Row]:
    if not len(names):
        return []
    order = np.lexsort((durations, names))  # so each name's durations stand together, and sorted
    names, durations = names[order], durations[order]
    first = np.concatenate([[0], np.flatnonzero(np.diff(names)) + 1])
    counts = np.diff(np.concatenate([first, [len(names)]]))
    totals = np.add.reduceat(durations, first)
    medians = (durations[first + (counts - 1) // 2] + durations[first + counts // 2]) / 2
    everything = max(int(totals.sum()), 1)
    found = [
        Row(*known[name], int(count), int(total), int(total) / int(count), float(median), int(total) / everything)
        for name, count, total, median in zip(names[first], counts, totals, medians, strict=True)
    ]
    return sorted(found, key=lambda row: (-row.total_ns, row.name))


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
    depth, kept = 0, []
    for letter in name:
        depth += letter == "<"
        if depth == 0:
            kept.append(letter)
        depth -= letter == ">" and depth > 0
    return "".join(kept)
