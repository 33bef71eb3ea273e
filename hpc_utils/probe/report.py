"""The report: kept beside the study as doctor.json and doctor.md, and as a table on the terminal."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance
from hpc_utils.records import atomic

from .check import Check, Verdict, count

if TYPE_CHECKING:
    from .conduct import Conductor

WIDTH = 16  # of the longest check's name
SYMBOLS = {Verdict.PASS: "✔", Verdict.FAIL: "✘", Verdict.UNKNOWN: "?", Verdict.NOT_APPLICABLE: "–"}
COLOURS = {Verdict.PASS: "32", Verdict.FAIL: "31;1", Verdict.UNKNOWN: "33", Verdict.NOT_APPLICABLE: "2"}

Report = Mapping[str, Any]


def make(checks: Sequence[Check], conductor: Conductor | None, seconds: float) -> Report:
    """Everything that is kept.

    Args:
        conductor: what it saw is kept too; None if the examination ended before it began. seconds: that it took.
    """
    world, ranks = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return {
        "verdict": "fail" if any(check.verdict is Verdict.FAIL for check in checks) else "pass",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "nodes": world // ranks,
        "ranks_per_node": ranks,
        "hosts": sorted({*conductor.bench.hosts} - {""}) if conductor else [],
        "checks": [{"name": check.name} | asdict(check) for check in checks],
        "saw": conductor.saw if conductor else {},
        "provenance": provenance.collect(),
    }


def archive(report: Report) -> Path:
    """Keep it as `results/doctor/<hardware>-<date>-<n>`; the folder appears whole.

    Raises:
        OSError: the results cannot be written.
    """
    home = paths.results() / "doctor"
    home.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=home))
    try:
        draft.chmod(0o755)
        atomic.write_json(draft / "doctor.json", report)
        atomic.write_text(draft / "doctor.md", markdown(report))
        stem = f"{report['provenance']['hardware_id']}-{report['made'][:10]}"
        number = 1
        while True:
            try:
                os.rename(draft, home / f"{stem}-{number}")  # refused if it is there: it is not empty
                return home / f"{stem}-{number}"
            except OSError:
                if not (home / f"{stem}-{number}").exists():
                    raise
                number += 1
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def markdown(report: Report) -> str:
    """doctor.md: a table that a person reads and a paper cites."""
    origin = report["provenance"]
    versions = origin["versions"] or {}
    ready = "has a fault" if report["verdict"] == "fail" else "no fault found"
    lines = [f"# Doctor: {origin['hardware_id']}, {ready}", ""]
    lines += [
        f"{_layout(report)}, {report['made']}, {report['seconds']:g} s. torch {versions.get('torch')}, "
        f"code {(origin['digest'] or '(not known)')[:12]}{_job(origin)}.",
        "",
        "| check | verdict | measured | expected |",
        "|---|---|---|---|",
    ]
    for check in report["checks"]:
        where = f" ({check['where']})" if check["where"] else ""
        cells = (check["name"], check["verdict"], check["measured"] + where, check["expected"])
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    todo = [check for check in report["checks"] if check["fix"]]
    if todo:
        lines += ["", "## What to do", ""]
        lines += [f"- **{check['name']}** ({check['verdict']}): {check['fix']}" for check in todo]
    return "\n".join(lines) + "\n"


def line(check: Check, colour: bool) -> str:
    """One check's row on the terminal; under a fault where, what was expected and what to do."""
    return "\n".join(_rows(check, colour))


def summary(report: Report, colour: bool) -> str:
    """`17 pass, 1 fail, ...` and how long it took."""
    counts = Counter(check["verdict"] for check in report["checks"])
    told = [_paint(f"{counts[v]} {v}", v, colour) for v in SYMBOLS if counts[v]]
    return f"{', '.join(told)}; {_layout(report)}, {report['seconds']:.0f} s"


def _rows(check: Check, colour: bool) -> Iterator[str]:
    name = f"{check.name:{WIDTH}}"
    yield f"{_paint(SYMBOLS[check.verdict], check.verdict, colour)} {name}  {check.measured}"
    if check.verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        details = {"where": check.where, "expected": check.expected, "fix": check.fix}
        for label, text in details.items():
            if text:
                yield f"  {'':{WIDTH}}  {label}: {text}"


def _paint(text: str, verdict: Verdict, colour: bool) -> str:
    return f"\x1b[{COLOURS[Verdict(verdict)]}m{text}\x1b[0m" if colour else text


def _layout(report: Report) -> str:
    return f"{count(report['nodes'], 'node')} x {count(report['ranks_per_node'], 'rank')}"


def _job(origin: Mapping[str, Any]) -> str:
    job = origin["job"] or {}
    return f", Slurm job {job['id']} on {job['nodelist']}" if job.get("id") else ""
