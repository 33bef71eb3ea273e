"""Shared by all benchmarks: fresh processes, alternating measurements, and their statistics."""

from __future__ import annotations

import csv
import io
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from hpc_utils import paths, provenance
from hpc_utils.launch.process_tree import end_tree
from hpc_utils.records import atomic
from hpc_utils.workspace import Launch

TIMEOUT = 900.0  # s for one measured process

T = TypeVar("T")
Variants = Mapping[str, Callable[[], float]]


class BenchmarkError(RuntimeError):
    """A measured process failed; the message has the end of its output."""


@dataclass(frozen=True)
class Options:
    """Options of the command line.

    Attributes:
        repeats: rounds of each comparison. full: larger work too. quick: smoke runs. threads: cores of one CPU device.
        compile: whether variants with torch.compile are measured; None: on a GPU only.
    """

    repeats: int = 3
    full: bool = False
    quick: bool = False
    threads: int = 1
    compile: bool | None = None

    def size(self, quick: int, default: int, full: int) -> int:
        """The size of a work load for these options."""
        return quick if self.quick else full if self.full else default


@dataclass(frozen=True)
class Row:
    """One variant's statistics; `ratio` is the median over rounds of its value divided by the reference's."""

    case: str
    variant: str
    metric: str
    unit: str
    median: float
    min: float
    max: float
    repeats: int
    reference: str = ""
    ratio: float | None = None
    ratio_min: float | None = None
    ratio_max: float | None = None
    note: str = ""
    promise: str = ""
    kept: bool | None = None

    def noted(self, note: str) -> Row:
        """This row with a remark."""
        return replace(self, note=note)

    def promised(self, promise: str, kept: bool) -> Row:
        """This row with a promise, and whether it is kept."""
        return replace(self, promise=promise, kept=kept)


def compare(
    case: str, metric: str, unit: str, variants: Variants, options: Options, notes: Mapping[str, str] | None = None
) -> dict[str, Row]:
    """Measure all `variants` in each round; the first is the reference."""
    return summarise(case, metric, unit, alternate(case, variants, options), notes)


def alternate(case: str, variants: Mapping[str, Callable[[], T]], options: Options) -> dict[str, list[T]]:
    """{variant: value in each round}. Every second round runs in reverse order, which cancels a linear drift."""
    values: dict[str, list[T]] = {name: [] for name in variants}
    for number in range(options.repeats):
        order = list(variants) if number % 2 == 0 else list(reversed(variants))
        for name in order:
            with _progress(f"{case}: round {number + 1}/{options.repeats}, {name}"):
                values[name].append(variants[name]())
    return values


def summarise(
    case: str, metric: str, unit: str, values: Mapping[str, Sequence[float]], notes: Mapping[str, str] | None = None
) -> dict[str, Row]:
    """One row per variant, with ratios to the first variant formed within rounds."""
    reference = next(iter(values))
    rows = {}
    for name, own in values.items():
        median = statistics.median(own)
        note = (notes or {}).get(name, "")
        row = Row(case, name, metric, unit, median, min(own), max(own), len(own), note=note)
        if name != reference:
            ratios = pairwise(own, values[reference])
            row = replace(
                row,
                reference=reference,
                ratio=statistics.median(ratios),
                ratio_min=min(ratios),
                ratio_max=max(ratios),
            )
        rows[name] = row
    return rows


def pairwise(own: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Ratios of values measured in the same round."""
    return [a / b for a, b in zip(own, reference, strict=True)]


# -- processes ------------------------------------------------------------------------------------------------


def hpc() -> list[str]:
    """The command `hpc` of this environment."""
    script = Path(sys.executable).with_name("hpc")
    return [str(script)] if script.exists() else [sys.executable, "-m", "hpc_utils.cli"]


def python(*arguments: str) -> list[str]:
    """This interpreter with `arguments`."""
    return [sys.executable, *arguments]


def wall_time(command: Sequence[str], results: Path | None = None) -> float:
    """Seconds from the start of `command` to its end."""
    return _run(command, results)[0]


def output(command: Sequence[str], results: Path | None = None) -> str:
    """The stdout of `command`."""
    return _run(command, results)[1]


def last_line(command: Sequence[str], results: Path | None = None) -> str:
    """The last line of the stdout of `command`, which holds the result."""
    lines = output(command, results).strip().splitlines()
    if not lines:
        raise BenchmarkError(f"{' '.join(command)} printed nothing")
    return lines[-1]


@contextmanager
def scratch():
    """A temporary folder for results."""
    with TemporaryDirectory(prefix="hpc-bench-") as folder:
        yield Path(folder)


def _run(command: Sequence[str], results: Path | None) -> tuple[float, str]:
    """Run a process to its end: (seconds, stdout). Its descendants are ended in any case."""
    # Absolute paths, because the working folder is the clone.
    env = os.environ | {"HPC_DATA": str(paths.data())} | ({"HPC_RESULTS": str(results)} if results else {})
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        env.pop(name, None)
    owner = uuid.uuid4().hex  # identifies its descendants
    env |= Launch(owner=owner).variables
    begun = time.perf_counter()
    process = subprocess.Popen(
        list(command),
        cwd=paths.root(),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=TIMEOUT)
        seconds = time.perf_counter() - begun
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{' '.join(command)} took longer than {TIMEOUT:g} s") from None
    finally:
        end_tree(process, owner)
    if process.returncode:
        raise BenchmarkError(f"{' '.join(command)} ended with {process.returncode}:\n{_excerpt(err or out)}")
    return seconds, out


def _excerpt(text: str, length: int = 1500) -> str:
    """Beginning and end: the cause comes first, torchrun's report last."""
    return text if len(text) <= 2 * length else f"{text[:length]}\n[...]\n{text[-length:]}"


@contextmanager
def _progress(text: str):
    live = sys.stderr.isatty()
    print(f"\r\033[K{text}" if live else text, end="" if live else "\n", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def busy() -> float:
    """The load average over the last minute; NaN if unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


# -- output ----------------------------------------------------------------------------------------------------


def save(benchmark: str, rows: Iterable[Row], options: Options, load: float) -> Path:
    """Write `results/bench/<benchmark>.csv`, or `quick/<benchmark>.csv` for a smoke run.

    Args:
        load: load average before the benchmark.
    """
    folder = paths.results() / "bench" / ("quick" if options.quick else "")
    origin = {
        "hardware_id": provenance.hardware_id(),
        "digest": provenance.measuring_digest()[:12],
        "load": f"{load:.2f}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = io.StringIO()
    names = ["benchmark", *(field.name for field in fields(Row)), *origin]
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({"benchmark": benchmark} | asdict(row) | origin)
    path = folder / f"{benchmark}.csv"
    atomic.write_text(path, text.getvalue())
    return path


def result_table(rows: Sequence[Row]) -> str:
    """Format the rows for a terminal, followed by the promises."""
    cells = [("case", "variant", "median", "min .. max", "unit", "ratio to the first", "")]
    before = None
    for row in rows:
        spread = "" if row.repeats == 1 else f"{_short(row.min)} .. {_short(row.max)}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
        if row.ratio is not None and row.repeats > 1:
            ratio += f" ({row.ratio_min:.3g} .. {row.ratio_max:.3g})"
        case = row.case if row.case != before else ""
        before = row.case
        cells.append((case, row.variant, _short(row.median), spread, row.unit, ratio, row.note))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    ]
    promises = [
        f"promise: {row.case}, {row.variant}: {row.promise}: {'kept' if row.kept else 'NOT kept'}"
        for row in rows
        if row.promise
    ]
    return "\n".join(lines + promises)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
