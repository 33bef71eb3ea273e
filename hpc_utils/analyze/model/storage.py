"""How fast a data set is read from the places that a job can use, and the loader time to expect from each.

Reads the record of `hpc bench storage` (`records.probes`, kind `storage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from .. import stats

IN_MEMORY = ("tmpfs", "ramfs")
KEPT = 0.05  # share of the pages still in memory from which on a read was not cold
ALIKE = 0.8  # share of the warm rate from which on a cold read came from some memory

Record = Mapping[str, Any]


def reads(record: Record) -> pd.DataFrame:
    """One row per place, pattern and state: how fast the data set is read.

    Columns: place; filesystem; pattern (batches: shuffled, from the mapped file, as the loader reads; sequential);
    state (warm: from the node's memory; cold: not from memory; cached: a cold read was attempted, but memory served it);
    bytes (of a pass, over all ranks); seconds, low, high (median with its 95 % interval, of the slowest rank), repeats;
    rate (byte/s, of the median). Places that could not be used are omitted.
    """
    rows = []
    for place in _used(record):
        for pattern, passes in (("batches", place), ("sequential", place["sequential"])):
            for state in ("cold", "warm"):
                found, size = stats.median(passes[state]["seconds"]), passes[state]["bytes"]
                shown = "cached" if state == "cold" and _cached(passes) else state
                row = {"place": place["place"], "filesystem": place["filesystem"], "pattern": pattern, "state": shown}
                rows.append(row | {"bytes": size} | found.measure("seconds") | {"rate": size / found.value})
    names = ["place", "filesystem", "pattern", "state", "bytes", "seconds", "low", "high", "repeats", "rate"]
    return pd.DataFrame(rows, columns=names)


def loader(record: Record | None) -> pd.DataFrame:
    """One row per place and batch: the loader time per step to expect there; empty without a record.

    Columns: place; filesystem; batch (images, of a rank); seconds, low, high (per batch while the data are in the
    node's memory, median with its 95 % interval, of the slowest rank), repeats; rate (image/s of a rank);
    first_seconds, first_low, first_high (per batch while they are not in memory, as in the first epoch: the same plus
    the additional time of a cold read of that many images; NaN where no cold read was possible).
    """
    rows = []
    for place in _used(record) if record else ():
        for load in place["loader"]:
            warm, first = stats.median(load["seconds_per_batch"]), _first(record, place, load)
            row = {"place": place["place"], "filesystem": place["filesystem"], "batch": load["batch"]}
            row |= warm.measure("seconds") | {"rate": load["batch"] / warm.value}
            rows.append(row | {"first_seconds": first.value, "first_low": first.low, "first_high": first.high})
    return pd.DataFrame(rows)


def _used(record: Record) -> list[Record]:
    return [place for place in record["places"] if "skipped" not in place]


def _cached(passes: Record) -> bool:
    """Whether memory served the cold reads: pages were left there, or the read was as fast as from memory."""
    cold, warm = passes["cold"], passes["warm"]
    if max((share for share in cold["resident"] if share is not None), default=0.0) > KEPT:
        return True
    return stats.median(warm["seconds"]).value > ALIKE * stats.median(cold["seconds"]).value


def _first(record: Record, place: Record, load: Record) -> stats.Estimate:
    """Seconds a batch while the data are not in memory: repeat by repeat, since these were interleaved."""
    if place["filesystem"] in IN_MEMORY:
        return stats.median(load["seconds_per_batch"])
    if _cached(place):
        return stats.UNKNOWN
    # All ranks share a pass and read at once: a rank's batch takes as many times longer as there are ranks.
    ranks = record["nodes"] * record["ranks_per_node"]
    size = load["batch"] * ranks * record["bytes"] / record["images"]
    more = [
        max(0.0, cold - warm) * size / place["cold"]["bytes"]
        for cold, warm in zip(place["cold"]["seconds"], place["warm"]["seconds"], strict=True)
    ]
    return stats.median([own + extra for own, extra in zip(load["seconds_per_batch"], more, strict=True)])
