"""What `hpc bench` measured, as tables: links as an all-reduce meets them, and the loader's time at each place of the data.

Reads the records of kinds `allreduce` and `storage` (`records.probes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze import stats
from hpc_utils.analyze.model import links
from hpc_utils.analyze.table import tabled
from hpc_utils.doctor.storage import IN_MEMORY

SETTING = ["name", "hardware_id", "nodes", "ranks_per_node"]
ALIKE = 0.8  # share of the warm rate from which on a cold read came from some memory

Record = Mapping[str, Any]


@tabled(
    "links",
    "Links as an all-reduce alone meets them.",
    "hardware_id nodes ranks_per_node group link_gbit latency bandwidth residual caveat",
    missing="`hpc bench allreduce --cluster NAME`",
)
def link_table(records: Iterable[Record]) -> pd.DataFrame:
    """The fit of each group of each record.

    Columns: name (the record's), hardware_id, nodes, ranks_per_node, group, link_gbit (limit of the links, Gbit/s; NaN:
    none); latency, latency_low, latency_high (s a message), bandwidth, bandwidth_low, bandwidth_high (byte/s), with 95 %
    intervals; residual, worst and caveat as of `links.LinkFit`.
    """
    rows = []
    for record in records:
        for group in record["groups"]:
            link = links.fit(record, group)
            row = {name: record.get(name) for name in SETTING}
            row |= {"link_gbit": record.get("link_gbit") or math.nan, "group": group}
            row |= link.latency.columns("latency") | link.bandwidth.columns("bandwidth")
            rows.append(row | {"residual": link.residual, "worst": link.worst, "caveat": link.caveat})
    return pd.DataFrame(rows)


@tabled(
    "storage",
    "What a loader can expect of each place.",
    measure="seconds",
    missing="`hpc bench storage --cluster NAME`",
)
def loader_times(record: Record | None) -> pd.DataFrame:
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
    if is_read_from_memory(place):
        return stats.UNKNOWN
    # All ranks share a pass and read at once: a rank's batch takes as many times longer as there are ranks.
    ranks = record["nodes"] * record["ranks_per_node"]
    size = load["batch"] * ranks * record["bytes"] / record["images"]
    cold, warm = (np.array(place[state]["seconds"]) for state in ("cold", "warm"))
    extra = np.maximum(0, cold - warm) * size / place["cold"]["bytes"]
    return stats.median(load["seconds_per_batch"] + extra)


def is_read_from_memory(place: Record) -> bool:
    """Whether memory served the cold reads of this place."""
    cold, warm = (median(place[state]["seconds"]) for state in ("cold", "warm"))
    return place["filesystem"] in IN_MEMORY or warm > ALIKE * cold
