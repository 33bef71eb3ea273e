"""The configuration to use: for development, for production, the fastest, the cheapest; each with its reason."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from .cost import KEYS, MEASURES, currency, intervals

MINUTES = 10.0  # that an epoch may take where one waits for it
EFFICIENT = 0.70  # at least: the studies' target for strong scaling


def recommend(table: pd.DataFrame, *, minutes: float = MINUTES, efficient: float = EFFICIENT) -> pd.DataFrame:
    """One row a purpose, chosen among the configurations of `table` (as of `cost.to_finish` or `cost.to_accuracy`).

    Of configurations whose 95 % intervals overlap with the best one's, the simplest is taken (fewest nodes, fewest
    devices, no group), and `caveat` says so. Costs are compared as of `cost.currency`.

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
    left_out = f"{len(table) - len(known)} of {len(table)} configurations have no time and are left out"
    common = [left_out] if len(known) < len(table) else []

    def spends(row: pd.Series) -> str:
        return f"{_duration(row.wall_seconds)}, {row[money]:.3g} {unit}"

    rows = []

    def add(purpose: str, among: pd.DataFrame, by: str, reason, caveats: list[str]) -> None:
        chosen, doubt = _simplest(among, by, unit if by == money else "s")
        caveats = [*doubt, *caveats, *common]
        if chosen.repeats == 1:
            caveats.append("a single run: nobody knows how much it varies")
        kept = chosen[[*KEYS, *MEASURES, "unit", "epoch_seconds", "efficiency", "repeats"]].to_dict()
        rows.append({"purpose": purpose, "reason": reason(chosen), "caveat": "; ".join(caveats)} | kept)

    quick = known[known.epoch_seconds <= minutes * 60]
    if quick.empty:
        least = known[known.epoch_seconds == known.epoch_seconds.min()]
        add(
            "development", least, "wall_seconds",
            lambda row: f"no epoch trains within {minutes:g} min; here it takes least: {_duration(row.epoch_seconds)}", [],
        )  # fmt: skip
    else:
        small = quick.nodes == quick.nodes.min()
        small &= quick.world_size == quick.world_size[small].min()
        add(
            "development", quick[small], "wall_seconds",
            lambda row: f"{_devices(row)}, the fewest with which an epoch trains within {minutes:g} min "
            f"({_duration(row.epoch_seconds)}): small jobs wait least", [],
        )  # fmt: skip

    good = known[known.efficiency >= efficient]
    least, beyond = known.loc[known.wall_seconds.idxmin()], ""
    if least.efficiency < efficient:
        beyond = f"; the fastest of all ({_devices(least)}, {spends(least)}) uses its devices at {_share(least.efficiency)} only"
    add(
        "production", good, "wall_seconds",
        lambda row: _rank(row, good, "wall_seconds", "time") + f"{spends(row)}, {_share(row.efficiency)} efficient, among the "
        f"{len(good)} of {len(known)} configurations with at least {_share(efficient)}{beyond}", [],
    )  # fmt: skip
    add("fastest", known, "wall_seconds", lambda row: _rank(row, known, "wall_seconds", "time") + spends(row), [])
    no_price = ["no common price is known: device-hours are compared"] if money != "cost" else []
    add("cheapest", known, money, lambda row: _rank(row, known, money, "cost") + spends(row), no_price)
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


def _simplest(among: pd.DataFrame, by: str, unit: str) -> tuple[pd.Series, list[str]]:
    """The simplest row that cannot be told apart from the one with the least `by`, and what to say about it."""
    best = among[by].idxmin()
    ends = dict(zip(among.index, intervals(among, by), strict=True))
    rivals = among[[low <= ends[best][1] and ends[best][0] <= high for low, high in ends.values()]]
    order = rivals.assign(grouped=rivals.parallel != "none").sort_values(["nodes", "world_size", "grouped", by])
    chosen = order.index[0]

    def value(index) -> str:
        return f"{among[by][index]:.3g} [{ends[index][0]:.3g}, {ends[index][1]:.3g}] {unit}"

    if len(rivals) == 1:
        return among.loc[chosen], []
    others = [describe(row) for index, row in rivals.iterrows() if index != chosen]
    many = others[0] if len(others) == 1 else f"{len(others)} others"
    said = f"cannot be told apart from {many}: the 95 % intervals overlap, and the simplest is taken"
    if chosen != best:
        said += f"; it has {value(chosen)}, where {describe(among.loc[best])} has {value(best)}"
    return among.loc[chosen], [said]


def _rank(row: pd.Series, among: pd.DataFrame, by: str, what: str) -> str:
    return f"least {what}: " if row[by] == among[by].min() else f"as good as the least {what}: "


def _devices(row: pd.Series) -> str:
    devices = f"{row.world_size:g} device{'s' if row.world_size > 1 else ''}"
    return devices + (f" on {row.nodes:g} nodes" if row.nodes > 1 else "")


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"
