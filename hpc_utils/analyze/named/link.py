"""Links and storage as named values: `link.bandwidth.2x1.1gbit`, `storage.rate.shared`."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from hpc_utils.analyze.value import Value

from . import words
from .naming import values


def links(table: pd.DataFrame) -> list[Value]:
    """`link.latency`, `link.bandwidth` (bit/s), `link.misfit`, `link.worst-misfit`, of each layout and rate; `table` as of
    `link.table`. Of several measurements of one link the newest, which stands first; the one before it ends in `.second`."""
    known = table[table.latency.notna()]
    layout = [f"{nodes}x{each}" for nodes, each in zip(known.nodes, known.ranks_per_node, strict=True)]
    known = known.assign(layout=layout)
    again = known.groupby(["layout", "group", "link_gbit", "hardware_id"], dropna=False).cumcount()
    second = [
        replace(
            value,
            name=f"{value.name}.second",
            says=f"{value.says.removesuffix('.')}, the measurement before the newest.",
        )
        for value in _fits(known[again == 1])
    ]
    return _fits(known[again == 0]) + second


def _fits(known: pd.DataFrame) -> list[Value]:

    def of(row) -> str:
        links = words.link(row.link_gbit) or "links as they are"
        return f"an all-reduce alone over {row.layout} (nodes x ranks on each), {row.group} ranks, {links}, {row.hardware_id}"

    found: list[Value] = []
    for name, column, unit, scale, ends, what in (
        ("latency", "latency", "s", 1.0, True, "Latency of a message"),
        ("bandwidth", "bandwidth", "bit/s", 8.0, True, "Bandwidth of a link in each direction"),
        ("misfit", "residual", "share", 1.0, False, "Root mean square error of one latency and one bandwidth over message sizes"),
        ("worst-misfit", "worst", "share", 1.0, False, "Largest error of one latency and one bandwidth over message sizes"),
    ):  # fmt: skip
        found += values(
            known, f"link.{name}", column, unit, lambda row, what=what: f"{what}, fitted to {of(row)}.", point=["layout"],
            ends=(f"{column}_low", f"{column}_high") if ends else None, scale=scale, repeats=None, runs=(),
            files=lambda row: [f"probes/allreduce/{row.name}.json"],
        )  # fmt: skip
    return found


def storage(table: pd.DataFrame, record: str) -> list[Value]:
    """`storage.rate.shared.32` (images/s of a rank), `storage.seconds...` (a batch), `storage.first-seconds...`; `table` as of
    `storage.loader`, `record`: the probe's name."""
    found: list[Value] = []
    for name, column, unit, ends, what in (
        ("rate", "rate", "samples/s", None, "Images a second that a rank's loader reads"),
        ("seconds", "seconds", "s", ("low", "high"), "Time of the loader for a batch, the data in the node's memory"),
        ("first-seconds", "first_seconds", "s", ("first_low", "first_high"), "Time of the loader for a batch in the first epoch"),
    ):  # fmt: skip
        found += values(
            table, f"storage.{name}", column, unit,
            lambda row, what=what: f"{what}, {row.batch} images, from {row.place} ({row.filesystem}).",
            point=["place", "batch"], ends=ends, runs=(), files=lambda row: [f"probes/storage/{record}.json"],
        )  # fmt: skip
    return found
