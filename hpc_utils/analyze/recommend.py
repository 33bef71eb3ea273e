"""The configuration to use: for development, for production, the fastest, the cheapest; each with its reason."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from hpc_utils.plural import counted
from hpc_utils.records.identity import task

from .cost import KEYS, MEASURES, currency
from .table import tabled

MINUTES = 10.0  # that an epoch may take where one waits for it
EFFICIENT = 0.70  # at least: the studies' target for strong scaling


def recommend(table: pd.DataFrame) -> pd.DataFrame:
    """One row per purpose, chosen among the configurations of `table` (as of `cost.to_finish` or `cost.to_accuracy`).

    Of configurations whose 95 % intervals overlap with the best one's, the simplest is taken (fewest nodes, fewest
    devices, no group), with a `caveat`. Costs are compared as of `cost.currency`.

    Development takes the smallest configuration whose epoch trains within `MINUTES`, production the fastest of those that are
    at least `EFFICIENT`: the knee of the curve.

    Columns: purpose (development, production, fastest, cheapest), reason, caveat ("" if there is none); `cost.KEYS`,
    `cost.MEASURES` (without intervals), unit, epoch_seconds, efficiency, repeats.

    Raises:
        ValueError: no configuration has a time.
    """
    money, unit = currency(table)
    timed = table.dropna(subset=["wall_seconds", money])
    if timed.empty:
        raise ValueError("nothing to recommend: no configuration has finished, or has reached the target")
    quick = timed[timed.epoch_seconds <= MINUTES * 60].sort_values(["nodes", "world_size"])
    small = quick[(quick[["nodes", "world_size"]] == quick[["nodes", "world_size"]].iloc[:1].to_numpy()).all(axis=1)]
    why = f"the fewest devices with which an epoch trains within {MINUTES:g} min"
    if quick.empty:
        small = timed[timed.epoch_seconds == timed.epoch_seconds.min()]
        why = "no epoch trains faster"
    rows = []
    for purpose, among, measure, reason in (
        ("development", small, "wall_seconds", why),
        ("production", timed[timed.efficiency >= EFFICIENT], "wall_seconds", f"least time with {EFFICIENT:.0%} efficiency"),
        ("fastest", timed, "wall_seconds", "least time"),
        ("cheapest", timed, money, f"least {'cost' if money == 'cost' else 'device-hours'}"),
    ):  # fmt: skip
        chosen, rivals = _simplest(among, measure)
        caveats = {
            f"the intervals of {rivals} configurations overlap, and the simplest is taken": rivals > 1,
            "a single run: its variation is not known": chosen.repeats == 1,
            f"{len(table) - len(timed)} of {len(table)} configurations have no time": len(timed) < len(table),
        }
        reason += f": {_duration(chosen.wall_seconds)} ({_duration(chosen.epoch_seconds)} an epoch), "
        reason += f"{chosen[money]:.3g} {unit}, {chosen.efficiency:.0%} efficient"
        row = {
            "purpose": purpose,
            "reason": reason,
            "caveat": "; ".join(name for name, holds in caveats.items() if holds),
        }
        rows.append(row | chosen[[*KEYS, *MEASURES, "unit", "epoch_seconds", "efficiency", "repeats"]].to_dict())
    return pd.DataFrame(rows)


def by_machine(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The configurations with a time, over links as they are, of each workload and machine that has several, by a title."""
    alike = table[table.seconds.notna() & table.link_gbit.isna()]
    which = pd.Series(map(task, alike.to_dict("records")), alike.index, object)
    several = alike.hardware_id.groupby(which).transform("nunique") > 1
    which += (", " + alike.hardware_id).where(several, "")
    return {title: group for title, group in alike.groupby(which) if len(group) > 1}


@tabled(
    "advice",
    "Which configuration to use.",
    "which purpose configuration reason caveat",
    missing="several configurations",
)
def of_each(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`recommend` of each of `tables`, with its title in `which`, the configuration in words and the runs chosen among."""
    parts = []
    for title, configurations in tables.items():
        chosen = recommend(configurations)
        words = [describe(row) for _, row in chosen.iterrows()]
        run_ids = [configurations.runs.sum()] * len(chosen)
        parts.append(chosen.assign(which=title, configuration=words, runs=run_ids))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def slug(title: str) -> str:
    """As part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")


def describe(row: pd.Series) -> str:
    """`4 devices on 2 nodes, DDP, bf16, batch 512`."""
    group = "no group" if row.parallel == "none" else row.parallel.upper()
    nodes = f" on {row.nodes:g} nodes" if row.nodes > 1 else ""
    devices = counted(row.world_size, "device")
    return f"{devices}{nodes}, {group}, {row.precision}, batch {row.global_batch:g}"


def _simplest(among: pd.DataFrame, measure: str) -> tuple[pd.Series, int]:
    """(the simplest row whose interval overlaps with that of the least `by`, how many overlap)."""
    low, high = (among[f"{measure}_{end}"].fillna(among[measure]) for end in ("low", "high"))
    best = among[measure].idxmin()
    rivals = among[(low <= high[best]) & (low[best] <= high)]
    rivals = rivals.assign(grouped=rivals.parallel != "none").sort_values(["nodes", "world_size", "grouped", measure])
    return rivals.iloc[0], len(rivals)


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"
