"""What must hold of a record before anybody may compute with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

RELATIVE_TOLERANCE = 1e-6

Row = Mapping[str, Any]


def epoch_faults(row: Row) -> Iterator[str]:
    """Why this epoch's row cannot be true; nothing if it can.

    The identity `throughput x T == samples` catches the field's commonest error: a count that was global
    already, multiplied by the world size once more.
    """
    for name in ("samples", "seconds", "throughput"):
        value = row.get(name)
        if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            yield f"{name} is {value!r}, not a positive number"
            return
    expected = row["samples"] / row["seconds"]
    if not math.isclose(row["throughput"], expected, rel_tol=RELATIVE_TOLERANCE):
        yield (
            f"throughput {row['throughput']:.6g}/s is {row['throughput'] / expected:.4g} times what "
            f"{row['samples']:g} samples in {row['seconds']:.6g} s give ({expected:.6g}/s)"
        )


def run_faults(run: Row, provenance: Row, epochs: Sequence[Row], ranks: Sequence[Row]) -> Iterator[str]:
    """Why this run's tables contradict each other or cannot be traced; nothing if all is well."""
    if not provenance.get("digest") and not provenance.get("commit"):
        yield "neither a digest of the measuring code nor a commit is known"
    if not epochs:
        yield "no epoch was recorded"
    for row in epochs:
        yield from (f"epoch {row.get('epoch')}: {fault}" for fault in epoch_faults(row))
        full = (row.get("steps") or 0) * (run.get("global_batch") or 0)
        if (row.get("samples") or 0) > full:
            yield (
                f"epoch {row.get('epoch')}: {row.get('samples'):g} samples, but {row.get('steps')} steps of "
                f"{run.get('global_batch')} hold {full:g}: was a global count taken on every rank?"
            )
    if len(ranks) != run.get("world_size"):
        yield f"{len(ranks)} ranks left records, but the world size is {run.get('world_size')}"
    counted = sum(row.get("samples") or 0 for row in ranks)
    recorded = sum(row.get("samples") or 0 for row in epochs)
    if counted != recorded:
        yield f"the ranks counted {counted:g} samples, but the epochs hold {recorded:g}"
    longest = max((row.get("seconds") or 0 for row in ranks), default=0)
    total = sum(row.get("seconds") or 0 for row in epochs)
    if total < longest * (1 - RELATIVE_TOLERANCE):
        yield f"the epochs' seconds sum to {total:.6g}, less than a rank's own {longest:.6g}"
