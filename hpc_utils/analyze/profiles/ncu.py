"""Nsight Compute reports (`.ncu-rep`): what share of the GPU's peaks each kernel reached.

NVIDIA's package `ncu-report` reads them without a GPU, of every version up to its own. The names of metrics change with
versions and chips: each column takes the first of its names that is there, and is NaN where none is, never zero.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import kernels
from .timeline import ProfileError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "name", "kind", "device", "duration_ns", "sm_share", "memory_share", "dram_share", "tensor_share", "occupancy",
    "dram_bytes", "flops_fp64", "flops_fp32", "flops_fp16", "flops_tensor", "flops",
)  # fmt: skip

_MAGIC = b"NVR\0"
_PAYLOAD = 5  # the field of a block's header with the number of bytes that follow it

# Shares of a peak, in percent in the report. "Speed of light" is the busiest of a unit's parts.
_ELAPSED, _ACTIVE = "avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active"
_SHARES = {
    "sm_share": [f"sm__throughput.{_ELAPSED}"],
    "memory_share": [f"gpu__compute_memory_throughput.{_ELAPSED}"],
    "dram_share": [f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}"],
    "tensor_share": [f"sm__pipe_tensor_cycles_active.{_ACTIVE}", f"sm__inst_executed_pipe_tensor.{_ACTIVE}"],
    "occupancy": [f"sm__warps_active.{_ACTIVE}"],
}
# Older reports count the tensor pipe's kinds of operations apart: the busiest is a lower bound of the pipe's share.
_TENSOR_KINDS = [
    f"{name}.{_ACTIVE}"
    for kind in ("hmma", "imma", "dmma", "gmma")
    for name in (f"sm__pipe_tensor_op_{kind}_cycles_active", f"sm__inst_executed_pipe_tensor_op_{kind}")
]
_TENSOR_OPERATIONS = "sm__ops_path_tensor_src_"

# Operations of one thread's instruction: those of half precision work on pairs.
_FLOPS = {
    "flops_fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "flops_fp32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "flops_fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9}


def read(path: str | Path) -> pd.DataFrame:
    """A row per kernel launch, in the order of the report.

    Columns (`COLUMNS`): name (demangled), kind (`kernels.classify`), device (the GPU's name, "": not known);
    duration_ns (at the clocks that ncu had locked, which are lower than a run's);
    shares 0 to 1 of the sustained peak: sm_share (the busiest part of the SMs), memory_share (of caches and memory),
    dram_share, tensor_share (tensor pipe, of the SMs' active cycles), occupancy (warps, of the most that fit);
    dram_bytes (read and written); flops_fp64, flops_fp32, flops_fp16 (operations outside the tensor cores), flops_tensor,
    flops (their sum; NaN if the tensor pipe worked and no counter gives its operations).

    Raises:
        ProfileError: not a complete report, newer than the package, or the package is not installed.
    """
    import pandas as pd

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    if not data.startswith(_MAGIC) or not _complete(data):
        raise ProfileError(f"{path}: not a complete report of Nsight Compute: copy it again, or profile again")
    if importlib.util.find_spec("ncu_report") is None:
        raise ProfileError(f"{path}: reading Nsight Compute's reports needs NVIDIA's package: pip install ncu-report")
    # Certain damaged reports end the process of NVIDIA's reader.
    command = [sys.executable, "-m", __name__, str(Path(path).absolute())]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"its reader ended with {done.returncode}"])[-1][:200]
        raise ProfileError(f"{path}: cannot be read: damaged, or newer than the installed ncu-report ({why})")
    rows = json.loads(done.stdout)
    if not rows:
        raise ProfileError(f"{path}: no kernel was profiled: check the filters of ncu")
    return pd.DataFrame(rows, columns=list(COLUMNS))


def read_all(paths: Iterable[str | Path]) -> tuple[pd.DataFrame, list[str]]:
    """(the kernels of several reports, why the others cannot be read)."""
    import pandas as pd

    frames, missing = [pd.DataFrame(columns=list(COLUMNS), dtype=float)], []
    for path in paths:
        try:
            frames.append(read(path))
        except ProfileError as error:
            missing.append(str(error))
    return pd.concat(frames[len(frames) > 1 :], ignore_index=True), missing


def _complete(data: bytes) -> bool:
    """Whether the last block is complete: NVIDIA's reader silently skips what is missing in a truncated report.

    After the file's header, each block is the length of its header (uint32), the header (protobuf; its schema is in Nsight
    Compute's extras/FileFormat), and as many bytes as the header gives.
    """
    try:
        place = 8 + int.from_bytes(data[4:8], "little")
        while place < len(data):
            begin = place + 4
            place = begin + int.from_bytes(data[place:begin], "little")
            place += _payload(data[begin:place])
    except IndexError:
        return False
    return place == len(data)


def _payload(header: bytes) -> int:
    """The bytes that follow a block's header; IndexError if the header is truncated."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = header[place]
            value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
            if byte < 128:
                return value

    while place < len(header):
        key = varint()
        value = varint()  # of an integer; of a nested message its length
        if key >> 3 == _PAYLOAD:
            return value
        place += value if key & 7 else 0
    return 0


def _row(action: Any) -> dict[str, Any]:
    row = {column: _number(action, *names) / 100 for column, names in _SHARES.items()}
    if math.isnan(row["tensor_share"]):
        kinds = [_number(action, name) / 100 for name in _TENSOR_KINDS]
        row["tensor_share"] = max((share for share in kinds if share == share), default=math.nan)
    device, time = map(action.metric_by_name, ("device__attribute_display_name", "gpu__time_duration.sum"))
    ns = math.nan if time is None else time.as_double() * _NS.get(time.unit() or "ns", math.nan)
    row |= {column: _flops(action, counted, ns / 1e9) for column, counted in _FLOPS.items()}
    known = [row[column] for column in _FLOPS if not math.isnan(row[column])]
    row["flops_tensor"] = _flops_tensor(action, row["tensor_share"])
    row["flops"] = sum(known) + row["flops_tensor"] if known else math.nan
    parts = [_number(action, f"dram__bytes_{way}.sum") for way in ("read", "write")]
    return row | {
        "name": action.name(),
        "kind": kernels.classify(action.name()),
        "device": "" if device is None else str(device.as_string() or ""),
        "duration_ns": ns,
        "dram_bytes": _first(
            _number(action, "dram__bytes.sum"), sum(parts), _number(action, "dram__bytes.sum.per_second") * ns / 1e9
        ),
    }


def _first(*values: float) -> float:
    """The first that is known."""
    return next((value for value in values if math.isfinite(value)), math.nan)


def _number(action: Any, *names: str) -> float:
    """The first of these metrics that is there; NaN if none is."""
    return _first(*(metric.as_double() for metric in map(action.metric_by_name, names) if metric is not None))


def _flops(action: Any, counted: dict[str, int], seconds: float) -> float:
    """Operations of the instructions; where the report has them per cycle, times its cycles."""
    cycles, total = _number(action, "smsp__cycles_elapsed.avg.per_second") * seconds, 0.0
    for instruction, operations in counted.items():
        name = f"smsp__sass_thread_inst_executed_op_{instruction}_pred_on.sum"
        number = _number(action, name, name.replace("smsp__", "sm__"))
        total += operations * _first(number, _number(action, f"{name}.per_cycle_elapsed") * cycles)
    return total


def _flops_tensor(action: Any, share: float) -> float:
    names = [name for name in action.metric_names() if name.startswith(_TENSOR_OPERATIONS) and name.endswith(".sum")]
    if not names:
        return 0.0 if share == 0 else math.nan
    dense = [name for name in names if "_sparsity_" not in name]
    return math.fsum(value for name in dense or names if math.isfinite(value := _number(action, name)))


if __name__ == "__main__":
    import ncu_report

    report = ncu_report.load_report(sys.argv[1])
    ranges = map(report.range_by_idx, range(report.num_ranges()))
    json.dump([_row(one.action_by_idx(place)) for one in ranges for place in range(one.num_actions())], sys.stdout)
