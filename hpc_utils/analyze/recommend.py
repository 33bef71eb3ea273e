"""The configuration to use: for development, for production, the fastest, the cheapest, the simplest; each with its reason."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pandas as pd

from hpc_utils.plural import counted
from hpc_utils.records.identity import parse_settings, task

from .compare import quotient
from .cost import KEYS, MEASURES, currency
from .decide import Verdict, decide
from .points import gather, number, unprofiled
from .stats import UNKNOWN, Estimate
from .table import tabled

MINUTES = 10.0  # that an epoch may take where one waits for it
EFFICIENT = 0.70  # at least: the studies' target for strong scaling
DECIDED = {True: "decided", False: "undecided"}


class Choice(NamedTuple):
    """A configuration, and `ratio`: time or price of the next best one over its own."""

    row: pd.Series
    ratio: Estimate
    verdict: str


def recommend(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """One row per purpose, chosen among the configurations of `table` (as of `cost.to_finish`), which `runs` measured.

    Times are those of training, compared as speed-ups are: by `compare.quotient` of throughput. Prices are these times by the
    rate of `cost.currency`. A choice is decided if the whole interval of every other configuration's ratio is at least 1.

    Development takes the smallest configuration whose epoch trains within `MINUTES`, production the fastest of those whose price is
    at most that of the cheapest over `EFFICIENT`: the knee of the curve, whatever the precision. The simplest (fewest nodes, fewest
    devices, no group) is not decidedly slower than the fastest, of single runs not slower.

    Columns: purpose (development, production, fastest, cheapest, simplest), reason, caveat ("" if there is none), verdict
    ("decided", "undecided", "the only one"); ratio with its interval: time (or price) of the next best configuration over
    this one's, of the simplest its time over that of the fastest; `cost.KEYS`, `cost.MEASURES` (without intervals),
    epoch_seconds, repeats.
    """
    money, unit = currency(table)
    measured = gather(unprofiled(runs), ["throughput"])
    samples = dict(zip(measured.runs, measured.throughput_sample, strict=True))
    table = table.assign(price=table[money] / table.wall_seconds, grouped=table.parallel != "none")

    def time(row: pd.Series, base: pd.Series) -> Estimate:
        """The time of equal work of `row` over that of `base`."""
        return quotient(samples[base.runs], samples[row.runs]).estimate

    def price(row: pd.Series, base: pd.Series) -> Estimate:
        return time(row, base).times(row.price / base.price)

    def least(among: pd.DataFrame, ratio: Callable[[pd.Series, pd.Series], Estimate] = time) -> Choice:
        rows = [row for _, row in among.iterrows()]
        best = functools.reduce(lambda best, row: row if ratio(row, best).value < 1 else best, rows)
        ratios = [ratio(row, best) for row in rows if row.runs != best.runs]
        closest = min(ratios, key=lambda estimate: estimate.value, default=UNKNOWN)
        decided = all(decide(estimate, at_least=1) == Verdict.MET for estimate in ratios)
        return Choice(best, closest, DECIDED[decided] if ratios else "the only one")

    quick = table[table.epoch_seconds <= MINUTES * 60]
    small = quick[number(quick, ["nodes", "world_size"]) == 0]
    why = f"the fewest devices with which an epoch trains within {MINUTES:g} min"
    if quick.empty:
        small = table[table.epoch_seconds == table.epoch_seconds.min()]
        why = "no epoch trains faster"
    fastest = least(table)
    cheapest = least(table, price)
    frugal = [price(row, cheapest.row).value <= 1 / EFFICIENT for _, row in table.iterrows()]
    cost = "cost" if money == "cost" else "device-hours"
    ordered = table.sort_values(["nodes", "world_size", "grouped", "seconds"])
    slower = ((row, time(row, fastest.row)) for _, row in ordered.iterrows())
    # A single run has no interval in which it could be as fast.
    row, estimate = next(
        (row, ratio) for row, ratio in slower if (ratio.value if pd.isna(ratio.low) else ratio.low) <= 1
    )
    simplest = Choice(row, estimate, DECIDED[decide(estimate, at_most=1) == Verdict.MET])
    rows = []
    for purpose, choice, reason in (
        ("development", least(small), why),
        (
            "production",
            least(table[frugal]),
            f"least time at no more than {1 / EFFICIENT:.2f} times the least {cost} (median)",
        ),
        ("fastest", fastest, "least time"),
        ("cheapest", cheapest, f"least {cost}"),
        ("simplest", fastest if row.runs == fastest.row.runs else simplest, "not decidedly slower than the fastest"),
    ):
        chosen = choice.row
        epoch = f"{_duration(chosen.epoch_seconds)} an epoch, " * (purpose == "development")
        reason += f": {epoch}{_duration(chosen.seconds)} and {chosen.seconds * chosen.price:.3g} {unit} of training for equal work"
        caveat = "a single run: its variation is not known" if chosen.repeats == 1 else ""
        answer = {"purpose": purpose, "reason": reason, "caveat": caveat, "verdict": choice.verdict}
        answer |= choice.ratio.columns("ratio")
        rows.append(answer | chosen[[*KEYS, *MEASURES, "epoch_seconds", "repeats"]].to_dict())
    return pd.DataFrame(rows)


def by_machine(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The configurations with a time, over links as they are, of each workload, its code and machine that has several, by a
    title."""
    alike = table[table.link_gbit.isna()]
    which = pd.Series(map(task, alike.to_dict("records")), alike.index, object)
    source = alike.settings.fillna("").map(lambda text: parse_settings(text).get("source", ""))
    for word, values in ((", ", alike.hardware_id), (", code ", source)):
        several = values.groupby(which).transform("nunique") > 1
        which += (word + values).where(several, "")
    return {title: group for title, group in alike.groupby(which) if len(group) > 1}


@tabled(
    "advice",
    "Which configuration to use, by training time alone: the ratio is that of the next best one over its own (of the simplest: its "
    "own over the fastest one's).",
    "which purpose configuration verdict ratio reason caveat",
    measure="ratio",
    missing="several configurations",
)
def of_each(tables: Mapping[str, pd.DataFrame], runs: pd.DataFrame) -> pd.DataFrame:
    """`recommend` of each of `tables` of `runs`, with its title in `which`, the configuration in words and the runs chosen among."""
    parts = []
    for title, configurations in tables.items():
        chosen = recommend(configurations, runs)
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


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"
