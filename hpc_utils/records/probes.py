"""Measurements of machines: `results/probes/<kind>/<name>.json`.

A record is plain JSON with at least `kind`, `hardware_id` and `provenance`. A newer record does not replace an older one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_utils import paths

from . import atomic
from .folder import read_json
from .identity import short_hash


def keep(kind: str, name: str, record: Mapping[str, Any]) -> Path:
    """Write `record` as `<name>-<hash of its content>.json` and return the path.

    Args:
        kind: of measurement, such as allreduce. name: a readable name of its subject, such as rehearsal-cpu-2x1.
    """
    content = {"kind": kind, **record}
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:120]
    path = paths.results() / "probes" / kind / f"{safe}-{short_hash(content)}.json"
    atomic.write_json(path, content)
    return path


def read_probes(kind: str, results: Path | None = None) -> Iterator[dict[str, Any]]:
    """The records of that kind, newest first, each with its `name` (the file's); damaged files are skipped."""
    folder = Path(results or paths.results()) / "probes" / kind
    records = [{**record, "name": path.stem} for path in folder.glob("*.json") if (record := read_json(path))]
    yield from sorted(records, key=_when, reverse=True)


def read_everywhere(kind: str) -> Iterator[dict[str, Any]]:
    """The records of `read_probes`, then the records of the committed sets."""
    for folder in (paths.results(), *sorted(paths.reference().glob("*/"))):
        yield from read_probes(kind, folder)


def newest(kind: str, results: Path | None = None, **match: Any) -> dict[str, Any] | None:
    """The newest record of that kind whose fields equal `match`; None if there is none."""
    return next(
        (
            record
            for record in read_probes(kind, results)
            if all(record.get(name) == value for name, value in match.items())
        ),
        None,
    )


def _when(record: Mapping[str, Any]) -> str:
    return str((record.get("provenance") or {}).get("collected_at") or "")
