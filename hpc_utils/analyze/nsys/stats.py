"""What `nsys stats` prints, as frames: summaries of both dialects (`gpukernsum` and, since 2023.1, `cuda_gpu_kern_sum`).

Times and sizes come in the unit that the header names (`--timeunit`), columns in whatever order, several reports in one
file with nsys's talk between them. nsys ends well when a report has no data, and says SKIPPED: that is kept too.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

from ..timeline import ProfileError, kernels

if TYPE_CHECKING:
    import pandas as pd

KERNELS, COPY_TIMES, COPY_SIZES = "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"
CALLS, RANGES, PUSHED, STARTED, SYSTEM = (
    "cuda_api_sum",
    "nvtx_sum",
    "nvtx_pushpop_sum",
    "nvtx_startend_sum",
    "osrt_sum",
)
# The old dialect's names.
RENAMED = {
    "gpukernsum": KERNELS, "gpumemtimesum": COPY_TIMES, "gpumemsizesum": COPY_SIZES, "gpusum": "cuda_gpu_sum",
    "cudaapisum": CALLS, "apigpusum": "cuda_api_gpu_sum", "nvtxsum": RANGES, "nvtxppsum": PUSHED, "nvtxsesum": STARTED,
    "osrtsum": SYSTEM, "openaccsum": "openacc_sum",
}  # fmt: skip

_COLUMNS = {
    "share": r"time ?\(%\)",
    "total": r"total(?: time)?",
    "count": r"instances|count|num calls|calls|operations",
    "mean": r"avg|average",
    "median": r"med|median",
    "min": r"min|minimum",
    "max": r"max|maximum",
    "std": r"stddev|std dev",
    "name": r"name|operation|range",
}
_MEASURES = ("total", "mean", "median", "min", "max", "std")
_UNITS = {"ns": 1, "nsec": 1, "us": 10**3, "μs": 10**3, "µs": 10**3, "usec": 10**3, "ms": 10**6, "msec": 10**6}
_UNITS |= {"s": 10**9, "sec": 10**9, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZES = {"b", "kb", "mb", "gb"}
_STARTED = re.compile(
    r"^(?:Processing|Running) \[(?:.*\bwith \[)?(?P<script>[^\]]*?\.py)\b|^ *\*\* .*\((?P<name>\w+)\):$"
)
_SKIPPED = re.compile(r"(?:^|\.\.\. )SKIPPED: ?(?P<why>.*)$")
_LARGEST = 256 << 20  # bytes of a file of summaries


@dataclass
class Stats:
    """The summaries of one file.

    Attributes:
        frames: {report, by its new name: its table}. Rows as nsys printed them: 2022's has one a kernel and launch
            configuration. Columns: name; kind (of kernels: their class); count; total_ns,
            mean_ns, median_ns, min_ns, max_ns, std_ns, or the same of sizes with _bytes (NaN where the dialect lacks one);
            share of the total of the table; whatever else nsys printed, as text.
        missing: {report: what nsys said}: it had no such data.
    """

    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def read(path: Path | str) -> Stats:
    """The tables of a CSV that `nsys stats --format csv` wrote to a file or to its output.

    Raises:
        ProfileError: the file holds no table of `nsys stats`, or a number that is none.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}") from error
    if len(text) > _LARGEST or b"\0" in text:
        raise ProfileError(f"{path} is no output of `nsys stats --format csv`")
    found = Stats()
    for report, header, rows in _tables(text.decode("utf-8-sig", "replace"), path, found.missing):
        found.frames[report] = _frame(path, report, header, rows)
    if not text.strip() and (named := _by_file(path)):
        found.missing[RENAMED.get(named, named)] = "nsys wrote nothing: there was no such data"
    if not found.frames and not found.missing:
        raise ProfileError(f"{path} holds no table: expected what `nsys stats --format csv` writes")
    return found


def _tables(
    text: str, path: Path, missing: dict[str, str]
) -> Iterator[tuple[str, list[str], list[tuple[int, list[str]]]]]:
    """(report, header, numbered rows) of each; what was skipped goes into `missing`."""
    report, header, rows = _by_file(path), [], []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        started, skipped = _STARTED.match(line), _SKIPPED.search(line)
        fields = next(csv.reader([line]), [])
        if header and (started or skipped or not line.strip()):
            yield _named(report, header), header, rows
            header, rows = [], []
        elif header:
            rows.append((number, fields))
            continue
        if started:
            report = started["name"] or Path(started["script"]).stem
        if skipped:
            missing[RENAMED.get(report, report) or "?"] = skipped["why"].strip()
        elif {"name", "count", "total"} <= {_column(field)[0] for field in fields}:
            header, rows = fields, []


def _by_file(path: Path) -> str:
    """The report that `nsys stats --output` named a file after; "" if none."""
    return next((name for name in _names() if path.stem.endswith(name)), "")


def _names() -> tuple[str, ...]:
    return (*RENAMED, *RENAMED.values())


def _named(report: str, header: list[str]) -> str:
    """A report's new name; by its columns where nobody said it."""
    if report in _names() or (report and report.endswith("sum")):
        return RENAMED.get(report, report)
    texts = {field.split(" (")[0].lower() for field in header}
    if "operation" in texts:
        return COPY_TIMES if "total time" in texts else COPY_SIZES
    return RANGES if "range" in texts else CALLS if "num calls" in texts else KERNELS


def _column(text: str) -> tuple[str, str]:
    """(our name of a column, its unit) of "Total Time (ns)"; the text itself if it is none of ours."""
    text = text.strip()
    if re.fullmatch(_COLUMNS["share"], text.lower()):
        return "share", "%"
    plain, unit = re.fullmatch(r"(.*?) ?(?:\(([^()]*)\))?", text).groups()
    ours = next((name for name, pattern in _COLUMNS.items() if re.fullmatch(pattern, plain.lower())), text)
    return ours, (unit or "").strip().lower()


def _frame(path: Path, report: str, header: list[str], rows: list[tuple[int, list[str]]]) -> pd.DataFrame:
    import pandas as pd

    columns = [_column(text) for text in header]
    unit = next((unit for name, unit in columns if name == "total"), "") or "ns"
    suffix = "_bytes" if unit in _SIZES else "_ns"
    table: dict[str, list] = {"name": []}
    for number, row in rows:
        if len(row) != len(columns):
            raise ProfileError(
                f"{path}, line {number}: {len(row)} fields, the header has {len(columns)}: is it whole?"
            )
        for (name, own), text in zip(columns, row, strict=True):
            if name in _MEASURES:
                factor = _UNITS.get(own or unit)
                if factor is None:
                    raise ProfileError(f"{path}: unit {own or unit!r} of {name} is not known")
                table.setdefault(name + suffix, []).append(_number(path, number, text, factor))
            elif name == "count":
                table.setdefault(name, []).append(_number(path, number, text, 1))
            elif name != "share":
                table.setdefault(name, []).append(text)
    frame = pd.DataFrame(table)
    total = f"total{suffix}"
    for name in ["count", *(name + suffix for name in _MEASURES)]:
        frame[name] = frame.get(name, pd.Series(float("nan"), frame.index))
        exact = not name.startswith(("mean", "median", "std")) and not frame[name].isna().any()
        exact = exact and all(value == int(value) for value in frame[name])
        frame[name] = frame[name].map(int if exact else float).astype("int64" if exact else float)
    if report == KERNELS:
        frame["kind"] = [kernels.classify(name) for name in frame["name"]]
    frame["share"] = frame[total] / max(frame[total].sum(), 1)
    ours = [
        "name",
        *(["kind"] if report == KERNELS else []),
        "count",
        *(name + suffix for name in _MEASURES),
        "share",
    ]
    return frame[[*ours, *(name for name in frame if name not in ours)]]


def _number(path: Path, line: int, text: str, factor: int) -> Decimal:
    try:
        value = Decimal(text.strip().replace(",", "")) * factor
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or abs(value) >= 2**62:
        raise ProfileError(f"{path}, line {line}: {text!r} is no number")
    return value
