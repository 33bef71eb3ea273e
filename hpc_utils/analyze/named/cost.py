"""Costs as named values: `cost.device-hours.2`, and what to use: `cost.recommended.production`."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from hpc_utils.analyze import recommend
from hpc_utils.analyze.value import Value

from . import words
from .naming import counted, slug, values

MEASURES = (
    ("wall-seconds", "wall_seconds", "s", "Wall time of equal work"),
    ("device-hours", "device_hours", "device-hours", "Device-hours of equal work"),
    ("node-hours", "node_hours", "node-hours", "Node-hours of equal work"),
    ("energy", "energy_kwh", "kWh", "Energy of equal work"),
)


def spent(table: pd.DataFrame) -> list[Value]:
    """`cost.wall-seconds.2`, `cost.device-hours.2`, `cost.node-hours.2`, `cost.price.2`, `cost.energy.2`, `cost.efficiency.2`; `table` as of
    `cost.to_finish`."""
    layout = [f"{int(nodes)}x{int(each)}" for nodes, each in zip(table.nodes, table.ranks_per_node, strict=True)]
    table, found = table.assign(layout=layout), []
    units = set(table.unit) - {
        "",
        *(unit for _, _, unit, _ in MEASURES),
    }  # a price in node-hours stands there already
    priced = (("price", "cost", unit, "Price of equal work") for unit in sorted(units) if len(units) == 1)
    # Of nodes of one device, hours of nodes are those of devices: told once.
    alike = bool((table.node_hours == table.device_hours).all())
    for name, column, unit, what in (*(one for one in MEASURES if not (alike and one[0] == "node-hours")), *priced):
        found += values(
            table, f"cost.{name}", column, unit, lambda row, what=what: f"{what} on {_of(row)}.", point=["world_size"],
            ends=(f"{column}_low", f"{column}_high"),
        )  # fmt: skip
    return found + values(
        table, "cost.efficiency", "efficiency", "share",
        lambda row: f"Device-seconds of equal work on the fewest devices over those on {_of(row)}.", point=["world_size"], ends=None,
    )  # fmt: skip


def recommended(chosen: pd.DataFrame, what: str, runs: Iterable[str]) -> list[Value]:
    """`cost.recommended.production.cnn-digits` in words, and its `cost.reason...`; `chosen` as of `recommend.recommend`, `what`: the
    workload that it is for, `runs`: ids of all that it was chosen among."""
    found, runs = [], tuple(runs)
    for _, row in chosen.iterrows():
        name = f"{slug(row.purpose)}.{slug(what)}"
        found += [
            counted(f"cost.recommended.{name}", recommend.describe(row), "text", f"The configuration for {row.purpose}: {what}.", runs),
            counted(f"cost.reason.{name}", row.reason, "text", f"Why that configuration is the one for {row.purpose}: {what}.", runs),
        ]  # fmt: skip
    return found


def _of(row) -> str:
    return f"{words.ranks(row)}, {row.global_batch:g} samples a step in all: {words.of(row)}"
