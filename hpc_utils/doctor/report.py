"""The report: doctor.json under results/doctor, and a table on the terminal."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpc_utils import paths, provenance
from hpc_utils.records import atomic

from .check import Result, Verdict

if TYPE_CHECKING:
    from .runner import Runner

WIDTH = 16  # of the longest check's name
SYMBOLS = {
    Verdict.PASS: click.style("✔", "green"),
    Verdict.FAIL: click.style("✘", "red", bold=True),
    Verdict.UNKNOWN: click.style("?", "yellow"),
    Verdict.NOT_APPLICABLE: click.style("–", dim=True),
}

Report = Mapping[str, Any]


def make(results: Sequence[Result], runner: Runner | None, seconds: float) -> Report:
    """The report's content.

    Args:
        runner: None if it could not start. seconds: duration of the checks.
    """
    world, ranks = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return {
        "verdict": "fail" if any(result.verdict is Verdict.FAIL for result in results) else "pass",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "nodes": world // ranks,
        "ranks_per_node": ranks,
        "hosts": sorted({*runner.context.hosts} - {""}) if runner else [],
        "checks": list(map(asdict, results)),
        "saw": runner.observed if runner else {},
        "provenance": provenance.collect(),
    }


def write_report(report: Report) -> Path:
    """Write `results/doctor/<hardware>-<date>-<n>/doctor.json`; its path.

    Raises:
        OSError: the results folder cannot be written.
    """
    home = paths.results() / "doctor"
    home.mkdir(parents=True, exist_ok=True)
    name = f"{report['provenance']['hardware_id']}-{report['made'][:10]}"
    folders = (home / f"{name}-{number}" for number in itertools.count(1))
    folder = next(folder for folder in folders if not folder.exists())
    folder.mkdir()
    atomic.write_json(folder / "doctor.json", report)
    return folder / "doctor.json"


def row(result: Result) -> str:
    """One line on the terminal; below a fault where, what was expected and what to do."""
    lines = [f"{SYMBOLS[result.verdict]} {result.name:{WIDTH}}  {result.measured}"]
    if result.verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        details = {"where": result.where, "expected": result.expected, "fix": result.fix}
        lines += [f"  {'':{WIDTH}}  {label}: {text}" for label, text in details.items() if text]
    return "\n".join(lines)


def summary(report: Report) -> str:
    """`17 pass, 1 fail, ...` and how long it took."""
    counts = Counter(check["verdict"] for check in report["checks"])
    parts = [f"{counts[verdict]} {verdict}" for verdict in SYMBOLS if counts[verdict]]
    return f"{', '.join(parts)}; {report['nodes']} x {report['ranks_per_node']} ranks, {report['seconds']:.0f} s"
