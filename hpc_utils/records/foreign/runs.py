"""From judged rows to runs: one row a run, several epochs joined, repeats numbered."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils.records import schema

from . import mapping as mappings
from . import table
from .errors import ForeignError, RowFault
from .judge import UNCHECKED, VERDICTS, Judged, judge
from .mapping import NOT_COMPARABLE

if TYPE_CHECKING:
    import pandas as pd

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}"
RUN = ("world_size", "nodes", "ranks_per_node", "global_batch", "batch_per_device")  # with the words and the repeat


@dataclass(frozen=True)
class Foreign:
    """A foreign result set as it was read.

    Attributes:
        runs: one row a run; columns as in `schema.RUNS` and `schema.FOREIGN`.
        refused: {line of the CSV: why it cannot be used}.
        files: the bytes of {"source.csv", "mapping.toml"}.
    """

    name: str
    mapping: mappings.Mapping
    runs: pd.DataFrame
    refused: dict[int, str]
    files: dict[str, bytes]


def read(path: Path, mapping_path: Path, name: str = "") -> Foreign:
    """Read, check and where need be correct the results in the CSV at `path`; by default they are called as it is.

    Raises:
        ForeignError: the file, its mapping or the name cannot be used; or no row can.
    """
    import pandas as pd

    name = checked_name(name or path.stem)
    mapping, content = mappings.read(mapping_path), content_of(path)
    rows, refused = table.rows(content, mapping, path)
    judged = []
    for row in rows:
        try:
            judged.append(judge(row, mapping))
        except RowFault as fault:
            refused[row.line] = str(fault)
    runs = [_run(name, group) for group in _grouped(judged, mapping, refused)]
    if not runs:
        first = "".join(f"; line {line}: {why}" for line, why in sorted(refused.items())[:3])
        raise ForeignError(f"{path}: none of its {len(refused)} rows can be used{first}")
    columns = [*schema.names(schema.RUNS), *schema.names(schema.FOREIGN)]
    return Foreign(
        name,
        mapping,
        pd.DataFrame(runs, columns=columns),
        dict(sorted(refused.items())),
        {"source.csv": content, "mapping.toml": mapping_path.read_bytes()},
    )


def checked_name(name: str) -> str:
    """`name`, if it can name a folder."""
    if not re.fullmatch(NAME, name, re.ASCII):
        raise ForeignError(f"{name!r} cannot name a result set: letters, digits and . _ -, at most 61; see --as")
    return name


def content_of(path: Path) -> bytes:
    """The bytes of the CSV."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ForeignError(f"{path}: cannot be read: {error.strerror}") from None


def _grouped(judged: Iterable[Judged], mapping: mappings.Mapping, refused: dict[int, str]) -> Iterable[list[Judged]]:
    """The rows of each run: with epochs those of one, else each row alone; a row that is there twice is refused."""
    groups: dict[tuple, list[Judged]] = {}
    seen: dict[tuple, int] = {}
    number: dict[tuple, int] = defaultdict(int)
    for one in judged:
        row = one.row
        key = (*(row.words.get(n) for n in mappings.WORDS), *(row.counts.get(n) for n in RUN), row.comparable)
        if "epoch" not in mapping.names and "repeat" not in row.counts:
            number[key] += 1
            row.counts["repeat"] = number[key]  # the same configuration again: another measurement of it
        key = (*key, row.counts.get("repeat"))
        exact = (*key, row.counts.get("epoch"))
        if exact in seen:
            what = f"epoch {row.counts['epoch']} of " if "epoch" in row.counts else ""
            refused[row.line] = (
                f"{what}this run is on line {seen[exact]} already: does a repeat column tell them apart?"
            )
            continue
        seen[exact] = row.line
        groups.setdefault(key, []).append(one)
    return groups.values()


def _run(name: str, group: list[Judged]) -> dict[str, Any]:
    """One run's row. Over epochs, samples and seconds are sums; their throughput is the mean over time."""
    first = group[0].row
    samples, seconds = _sum(one.samples for one in group), _sum(one.seconds for one in group)
    verdicts = {one.verdict for one in group}
    whole = samples and seconds and UNCHECKED not in verdicts
    throughput = samples / seconds if whole else _mean(group, "throughput")
    reported = None if any(one.reported is None for one in group) else _mean(group, "reported")
    steps = {one.row.counts.get("steps") for one in group}
    accuracy = [one.row.measures["test_accuracy"].value for one in group if "test_accuracy" in one.row.measures]
    memory = [m["peak_allocated_bytes"].value for one in group if "peak_allocated_bytes" in (m := one.row.measures)]
    lines = [one.row.line for one in group]
    counts = {n: first.counts.get(n) for n in RUN}
    return (
        first.words
        | counts
        | {
            "run_id": f"{name}:{first.line}",
            "state": "complete",
            "steps_per_epoch": steps.pop() if len(steps) == 1 else None,
            # Rows that must stand in no curve with the others: analyze never pools runs that differ in settings.
            "settings": None if first.comparable else NOT_COMPARABLE,
            "oversubscribed": False,
            "repeat": first.counts.get("repeat", 1),
            "epochs": len(group) if "epoch" in first.counts else None,
            "samples": samples,
            "seconds": seconds,
            "throughput": throughput,
            "test_accuracy": accuracy[-1] if accuracy else None,
            "peak_allocated_bytes": max(memory, default=None),
            "hardware_id": f"foreign:{name}",
            "path": f"foreign/{name}",
            "foreign": name,
            "lines": f"{lines[0]}-{lines[-1]}" if len(lines) > 1 else str(lines[0]),
            "comparable": first.comparable,
            "reported_throughput": reported,
            "factor": None if reported is None else reported / throughput,
            "verdict": min(verdicts, key=VERDICTS.index),
            "correction": _said([one.correction] for one in group),
            "derived": _said(one.row.said for one in group),
        }
    )


def _sum(values: Iterable[float | None]) -> float | None:
    every = list(values)
    return None if None in every else sum(every)


def _mean(group: list[Judged], which: str) -> float:
    """Of rates: by time where it is known, else as over equal samples."""
    rates, seconds = [getattr(one, which) for one in group], [one.seconds for one in group]
    if None not in seconds:
        return sum(rate * second for rate, second in zip(rates, seconds, strict=True)) / sum(seconds)
    return len(rates) / sum(1 / rate for rate in rates)


def _said(remarks: Iterable[Iterable[str]]) -> str | None:
    """Each remark once, with how many epochs it holds of if not of all."""
    every = [list(filter(None, one)) for one in remarks]
    distinct = dict.fromkeys(remark for one in every for remark in one)
    counted = ((remark, sum(remark in one for one in every)) for remark in distinct)
    return "; ".join(r if n == len(every) else f"{r} (in {n} of {len(every)} epochs)" for r, n in counted) or None


def digest(content: bytes) -> str:
    """The sha256 of a kept file."""
    return hashlib.sha256(content).hexdigest()
