"""The configuration to use: for development, for production, the fastest, the cheapest; each with its reason."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from .cost import KEYS, MEASURES, currency, intervals

MINUTES = 10.0  # that an epoch may take where one waits for it
EFFICIENT = 0.70  # at least: the studies' target for strong scaling


def recommend(table: pd.DataFrame, *, minutes: float = MINUTES, efficient: float = EFFICIENT) -> pd.DataFrame:
    """One row per purpose, chosen among the configurations of `table` (as of `cost.to_finish` or `cost.to_accuracy`).

    Of configurations whose 95 % intervals overlap with the best one's, the simplest is taken (fewest nodes, fewest
    devices, no group), with a `caveat`. Costs are compared as of `cost.currency`.

    Args:
        minutes: development takes the smallest configuration whose epoch's training takes no longer.
        efficient: production takes the fastest of those that are at least so efficient: the knee of the curve.

    Columns: purpose (development, production, fastest, cheapest), reason, caveat ("" if there is none); `cost.KEYS`,
    `cost.MEASURES` (without intervals), unit, epoch_seconds, efficiency, repeats.

    Raises:
        ValueError: no configuration has a time.
    """
    money, unit = currency(table)
    known = table.dropna(subset=["wall_seconds", money])
    if known.empty:
        raise ValueError("nothing to recommend: no configuration has finished, or has reached the target")
    time = "wall_seconds"
    quick, good = known[known.epoch_seconds <= minutes * 60], known[known.efficiency >= efficient]
    small = known[known.epoch_seconds == known.epoch_seconds.min()]
    if len(quick):
        small = quick[quick.nodes == quick.nodes.min()]
        small = small[small.world_size == small.world_size.min()]
    unpriced = "" if money == "cost" else "no common price is known: device-hours are compared"
    left_out = f"{len(table) - len(known)} of {len(table)} configurations have no time and are left out"
    purposes = [
        ("development", small, time, ""),
        ("production", good, time, ""),
        ("fastest", known, time, ""),
        ("cheapest", known, money, unpriced),
    ]
    rows = []
    for purpose, among, by, caveat in purposes:
        chosen, overlap = _simplest(among, by, unit if by == money else "s")
        single = "a single run: its variation is not known" if chosen.repeats == 1 else ""
        caveats = [overlap, caveat, single, left_out if len(known) < len(table) else ""]
        kept = chosen[[*KEYS, *MEASURES, "unit", "epoch_seconds", "efficiency", "repeats"]].to_dict()
        row = {"purpose": purpose, "reason": "", "caveat": "; ".join(filter(None, caveats))} | kept
        spent = f"{_duration(chosen.wall_seconds)}, {chosen[money]:.3g} {unit}"
        rank = "least" if chosen[by] == among[by].min() else "as good as the least"
        row["reason"] = f"{rank} {'cost' if purpose == 'cheapest' else 'time'}: {spent}"
        if purpose == "production":
            row["reason"] += (
                f", {_percent(chosen.efficiency)} efficient, among the {len(good)} of {len(known)} configurations "
            )
            row["reason"] += f"with at least {_percent(efficient)}"
            fastest = known.loc[known[time].idxmin()]
            if fastest.efficiency < efficient:
                spent = f"{_duration(fastest.wall_seconds)}, {fastest[money]:.3g} {unit}"
                used = f"uses its devices at {_percent(fastest.efficiency)} only"
                row["reason"] += f"; the fastest of all ({_devices(fastest)}, {spent}) {used}"
        elif purpose == "development":
            epoch = _duration(chosen.epoch_seconds)
            row["reason"] = f"no epoch trains within {minutes:g} min; here it takes least: {epoch}"
            if len(quick):
                fewest = f"{_devices(chosen)}, the fewest with which an epoch trains within {minutes:g} min ({epoch})"
                row["reason"] = f"{fewest}: small jobs wait least"
        rows.append(row)
    return pd.DataFrame(rows)


def by_machine(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The configurations with a time, over links as they are, of each workload and machine that has several, by a title."""
    alike = table[table.seconds.notna() & table.link_gbit.isna()]
    machines = alike.groupby(["workload", "dataset"], dropna=False).hardware_id.nunique()
    return {
        f"{workload} on {dataset}" + (f", {machine}" if machines[workload, dataset] > 1 else ""): own
        for (workload, dataset, machine), own in alike.groupby(["workload", "dataset", "hardware_id"], dropna=False)
        if len(own) > 1
    }


def of_each(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`recommend` of each of `tables`, with its title in `which`, the configuration in words and the runs chosen among."""
    found = []
    for title, own in tables.items():
        chosen = recommend(own)
        words, behind = [describe(row) for _, row in chosen.iterrows()], [own.runs.sum()] * len(chosen)
        found.append(chosen.assign(which=title, configuration=words, runs=behind))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def slug(title: str) -> str:
    """As part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")


def describe(row: pd.Series) -> str:
    """`4 devices on 2 nodes, DDP, bf16, batch 512`."""
    group = "no group" if row.parallel == "none" else row.parallel.upper()
    return f"{_devices(row)}, {group}, {row.precision}, batch {row.global_batch:g}"


def _simplest(among: pd.DataFrame, by: str, unit: str) -> tuple[pd.Series, str]:
    """(the simplest row whose interval overlaps with that of the least `by`, and a sentence about the overlap)."""
    best = among[by].idxmin()
    ends = dict(zip(among.index, intervals(among, by), strict=True))
    rivals = among[[low <= ends[best][1] and ends[best][0] <= high for low, high in ends.values()]]
    order = rivals.assign(grouped=rivals.parallel != "none").sort_values(["nodes", "world_size", "grouped", by])
    chosen = order.index[0]
    if len(rivals) == 1:
        return among.loc[chosen], ""
    others = [describe(row) for index, row in rivals.iterrows() if index != chosen]
    many = others[0] if len(others) == 1 else f"{len(others)} others"
    text = f"not distinguishable from {many}: the 95 % intervals overlap, and the simplest is taken"
    if chosen != best:
        own, least = (f"{among[by][at]:.3g} [{ends[at][0]:.3g}, {ends[at][1]:.3g}] {unit}" for at in (chosen, best))
        text += f"; it has {own}, where {describe(among.loc[best])} has {least}"
    return among.loc[chosen], text


def _devices(row: pd.Series) -> str:
    devices = f"{row.world_size:g} device{'s' if row.world_size > 1 else ''}"
    return devices + (f" on {row.nodes:g} nodes" if row.nodes > 1 else "")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"
