"""Checks that a record must pass before it is used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

from hpc_utils.plural import counted

RELATIVE_TOLERANCE = 1e-6

Row = Mapping[str, Any]


def epoch_faults(row: Row) -> Iterator[str]:
    """Why this epoch's row cannot be true; nothing if it can.

    `throughput x T == samples` catches the commonest error: a global count, multiplied by the world size once more.
    """
    fault = next(number_faults(row, ("samples", "seconds", "throughput")), None)
    if fault:
        yield fault
    elif not math.isclose(factor(row), 1, rel_tol=RELATIVE_TOLERANCE):
        yield disagreement(row)


def number_faults(row: Row, names: Iterable[str]) -> Iterator[str]:
    """Which of `names` are not positive numbers."""
    for name in names:
        value = row.get(name)
        if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            yield f"{name} is {value!r}, not a positive number"


def factor(row: Row) -> float:
    """Throughput over samples / seconds: 1 if it follows from them."""
    return row["throughput"] * row["seconds"] / row["samples"]


def disagreement(row: Row) -> str:
    """The recorded throughput and that of samples and seconds, as text."""
    return (
        f"throughput {row['throughput']:.9g}/s is {factor(row):.7g} times what "
        f"{row['samples']:.9g} samples in {row['seconds']:.9g} s give ({row['samples'] / row['seconds']:.9g}/s)"
    )


def miscount(samples: float, steps: float, global_batch: float) -> str:
    """The reason why `steps`, the last of which may be smaller, do not contain that many samples; empty if they do."""
    full = steps * global_batch
    if full - global_batch < samples <= full:
        return ""
    return (
        f"{samples:.0f} samples, but {steps} steps of {global_batch} hold {full:.0f}, or less than a batch fewer: "
        "is global_batch right, and does each rank count all of its own samples, and no others?"
    )


def value_faults(values: Row) -> Iterator[str]:
    """Which values of an epoch are not finite numbers, or accuracies that are not a share."""
    for name, value in values.items():
        if not isinstance(value, Real) or not math.isfinite(value):
            yield f"{name} is {value!r}, not a finite number"
        elif name.endswith("accuracy") and not 0 <= value <= 1:
            yield f"{name} is {value!r}, not a share from 0 to 1, such as 0.93"


def run_faults(run: Row, provenance: Row, epochs: Sequence[Row], ranks: Sequence[Row]) -> Iterator[str]:
    """Why this run's tables contradict each other, or why it cannot be traced; nothing if all is well."""
    imported = provenance.get("imported")
    if not (provenance.get("digest") or provenance.get("commit") or imported):
        yield "neither a digest of the measuring code nor a commit is known"
    if run.get("emulated"):
        yield "its device was emulated: it waited instead of computing"
    if not epochs:
        yield "no epoch was recorded"
    for row in epochs:
        yield from (f"epoch {row.get('epoch')}: {fault}" for fault in epoch_faults(row))
        if miscounted := miscount(row.get("samples") or 0, row.get("steps") or 0, run.get("global_batch") or 0):
            yield f"epoch {row.get('epoch')}: {miscounted}"
        shares = {name: value for name, value in row.items() if name.endswith("accuracy") and value is not None}
        yield from (f"epoch {row.get('epoch')}: {fault}" for fault in value_faults(shares))
    if imported:  # nothing is known of its ranks
        return
    if len(ranks) != run.get("world_size"):
        yield f"{counted(len(ranks), 'rank')} left records, but the world size is {run.get('world_size')}"
    rank_samples = sum(row.get("samples") or 0 for row in ranks)
    recorded = sum(row.get("samples") or 0 for row in epochs)
    if rank_samples != recorded:
        yield f"the ranks counted {rank_samples:g} samples, but the epochs hold {recorded:g}"
    longest = max((row.get("seconds") or 0 for row in ranks), default=0)
    total = sum(row.get("seconds") or 0 for row in epochs)
    if total < longest * (1 - RELATIVE_TOLERANCE):
        yield f"the epochs' seconds sum to {total:.6g}, less than a rank's own {longest:.6g}"
