"""Nsight Compute's reports (`.ncu-rep`): what each kernel reached of the GPU's peaks.

Read through NVIDIA's own package `ncu-report`, which needs no GPU and opens reports of every version up to its own. A
report holds the metrics that somebody had it collect, under names that change with versions and chips: each column takes
the first of its names that is there, and is NaN where none is. Nothing that is missing is zero.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .timeline import ProfileError, kernels

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "name", "kind", "device", "duration_ns", "sm_share", "memory_share", "dram_share", "tensor_share", "occupancy",
    "dram_bytes", "flops_fp64", "flops_fp32", "flops_fp16", "flops_tensor", "flops",
)  # fmt: skip

SECONDS = 600  # that a report may take to read
_MAGIC = b"NVR\0"
_LENGTH = struct.Struct("<I")

# Shares of a peak, in percent in the report. "Speed of light" is the busiest of a unit's parts.
_SHARES = {
    "sm_share": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "memory_share": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",),
    "dram_share": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
}
_TENSOR = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
# Older ones tell the tensor pipe's kinds of operations apart: the busiest is what the pipe was busy at least.
_TENSOR_KINDS = tuple(
    f"{name}.avg.pct_of_peak_sustained_active"
    for kind in ("hmma", "imma", "dmma", "gmma")
    for name in (f"sm__pipe_tensor_op_{kind}_cycles_active", f"sm__inst_executed_pipe_tensor_op_{kind}")
)
_TENSOR_OPERATIONS = "sm__ops_path_tensor_src_"

# Operations of one thread's instruction: those of half precision work on pairs.
_FLOPS = {
    "flops_fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "flops_fp32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "flops_fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
_PAYLOAD = 5  # number of the field in a block's header that tells how many bytes follow it


def read(path: str | Path) -> pd.DataFrame:
    """A row a kernel launch, in the order of the report.

    Columns (`COLUMNS`): name (demangled), kind (`timeline.kernels.classify`), device (the GPU's name, "" if not told);
    duration_ns (at the clocks that ncu had locked, which are lower than a run's);
    shares 0 to 1 of the sustained peak: sm_share (the busiest part of the SMs), memory_share (of caches and memory),
    dram_share, tensor_share (tensor pipe, of the SMs' active cycles), occupancy (warps, of the most that fit);
    dram_bytes (read and written); flops_fp64, flops_fp32, flops_fp16 (operations outside the tensor cores), flops_tensor,
    flops (their sum, as far as counters tell; NaN if the tensor pipe worked and nothing says how much).

    Raises:
        ProfileError: no such file, not a report, damaged, newer than the package, or the package is not installed.
    """
    import pandas as pd

    path = Path(path)
    _check(path)
    rows = _apart(path)
    if not rows:
        raise ProfileError(
            f"{path}: a report without kernels: nothing was profiled (see ncu's filters), or it is damaged"
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _check(path: Path) -> None:
    try:
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC))
            whole = begins == _MAGIC and _complete(file)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    if begins != _MAGIC:
        raise ProfileError(f"{path}: not a report of Nsight Compute: expected what `ncu -o NAME` writes (.ncu-rep)")
    if not whole:
        raise ProfileError(f"{path}: damaged: it ends in the middle of a block. Copy it again, or profile again")
    if importlib.util.find_spec("ncu_report") is None:
        raise ProfileError(f"{path}: reading Nsight Compute's reports needs NVIDIA's package: pip install ncu-report")


def _apart(path: Path) -> list[dict[str, Any]]:
    """The rows, read in a process of its own: NVIDIA's reader ends its process when a report is damaged in certain ways."""
    damaged = f"{path}: cannot be read: damaged, or of a newer Nsight Compute than the installed ncu-report"
    command = [sys.executable, "-m", "hpc_utils.analyze.ncu", str(path.absolute())]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise ProfileError(f"{damaged}: its reader was at it for {SECONDS} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ProfileError(f"{damaged} ({said[-1][:200] if said else f'its reader ended with {done.returncode}'})")
    return json.loads(done.stdout)


def _print_rows(path: str) -> None:
    """What the process of its own does: the rows as JSON on stdout."""
    import ncu_report

    json.dump([_row(action) for action in _actions(ncu_report.load_report(path))], sys.stdout)


def _complete(file: BinaryIO) -> bool:
    """Whether all blocks are whole, for the reader gives the kernels of a truncated report as if they were all, some without
    their values. After a header, each block is the length of its header (uint32), the header (protobuf; extras/FileFormat
    of Nsight Compute has the schema), and as many bytes as the header says."""
    end = file.seek(0, os.SEEK_END)
    place = file.seek(len(_MAGIC))
    try:
        place += _LENGTH.size + _LENGTH.unpack(file.read(_LENGTH.size))[0]
        while place < end:
            file.seek(place)
            (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
            place += _LENGTH.size + size + _payload(file.read(min(size, end - place)))
    except (struct.error, IndexError):
        return False
    return place == end


def _payload(header: bytes) -> int:
    """The field of a protobuf message; 0 if it has none. IndexError if the message ends within a field."""
    place = 0
    while place < len(header):
        key, place = _varint(header, place)
        if key & 7 == 0:
            value, place = _varint(header, place)
            if key >> 3 == _PAYLOAD:
                return value
        elif key & 7 == 2:
            size, place = _varint(header, place)
            place += size
        else:
            place += {1: 8, 5: 4}.get(key & 7, len(header))
    return 0


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """(value, place after it)."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _actions(context: Any) -> Iterator[Any]:
    for number in range(context.num_ranges()):
        one = context.range_by_idx(number)
        for place in range(one.num_actions()):
            yield one.action_by_idx(place)


def _row(action: Any) -> dict[str, Any]:
    name = action.name()
    duration = _duration(action)
    seconds = duration / 1e9
    row = {"name": name, "kind": kernels.classify(name), "device": _text(action, "device__attribute_display_name")}
    row["duration_ns"] = duration
    row |= {column: _number(action, *names) / 100 for column, names in _SHARES.items()}
    row["tensor_share"] = _tensor_share(action)
    row["dram_bytes"] = _dram_bytes(action, seconds)
    row |= {column: _flops(action, counted, seconds) for column, counted in _FLOPS.items()}
    row["flops_tensor"] = _flops_tensor(action, row["tensor_share"])
    known = [row[column] for column in _FLOPS if not math.isnan(row[column])]
    row["flops"] = sum(known) + row["flops_tensor"] if known else math.nan
    return row


def _number(action: Any, *names: str) -> float:
    """Of the first metric that is there; NaN if none is."""
    for name in names:
        metric = action.metric_by_name(name)
        if metric is not None:
            value = metric.as_double()
            if value is not None and math.isfinite(value):
                return float(value)
    return math.nan


def _text(action: Any, name: str) -> str:
    metric = action.metric_by_name(name)
    return str(metric.as_string() or "") if metric is not None else ""


def _duration(action: Any) -> float:
    """ns."""
    metric = action.metric_by_name("gpu__time_duration.sum")
    if metric is None:
        return math.nan
    return float(metric.as_double()) * _NS.get(metric.unit() or "ns", math.nan)


def _tensor_share(action: Any) -> float:
    told = _number(action, *_TENSOR)
    if math.isnan(told):
        kinds = [value for value in (_number(action, name) for name in _TENSOR_KINDS) if not math.isnan(value)]
        told = max(kinds, default=math.nan)
    return told / 100


def _dram_bytes(action: Any, seconds: float) -> float:
    parts = _number(action, "dram__bytes_read.sum") + _number(action, "dram__bytes_write.sum")
    whole = _number(action, "dram__bytes.sum")
    found = [whole, parts, _number(action, "dram__bytes.sum.per_second") * seconds]
    return next((value for value in found if not math.isnan(value)), math.nan)


def _flops(action: Any, counted: dict[str, int], seconds: float) -> float:
    """Operations of the instructions; where the report has them per cycle, times its cycles."""
    cycles = _number(action, "smsp__cycles_elapsed.avg.per_second") * seconds
    total = 0.0
    for instruction, operations in counted.items():
        name = f"smsp__sass_thread_inst_executed_op_{instruction}_pred_on.sum"
        number = _number(action, name, name.replace("smsp__", "sm__"))
        if math.isnan(number):
            number = _number(action, f"{name}.per_cycle_elapsed") * cycles
        total += operations * number
    return total


def _flops_tensor(action: Any, share: float) -> float:
    names = [name for name in action.metric_names() if name.startswith(_TENSOR_OPERATIONS) and name.endswith(".sum")]
    whole = [name for name in names if "_sparsity_" not in name]
    if names:
        return _sum([_number(action, name) for name in whole or names])
    return 0.0 if share == 0 else math.nan


def _sum(values: Sequence[float]) -> float:
    return float(sum(value for value in values if not math.isnan(value))) if values else math.nan


if __name__ == "__main__":
    _print_rows(sys.argv[1])
