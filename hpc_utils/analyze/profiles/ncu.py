"""Nsight Compute reports (`.ncu-rep`): what share of the GPU's peaks each kernel reached.

NVIDIA's package `ncu-report` reads them without a GPU, of every version up to its own. The names of metrics change with
versions and chips: each column takes the first of its names that is there, and is NaN where none is, never zero.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from . import kernels
from .timeline import ProfileError

COLUMNS = (
    "name", "kind", "device", "duration_ns", "sm_share", "memory_share", "dram_share", "tensor_share", "occupancy",
    "dram_bytes", "flops_fp64", "flops_fp32", "flops_fp16", "flops_tensor", "flops", "precision",
)  # fmt: skip
TIMEOUT = 600.0  # s: NVIDIA's reader takes seconds for thousands of kernels

# Shares of a peak, in percent in the report. "Speed of light" is the busiest of a unit's parts.
_ELAPSED, _ACTIVE = "avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active"
_TENSOR = "sm__pipe_tensor_cycles_active"
_SHARES = {
    "sm_share": [f"sm__throughput.{_ELAPSED}"],
    "memory_share": [f"gpu__compute_memory_throughput.{_ELAPSED}"],
    "dram_share": [f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}"],
    "tensor_share": [f"{_TENSOR}.{_ACTIVE}", f"{_TENSOR}.{_ELAPSED}"],
    "occupancy": [f"sm__warps_active.{_ACTIVE}"],
}
_TENSOR_OPERATIONS = r"sm__ops_path_tensor_src_([a-z\d]+)(?!.*_sparsity_).*\.sum"  # not those of sparse kernels apart

# Operations of one thread's instruction: those of half precision work on pairs.
_FLOPS = {
    "flops_fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "flops_fp32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "flops_fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}


def read_kernels(path: str | Path) -> pd.DataFrame:
    """A row per kernel launch, in the order of the report.

    Columns (`COLUMNS`): name (demangled), kind (`kernels.classify`), device (the GPU's name, "": not known);
    duration_ns (at the clocks that ncu had locked, which are lower than a run's);
    shares 0 to 1 of the sustained peak: sm_share (the busiest part of the SMs), memory_share (of caches and memory),
    dram_share, tensor_share (tensor pipe), occupancy (warps, of the most that fit);
    dram_bytes (read and written); flops_fp64, flops_fp32, flops_fp16 (operations outside the tensor cores), flops_tensor,
    flops (their sum; NaN if the tensor pipe worked and no counter gives its operations);
    precision of most operations, on tensor cores that of their sources (fp64, fp32, tf32, bf16, fp16, fp8, int8, ...; "": not known).

    Raises:
        ProfileError: not a complete report, newer than the package, or the package is not installed.
    """
    try:
        complete = _complete(Path(path).read_bytes())
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    if not complete:
        raise ProfileError(f"{path}: not a complete report of Nsight Compute: copy it again, or profile again")
    if importlib.util.find_spec("ncu_report") is None:
        raise ProfileError(f"{path}: reading Nsight Compute's reports needs NVIDIA's package: pip install ncu-report")
    # Certain damaged reports end the process of NVIDIA's reader.
    command = [sys.executable, "-m", __name__, str(Path(path).absolute())]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=TIMEOUT
        )
    except subprocess.SubprocessError as error:
        raise ProfileError(f"{path}: damaged, or newer than the installed ncu-report ({error})") from None
    return pd.DataFrame(json.loads(done.stdout), columns=list(COLUMNS))


def _complete(data: bytes) -> bool:
    """Whether the last block is complete: NVIDIA's reader silently skips what is missing in a truncated report.

    After the file's header, each block is the length of its header (uint32), the header (protobuf; its schema is in Nsight
    Compute's extras/FileFormat), and as many bytes as the header's field 5 gives.
    """
    place = 8 + int.from_bytes(data[4:8], "little")
    try:
        while data.startswith(b"NVR\0") and place < len(data):
            begin = place + 4
            place = begin + int.from_bytes(data[place:begin], "little")
            key, payload = 0, 0
            while begin < place and key >> 3 != 5:
                payload, begin = 0, begin + (payload if key & 7 else 0)  # skips a nested message
                key, begin = _varint(data, begin)
                payload, begin = _varint(data, begin)
            place += payload if key >> 3 == 5 else 0
    except IndexError:
        return False
    return place == len(data)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """(protobuf's integer at a place, the place behind it)."""
    value = shift = 0
    while True:
        value |= (data[place] & 127) << shift
        shift += 7
        place += 1
        if data[place - 1] < 128:
            return value, place


def _row(action: Any) -> dict[str, Any]:
    row = {column: _number(action, *names) / 100 for column, names in _SHARES.items()}
    ns = _number(action, "gpu__time_duration.sum")
    cycles = _number(action, "smsp__cycles_elapsed.avg.per_second") * ns / 1e9
    for column, counted in _FLOPS.items():
        name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
        row[column] = cycles * sum(
            operations * _number(action, name.format(instruction)) for instruction, operations in counted.items()
        )
    tensor = Counter()
    for match in filter(None, (re.fullmatch(_TENSOR_OPERATIONS, name) for name in action.metric_names())):
        tensor[match[1]] += _number(action, match[0])
    row["flops_tensor"] = math.fsum(tensor.values())
    if not tensor and row["tensor_share"] != 0:
        row["flops_tensor"] = math.nan
    by_precision = {column: row[column] for column in _FLOPS if not math.isnan(row[column])}
    row["flops"] = sum(by_precision.values()) + row["flops_tensor"] if by_precision else math.nan
    most = max((*by_precision.items(), *tensor.items()), key=lambda item: item[1], default=("", 0))
    row["precision"] = most[0].removeprefix("flops_")
    device = action.metric_by_name("device__attribute_display_name")
    return row | {
        "name": action.name(),
        "kind": kernels.classify(action.name()),
        "device": device.as_string() if device else "",
        "duration_ns": ns,
        "dram_bytes": sum(_number(action, f"dram__bytes_{way}.sum") for way in ("read", "write")),
    }


def _number(action: Any, *names: str) -> float:
    """The first of these metrics that is there; NaN if none is."""
    metrics = (metric for metric in map(action.metric_by_name, names) if metric is not None)
    return next((metric.as_double() for metric in metrics), math.nan)


if __name__ == "__main__":
    import ncu_report

    report = ncu_report.load_report(sys.argv[1])
    ranges = map(report.range_by_idx, range(report.num_ranges()))
    rows = [_row(launches.action_by_idx(index)) for launches in ranges for index in range(launches.num_actions())]
    json.dump(rows, sys.stdout)
