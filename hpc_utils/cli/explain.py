"""`hpc explain`: from what profilers wrote to a verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import pandas as pd

    from hpc_utils.analyze.profiles.breakdown import Breakdown
    from hpc_utils.analyze.profiles.timeline import Timeline

KERNELS = 10  # in the terminal
WIDE = 60  # characters of a kernel's name
SHARES = {
    "busy": "busy_ns",
    "compute": "compute_ns",
    "communication": "communication_ns",
    "exposed": "exposed_communication_ns",
    "memory": "memory_ns",
    "loader wait": "loader_wait_ns",
}


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One object and nothing else: ranks and verdict.")
def explain(files: tuple[Path, ...], as_json: bool) -> None:
    """Say what limits a run, with the evidence and what to try, from the profiles of its ranks.

    FILE is what torch.profiler wrote (.json, .json.gz), an export of Nsight Systems (.sqlite; .nsys-rep where an nsys is
    installed), a report of Nsight Compute, or a run's folder: what it is its content tells, not its name. Give the files
    of all ranks at once. Times are of the profiled window; busy includes memory operations, compute does not.
    """
    from hpc_utils.analyze.profiles import breakdown, judge, readers

    found = readers.gather(files)
    parts = breakdown.breakdowns(found.timelines)
    verdict = judge.judge(found.timelines, kernels=_measured(found.counters), phase_seconds=found.phases)
    verdict = replace(verdict, remarks=(*verdict.remarks, *found.remarks))
    if as_json:
        click.echo(
            json.dumps({"ranks": [part.as_json() for part in parts], "verdict": verdict.as_json()}, allow_nan=False)
        )
        return
    for line in (*_breakdown(found.timelines, parts), *_kernels(found.timelines), *verdict.lines()):
        click.echo(_shown(line))


def _shown(line: str) -> str:
    """Names are a file's: what in them would steer a terminal, or cannot be written, is shown as `?`."""
    return line if line.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in line)


def _measured(counters: Sequence[Path]) -> pd.DataFrame | None:
    """What Nsight Compute counted, if it did."""
    if not counters:
        return None
    import pandas as pd

    from hpc_utils.analyze.profiles import ncu

    return pd.concat([ncu.read(path) for path in counters], ignore_index=True)


def _breakdown(timelines: Sequence[Timeline], parts: Sequence[Breakdown]) -> Iterator[str]:
    if not parts:
        return
    yield from _table(["rank", "GPU", "span", *SHARES], [_row(part) for part in parts])
    names = sorted({one.device_name for one in timelines if one.device_name})
    seen = any(one.ops is not None for one in timelines)
    yield "; ".join(["ms and share of the span" if seen else "no work of a GPU was seen", *names])
    yield ""


def _row(part: Breakdown) -> list[str]:
    span = part.span_ns
    cells = ["?" if part.rank is None else str(part.rank), "-" if part.device is None else str(part.device)]
    cells.append("not known" if span is None else f"{span / 1e6:,.1f}")
    for name in SHARES.values():
        value = getattr(part, name)
        cells.append("not known" if value is None else f"{value / 1e6:,.1f} {value / max(span or 0, 1):4.0%}")
    return cells


def _kernels(timelines: Sequence[Timeline]) -> Iterator[str]:
    from hpc_utils.analyze.profiles import kernels

    longest = kernels.rows(timelines, "short")
    if not longest:
        return
    kinds = ", ".join(f"{row.name} {row.share:.0%}" for row in kernels.rows(timelines, "kind") if row.share >= 0.005)
    yield f"time of all kernels by class: {kinds}"
    yield ""
    lines = [
        [
            f"{row.share:.1%}",
            f"{row.total_ns / 1e6:,.2f}",
            str(row.count),
            f"{row.median_ns / 1e3:,.1f}",
            row.kind,
            row.name,
        ]
        for row in longest[:KERNELS]
    ]
    lines = [[*line[:-1], line[-1] if len(line[-1]) <= WIDE else f"{line[-1][: WIDE - 3]}..."] for line in lines]
    yield from _table(["share", "ms", "calls", "median us", "class", "kernel"], lines, texts=2)
    if len(longest) > KERNELS:
        yield f"and {len(longest) - KERNELS} more"
    yield ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 0) -> Iterator[str]:
    """Columns, numbers to the right; the last `texts` of them to the left."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.ljust(width) if place >= len(line) - texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
