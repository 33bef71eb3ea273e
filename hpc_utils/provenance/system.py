"""SYSTEM.md: the machines, the software and the code that a set of runs was measured with."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpc_utils.plural import counted

from .digest import of_rule
from .facts import FACTS, NONE, UNKNOWN, Record, facts, settings

SHOWN = 8  # distinct values in one cell


def write_system(provenances: Iterable[Record], path: Path) -> None:
    """Write SYSTEM.md for these provenance records."""
    from hpc_utils.records import atomic

    atomic.write_text(Path(path), system_markdown(provenances))


def system_markdown(provenances: Iterable[Record]) -> str:
    """One section for each distinct hardware; equal records give equal text, in whatever order they come."""
    groups: defaultdict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in provenances:
        groups[_kind(record)].append(record)
    lines = ["# System", ""]
    if not groups:
        lines += ["No run has recorded where it comes from.", ""]
    for kind in sorted(groups):
        lines += _section(kind, groups[kind])
    return "\n".join(lines)


def _kind(record: Record) -> tuple[str, ...]:
    """The key of a section: runs share one if their names of hardware are equal; counts may differ."""
    machine = record.get("hardware") or {}
    model = (machine.get("cpu") or {}).get("model") or f"CPU {UNKNOWN}"
    names = sorted({str(gpu.get("name")) for gpu in machine.get("gpus") or ()})
    return (record.get("hardware_id") or UNKNOWN, model, *(names or ["no GPU"]))


def _section(kind: Sequence[str], records: list[Record]) -> list[str]:
    machines, jobs = ([record.get(key) or {} for record in records] for key in ("hardware", "job"))
    hosts = {name for record in records if (name := (record.get("host") or {}).get("hostname"))}
    days = sorted(str(record["collected_at"])[:10] for record in records if record.get("collected_at"))
    span = f", {days[0]} to {days[-1]}" if days else ""
    matrices = sorted({machine["nvlink"] for machine in machines if machine.get("nvlink")})
    faults = sorted({fault for source in (*records, *machines) for fault in source.get("faults") or ()})
    return [
        f"## {_cell(kind[0])}: {_cell(', '.join(kind[1:]))}",
        "",
        f"{counted(len(records), 'run')} on {counted(len(hosts), 'host') if hosts else f'hosts {UNKNOWN}'}{span}.",
        "",
        *_facts(records),
        *(line for matrix in matrices for line in ("```text", matrix, "```", "")),
        *_code(records),
        *_jobs(jobs),
        *(["What could not be read:", "", *(f"- {_cell(fault)}" for fault in faults), ""] if faults else []),
    ]


def _facts(records: list[Record]) -> list[str]:
    """Every fact, and its values in these runs."""
    variables = sorted({name for record in records for name in settings(record)})
    versions = sorted({name for record in records for name in record.get("versions") or ()})
    fact_tables = [dict.fromkeys(variables, "unset") | facts(record) for record in records]
    labels = {name: name for name in (*(label for label, *_ in FACTS), *versions)}
    labels |= {name: f"`{name}`" for name in variables}
    rows = [(label, _values(table[name] for table in fact_tables if name in table)) for name, label in labels.items()]
    return markdown_table(("fact", "value"), rows)


def _code(records: list[Record]) -> list[str]:
    states = {True: "with uncommitted changes", False: "clean"}
    code_counts = Counter(
        (
            f"`{record['commit']}`" if record.get("commit") else f"{UNKNOWN} (copied tree)",
            states.get(record.get("dirty"), UNKNOWN) if record.get("commit") else "",
            f"`{record['digest']}`{of_rule(record)}" if record.get("digest") else UNKNOWN,
        )
        for record in records
    )
    rows = [(*row, str(count)) for row, count in sorted(code_counts.items())]
    return markdown_table(("commit", "tree", "digest of the measuring code", "runs"), rows)


def _jobs(jobs: list[Record]) -> list[str]:
    fields = ("scheduler", "name", "partition", "nodes", "nodelist", "restart_count")
    kinds: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)  # the ids of their jobs
    for job in jobs:
        if job.get("scheduler"):
            kind = tuple(str(job.get(field)) for field in fields)
            kinds[kind].append(str(job.get("array_job_id") or job.get("id")))  # an array's tasks are one
    rows = [
        (f"{scheduler} {', '.join(sorted(set(ids), key=_natural))}", *kind, str(len(ids)))
        for (scheduler, *kind), ids in sorted(kinds.items())
    ]
    header = ("jobs", "name", "partition", "nodes", "node list", "restarts", "runs")
    unscheduled = len(jobs) - sum(map(len, kinds.values()))
    return [
        *(markdown_table(header, rows) if rows else []),
        *([f"{counted(unscheduled, 'run')} outside a scheduler.", ""] if unscheduled else []),
    ]


def _values(values: Iterable[str]) -> str:
    """The values that occur, each once: numbers in their order, absence last."""
    present = set(values)
    absent = (UNKNOWN, NONE, "unset")
    recorded = sorted(present.difference(absent), key=_natural)
    words = recorded[:SHOWN] + [value for value in absent if value in present]
    omitted = f" and {len(recorded) - SHOWN} more" if len(recorded) > SHOWN else ""
    return ", ".join(words) + omitted or "not recorded"


def _natural(text: str) -> list[tuple[bool, str]]:
    return [(not part.isdigit(), part.zfill(20)) for part in re.split(r"(\d+)", text)]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The table's lines and an empty line."""
    lines = [header, [":--"] * len(header), *rows]
    return [*(f"| {' | '.join(map(_cell, line))} |" for line in lines), ""]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
