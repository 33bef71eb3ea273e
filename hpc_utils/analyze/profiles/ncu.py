"""Reports of Nsight Compute (`.ncu-rep`): what share of the GPU's peaks each kernel reached.

NVIDIA's package `ncu-report` reads them without a GPU, of every version up to its own. The names of metrics change with
versions and chips: each column takes the first of its names that is there, and is NaN where none is, never zero.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from . import kernels
from .timeline import ProfileError

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
    "tensor_share": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    ),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
}
# Older reports count the tensor pipe's kinds of operations apart: the busiest is a lower bound of the pipe's share.
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
_PAYLOAD = 5  # number of the field in a block's header that gives the bytes that follow it


def read(path: str | Path) -> pd.DataFrame:
    """A row per kernel launch, in the order of the report.

    Columns (`COLUMNS`): name (demangled), kind (`kernels.classify`), device (the GPU's name, "": not known);
    duration_ns (at the clocks that ncu had locked, which are lower than a run's);
    shares 0 to 1 of the sustained peak: sm_share (the busiest part of the SMs), memory_share (of caches and memory),
    dram_share, tensor_share (tensor pipe, of the SMs' active cycles), occupancy (warps, of the most that fit);
    dram_bytes (read and written); flops_fp64, flops_fp32, flops_fp16 (operations outside the tensor cores), flops_tensor,
    flops (their sum; NaN if the tensor pipe worked and no counter gives its operations).

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
    """The rows, read in a process of its own: certain damaged reports end the process of NVIDIA's reader."""
    damaged = f"{path}: cannot be read: damaged, or of a newer Nsight Compute than the installed ncu-report"
    command = [sys.executable, "-m", __name__, str(path.absolute())]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise ProfileError(f"{damaged}: no answer of its reader in {SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise ProfileError(f"{damaged} ({lines[-1][:200] if lines else f'its reader ended with {done.returncode}'})")
    return json.loads(done.stdout)


def _complete(file: BinaryIO) -> bool:
    """Whether all blocks are whole: of a truncated report the reader gives the kernels that are left, some without values.
    After a header, each block is the length of its header (uint32), the header (protobuf; its schema is in Nsight
    Compute's extras/FileFormat), and as many bytes as the header gives."""
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


def _row(action: Any) -> dict[str, Any]:
    seconds = _duration(action) / 1e9
    row = {column: _number(action, *names) / 100 for column, names in _SHARES.items()}
    if math.isnan(row["tensor_share"]):
        kinds = (_number(action, name) / 100 for name in _TENSOR_KINDS)
        row["tensor_share"] = max((share for share in kinds if not math.isnan(share)), default=math.nan)
    row |= {column: _flops(action, counted, seconds) for column, counted in _FLOPS.items()}
    known = [row[column] for column in _FLOPS if not math.isnan(row[column])]
    row["flops_tensor"] = _flops_tensor(action, row["tensor_share"])
    row["flops"] = sum(known) + row["flops_tensor"] if known else math.nan
    device = action.metric_by_name("device__attribute_display_name")
    return row | {
        "name": action.name(),
        "kind": kernels.classify(action.name()),
        "device": str(device.as_string() or "") if device is not None else "",
        "duration_ns": _duration(action),
        "dram_bytes": _dram_bytes(action, seconds),
    }


def _number(action: Any, *names: str) -> float:
    """Of the first metric that is there; NaN if none is."""
    for metric in map(action.metric_by_name, names):
        value = None if metric is None else metric.as_double()
        if value is not None and math.isfinite(value):
            return float(value)
    return math.nan


def _duration(action: Any) -> float:
    """ns."""
    metric = action.metric_by_name("gpu__time_duration.sum")
    return math.nan if metric is None else float(metric.as_double()) * _NS.get(metric.unit() or "ns", math.nan)


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
    if not names:
        return 0.0 if share == 0 else math.nan
    dense = [name for name in names if "_sparsity_" not in name]
    values = [_number(action, name) for name in dense or names]
    return float(sum(value for value in values if not math.isnan(value)))


if __name__ == "__main__":
    import ncu_report

    report = ncu_report.load_report(sys.argv[1])
    ranges = [report.range_by_idx(number) for number in range(report.num_ranges())]
    actions = (one.action_by_idx(place) for one in ranges for place in range(one.num_actions()))
    json.dump([_row(action) for action in actions], sys.stdout)
