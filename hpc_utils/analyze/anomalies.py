"""Points of a set of runs that are too good, too bad or too uncertain, with the likely cause as far as records show it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.plural import counted

from . import points, stats
from .points import POINT, SAME, barred, gather, number
from .scaling import curves, gains, headline, usable

LOAD = 0.05  # share of a device's cores that other processes use, or the hypervisor steals
SPREAD = 0.1  # of repeats, (largest - smallest) / median throughput
ENOUGH_REPEATS = 3
FAULTS_RATIO, FAULTS = 1.5, 100.0  # page faults a step of the slower point: over the other's, and how many more
MEMORY_RATIO = 1.1  # peak memory of the slower point over the other's
UNKNOWN = "the records show no cause"


class About(NamedTuple):
    """Of a kind of finding: what was expected, the usual cause ("": taken from the records), what to look at, and the cause
    that comes first on several nodes."""

    expected: str
    likely: str
    look: str
    of_nodes: str = ""


# The most serious first.
FINDINGS = {
    "super-linear": About(
        "at most 100 %: more ranks do the same work and communicate",
        "",
        "the baseline first: repeat it, on the same nodes; then a profiled step of both",
    ),
    "faster with a group": About(
        "at most the throughput of one process without a group: one rank with a group does the same work and more",
        "",
        "both again, alone on the machine and in turn; outside_seconds in runs.csv",
    ),
    "throughput falls": About(
        "at least that of fewer ranks",
        "an all-reduce that a smaller batch a device no longer hides, the input, or cores and memory that ranks of a node share",
        "comm_seconds and overlap_seconds of both in epochs.csv; an all-reduce alone (`hpc bench allreduce`)",
        "the link between nodes, ",
    ),
    "efficiency rises": About("at most that of fewer ranks", "", "the point of fewer ranks: repeat it first"),
    "outside load": About(
        f"at most {LOAD:.0%} of the device's cores used by other processes, or stolen by the hypervisor",
        "another program or user of the machine (outside_seconds in runs.csv); a virtual machine's neighbours (steal_seconds)",
        "`top`; then the same runs again, alone on the machine (--redo)",
    ),
    "repeats spread": About(
        f"repeats within {SPREAD:.0%} of each other",
        "other work on the machine, or caches that the first repeat found cold",
        "other users of the machine (`top`), clocks (`hpc doctor`); then repeat",
        "nodes that are not alike, ",
    ),
    "restarted": About(
        "runs that were trained without interruption",
        "a time limit, a preemption or a fault; the time is whole, but caches were cold more than once",
        "the same points without these runs",
    ),
    "barred": About(
        "no more ranks than cores, and a machine that is not shared on purpose (HPC_SHARED)",
        "a functional test: these runs stand in no scaling figure and no table",
        "a machine with enough cores, or fewer threads per rank at every rank count",
    ),
    "few repeats": About(
        f"at least {ENOUGH_REPEATS} repeats of every point",
        "runs that are not complete yet, or a study with fewer repeats",
        "`hpc study plan STUDY`, or of its jobs `hpc status`; with fewer repeats intervals are missing or wide",
    ),
}
PLACE = [*SAME, "kind", "batch", "baseline", *POINT, "layout"]
COLUMNS = ["finding", *PLACE, "value", "low", "high", "expected", "evidence", "likely", "look"]


def find(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per anomaly, the most serious kind first; an empty frame if there is none.

    `finding` is one of `FINDINGS`:
    "super-linear": an efficiency whose interval is wholly above 1;
    "throughput falls" as ranks are added, "efficiency rises" again with more ranks, by more than the interval of
    their ratio (of single runs: more than `SPREAD`), each rank count by its best layout;
    "faster with a group": one rank with a process group than without, by more than the interval of their ratio;
    "outside load" on the cores of some runs, by more than `LOAD`; "repeats spread" by more than `SPREAD`;
    "restarted": runs continued from a checkpoint; "barred" from scaling figures; "few repeats".

    Columns: finding; those of `SAME`; kind, batch and baseline of the curve it is seen on, if any; those of `POINT`, layout;
    value, low, high (an efficiency, a ratio of throughputs, a load, a spread, or a count); expected, evidence, likely
    (cause), look (what to look at): in words.
    """
    sound = usable(runs).reset_index(drop=True)
    sound["load"] = points.outside_load(sound, sound.threads_per_rank).fillna(0.0)
    found, configurations = curves(sound), gather(sound)
    measured = headline(gains(found))
    rows = [
        *_super_linear(measured, sound),
        *_falling(found),
        *_rising(measured, sound),
        *_faster_with_a_group(configurations[configurations.world_size == 1], sound),
        *_of_configurations(configurations, sound),
        *(_row("barred", row, row["repeats"], row["runs"]) for row in gather(runs[barred(runs)]).to_dict("records")),
    ]
    rows.sort(key=lambda row: list(FINDINGS).index(row["finding"]))
    return pd.DataFrame(rows, columns=COLUMNS)


def counts(found: pd.DataFrame) -> pd.DataFrame:
    """The number of anomalies of each kind: finding, count, outside (the largest outside load)."""
    outside = found.value.where(found.finding == "outside load").astype(float)
    kinds = found.assign(outside=outside).groupby("finding", sort=False)
    return kinds.agg(count=("value", "size"), outside=("outside", "max")).reset_index()


def _super_linear(measured: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    for row in measured[(measured.world_size > 1) & (measured.low > 1)].to_dict("records"):
        causes = _causes(runs.iloc[row["at_one"]], runs.iloc[row["at"]])
        yield _row("super-linear", row, row["efficiency"], causes) | {"low": row["low"], "high": row["high"]}


def _falling(found: pd.DataFrame) -> Iterator[dict]:
    for before, after, gain in _neighbours(found, "throughput"):
        if gain.high < 1 or (gain.repeats == 1 and gain.value < 1 - SPREAD):
            each = (f"{row['throughput']:,.0f} samples/s on {_ranks(row)}" for row in (before, after))
            yield _row("throughput falls", after, gain.value, [" then ".join(each)]) | gain.measure("ratio")


def _rising(measured: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    for before, after, speed in _neighbours(measured[measured.world_size > 1], "efficiency"):
        # Both have the same baseline: the ratio of efficiencies is that of the throughputs of a rank.
        gain = speed.times(before["world_size"] / after["world_size"])
        if gain.low > 1 or (gain.repeats == 1 and gain.value > 1 + SPREAD):
            each = (f"{row['efficiency']:.0%} on {_ranks(row)}" for row in (before, after))
            causes = _causes(runs.iloc[before["at"]], runs.iloc[after["at"]])
            found = _row("efficiency rises", after, after["efficiency"], causes)
            yield found | {"evidence": "; ".join(filter(None, [" then ".join(each), found["evidence"]]))}


def _faster_with_a_group(alone: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    alone = alone.assign(like=number(alone, [*SAME, "global_batch", "steps_per_epoch"]))
    plain = alone[alone.parallel == "none"].set_index("like")[["throughput_each", "at"]]
    for row in (
        alone[alone.parallel != "none"].join(plain.add_suffix("_one"), on="like", how="inner").to_dict("records")
    ):
        gain = stats.ratio(row["throughput_each"], row["throughput_each_one"])
        if gain.low > 1:
            causes = _causes(runs.iloc[row["at_one"]], runs.iloc[row["at"]])
            yield _row("faster with a group", row, gain.value, causes) | gain.measure("ratio")


def _of_configurations(configurations: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    restarted = pd.to_numeric(runs.restarts).fillna(0) > 0
    for row in configurations.to_dict("records"):
        own = runs.iloc[row["at"]]
        each = [f"{r.load:.0%} in {r.run_id}" for r in own.itertuples() if r.load > LOAD]
        if each:
            if (width := (row["throughput_high"] - row["throughput_low"]) / row["throughput"]) > SPREAD:
                each.append(f"the 95 % interval of the throughput is {width:.0%} wide")
            yield _row("outside load", row, own.load.max(), each)
        spread = np.ptp(row["throughput_each"]) / row["throughput"]
        if spread > SPREAD:
            ends = own.sort_values("throughput").iloc[[0, -1]].itertuples()
            yield _row("repeats spread", row, spread, (f"{r.throughput:,.0f} samples/s in {r.run_id}" for r in ends))
        if len(again := own.run_id[restarted.iloc[row["at"]]]):
            yield _row("restarted", row, len(again), again)
    few = configurations[configurations.repeats < ENOUGH_REPEATS]
    for _, rows in few.groupby(number(few, SAME)):
        each = (
            f"{row.parallel} {row.layout}, batch {row.global_batch:g}: {row.repeats}" for row in rows.itertuples()
        )
        yield _row("few repeats", rows.iloc[0][SAME].to_dict(), len(rows), each)


def _causes(slow: pd.DataFrame, fast: pd.DataFrame) -> dict[str, str]:
    """{cause: evidence}: differences in the records that can make the runs `slow` slower than `fast`."""
    sides, found = (slow, fast), {}
    faults = [pd.to_numeric(own.page_faults).median() for own in sides]
    if faults[0] > FAULTS_RATIO * faults[1] and faults[0] - faults[1] > FAULTS:
        found["page faults"] = "{:,.0f} pages a step, the other {:,.0f}".format(*faults)
    peaks = [points.memory(own).peak_bytes.median() / 2**20 for own in sides]
    if peaks[0] > MEMORY_RATIO * peaks[1]:
        found["more memory to allocate, and less of it in caches"] = "{:,.0f} MiB, the other {:,.0f}".format(*peaks)
    loads = [own.load.max() for own in sides]
    if loads[0] > LOAD:
        found["other processes on its cores"] = "{:.0%} outside load, the other {:.0%}".format(*loads)
    hosts = [set(own.host.dropna()) for own in sides]
    if all(hosts) and not hosts[0] & hosts[1]:
        found["other nodes"] = "on {}, the other on {}".format(*(", ".join(sorted(own)) for own in hosts))
    for column, cause in (
        ("pinned", "cores: not both were pinned to them"),
        ("ranks_per_node", "another share of the traffic crosses the link between nodes"),
        ("batch_per_device", "a smaller batch a device fits the caches better"),
    ):
        values = [own[column].iloc[0] for own in sides]
        links = column != "ranks_per_node" or slow.nodes.iloc[0] > 1
        if pd.notna(values).all() and values[0] != values[1] and links:
            found[cause] = f"{column} {values[0]}, the other {values[1]}"
    return found


def _neighbours(found: pd.DataFrame, value: str) -> Iterator[tuple[dict, dict, stats.Estimate]]:
    """Neighbours on each curve (fewer ranks, more ranks), every rank count by its best layout, with their throughputs' ratio."""
    best = found.loc[found.groupby(["curve", "world_size"])[value].idxmax()]
    rows = best.sort_values(["curve", "world_size"]).to_dict("records")
    for before, after in itertools.pairwise(rows):
        if before["curve"] == after["curve"]:
            yield before, after, stats.ratio(after["throughput_each"], before["throughput_each"])


def _row(finding: str, row: dict, value: float, evidence: Iterable[str] | dict[str, str]) -> dict:
    """A finding on the point `row`; `evidence`: lines, or {cause: line}."""
    about, causes = FINDINGS[finding], ""
    if isinstance(evidence, dict):
        causes, evidence = "; ".join(evidence) or UNKNOWN, evidence.values()
    nodes = row.get("nodes", 1)  # NA: not recorded
    likely = (about.of_nodes if pd.notna(nodes) and nodes > 1 else "") + (about.likely or causes)
    words = {"expected": about.expected, "likely": likely, "look": about.look, "evidence": "; ".join(evidence)}
    known = {name: row[name] for name in PLACE if name in row}
    return known | words | {"finding": finding, "value": value}


def _ranks(row: dict) -> str:
    return f"{counted(row['world_size'], 'rank')} ({row['layout']})"
