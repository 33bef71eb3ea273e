"""How fast a data set is read from the places a job can use, and the loader time to expect from each.

Reads the record of `hpc bench storage` (`records.probes`, kind `storage`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from . import stats

IN_MEMORY = ("tmpfs", "ramfs")
KEPT = 0.05  # share of the pages still in memory from which on a read was not cold
ALIKE = 0.8  # of the warm rate: a device as fast as memory is memory somewhere

Record = Mapping[str, Any]


def reads(record: Record) -> pd.DataFrame:
    """One row a place, pattern and state: how fast the data set is read.

    Columns: place; filesystem; pattern (batches: shuffled, from the mapped file, as the loader reads; sequential);
    state (warm: from the node's memory; cold: not, as far as can be told; cached: asked to be cold, but evidently
    served from memory); bytes (of a pass, over all ranks); seconds, low, high (median with its 95 % interval, of the
    slowest rank), repeats; rate (byte/s, of the median). Places that could not be used are in `skipped`.
    """
    rows = []
    for place, pattern, passes in _passes(record):
        for state in ("cold", "warm"):
            estimate = stats.median(passes[state]["seconds"])
            size = passes[state]["bytes"]
            shown = "cached" if state == "cold" and _cached(passes) else state
            rows.append(
                {"place": place["place"], "filesystem": place["filesystem"], "pattern": pattern, "state": shown}
                | {"bytes": size, "seconds": estimate.value, "low": estimate.low, "high": estimate.high}
                | {"repeats": estimate.repeats, "rate": size / estimate.value}
            )
    columns = ["place", "filesystem", "pattern", "state", "bytes", "seconds", "low", "high", "repeats", "rate"]
    return pd.DataFrame(rows, columns=columns)


def loader(record: Record) -> pd.DataFrame:
    """One row a place and batch: the trainer's loader time per step to expect there.

    Columns: place; filesystem; batch (images, of a rank); seconds, low, high (per batch while the data are in the
    node's memory, median with its 95 % interval, of the slowest rank), repeats; rate (image/s of a rank);
    first_seconds, first_low, first_high (per batch while they are not, as in the first epoch: the same plus what a cold
    read of that many images takes more than a warm one; NaN where no cold read could be had).
    """
    rows = []
    for place in record["places"]:
        for load in place.get("loader", ()):
            warm = stats.median(load["seconds_per_batch"])
            first = _first(record, place, load)
            rows.append(
                {"place": place["place"], "filesystem": place["filesystem"], "batch": load["batch"]}
                | {"seconds": warm.value, "low": warm.low, "high": warm.high, "repeats": warm.repeats}
                | {"rate": load["batch"] / warm.value}
                | {"first_seconds": first.value, "first_low": first.low, "first_high": first.high}
            )
    columns = ["place", "filesystem", "batch", "seconds", "low", "high", "repeats", "rate"]
    return pd.DataFrame(rows, columns=[*columns, "first_seconds", "first_low", "first_high"])


def skipped(record: Record) -> dict[str, str]:
    """{place: why it could not be used}."""
    return {place["place"]: place["skipped"] for place in record["places"] if "skipped" in place}


def _passes(record: Record) -> Iterator[tuple[Record, str, Record]]:
    for place in record["places"]:
        if "skipped" not in place:
            yield place, "batches", place
            yield place, "sequential", place["sequential"]


def _cached(passes: Record) -> bool:
    """Whether what was to be cold came from memory: pages were left there, or it was as fast as from there."""
    cold, warm = passes["cold"], passes["warm"]
    shares = [share for share in cold["resident"] if share is not None]
    if shares and max(shares) > KEPT:
        return True
    return stats.median(warm["seconds"]).value > ALIKE * stats.median(cold["seconds"]).value


def _first(record: Record, place: Record, load: Record) -> stats.Estimate:
    """Seconds a batch while the data are not in memory: repeat by repeat, since these were interleaved."""
    if place["filesystem"] in IN_MEMORY:
        return stats.median(load["seconds_per_batch"])  # they always are
    if _cached(place):
        return stats.Estimate(float("nan"), float("nan"), float("nan"), 0)
    # A pass is shared by all ranks, which read at once: a rank's batch takes as many times longer as there are ranks.
    ranks = record["nodes"] * record["ranks_per_node"]
    size = load["batch"] * ranks * record["bytes"] / record["images"]
    more = [
        max(0.0, cold - warm) * size / place["cold"]["bytes"]
        for cold, warm in zip(place["cold"]["seconds"], place["warm"]["seconds"], strict=True)
    ]
    return stats.median([own + extra for own, extra in zip(load["seconds_per_batch"], more, strict=True)])
