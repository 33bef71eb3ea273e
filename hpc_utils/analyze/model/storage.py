"""The loader time to expect from the places that a job can read a data set from.

Reads the record of `hpc bench storage` (`records.probes`, kind `storage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.records import probes

from .. import stats
from ..table import tabled

Record = Mapping[str, Any]


@tabled(
    "storage",
    "What a loader can expect of each place.",
    measure="seconds",
    missing="`hpc bench storage --cluster NAME`",
)
def loader(record: Record | None) -> pd.DataFrame:
    """One row per place and batch: the loader time per step to expect there; empty without a record.

    Columns: place; filesystem; batch (images, of a rank); seconds (per batch while the data are in the
    node's memory, median with its 95 % interval, of the slowest rank), repeats; rate (image/s of a rank);
    first_seconds (per batch while they are not in memory, as in the first epoch: the same plus
    the additional time of a cold read of that many images; NaN where no cold read was possible).
    """
    rows = []
    for place in record["places"] if record else ():
        for load in place.get("loader", ()):  # none of a place that was skipped
            warm = stats.median(load["seconds_per_batch"])
            first = _first_seconds(record, place, load)
            row = {"place": place["place"], "filesystem": place["filesystem"], "batch": load["batch"]}
            row |= warm.measure("seconds") | {"rate": load["batch"] / warm.value}
            rows.append(row | first.columns("first_seconds"))
    return pd.DataFrame(rows)


def _first_seconds(record: Record, place: Record, load: Record) -> stats.Estimate:
    """Seconds a batch while the data are not in memory: repeat by repeat, since these were interleaved."""
    if probes.is_read_from_memory(place):
        return stats.UNKNOWN
    # All ranks share a pass and read at once: a rank's batch takes as many times longer as there are ranks.
    ranks = record["nodes"] * record["ranks_per_node"]
    size = load["batch"] * ranks * record["bytes"] / record["images"]
    cold, warm = (np.array(place[state]["seconds"]) for state in ("cold", "warm"))
    extra = np.maximum(0, cold - warm) * size / place["cold"]["bytes"]
    return stats.median(load["seconds_per_batch"] + extra)
