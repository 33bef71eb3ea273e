"""Points of a set of runs that are too good, too bad or too uncertain, with the likely cause as far as records show it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from hpc_utils.plural import counted

from . import points, stats
from .compare import compare, quotient
from .points import POINT, SAME, barred, gather, number
from .scaling import against_one, curves, gains, headline, usable
from .table import tabled

LOAD = 0.05  # share of a device's cores that other processes use, or the hypervisor steals
SPREAD = 0.1  # of repeats, (largest - smallest) / median throughput
ENOUGH_REPEATS = 3
FAULTS_RATIO, FAULTS = 1.5, 100.0  # page faults a step of the slower point: over the other's, and how many more
MEMORY_RATIO = 1.1  # peak memory of the slower point over the other's
UNKNOWN = "the records show no cause"


class FindingKind(NamedTuple):
    """A kind of finding: the expectation, the usual cause ("": taken from the records), what to look at, and the cause that
    comes first on several nodes."""

    expected: str
    likely: str
    look: str
    of_nodes: str = ""


# The most serious first.
FINDINGS = {
    "super-linear": FindingKind(
        "at most 100 %: more ranks do the same work and communicate",
        "",
        "the baseline first: repeat it, on the same nodes; then a profiled step of both",
    ),
    "faster with a group": FindingKind(
        "at most the throughput of one process without a group: one rank with a group does the same work and more",
        "",
        "both again, alone on the machine and in turn; outside_seconds in runs.csv",
    ),
    "throughput falls": FindingKind(
        "at least that of fewer ranks",
        "an all-reduce that a smaller batch a device no longer hides, the input, or cores and memory that ranks of a node share",
        "comm_seconds and overlap_seconds of both in epochs.csv (of a script: `hpc explain` of each, run with -p profile=torch); an all-reduce alone (`hpc bench allreduce`)",
        "the link between nodes, ",
    ),
    "efficiency rises": FindingKind("at most that of fewer ranks", "", "the point of fewer ranks: repeat it first"),
    "outside load": FindingKind(
        f"at most {LOAD:.0%} of the device's cores used by other processes, or stolen by the hypervisor",
        "another program or user of the machine (outside_seconds in runs.csv); a virtual machine's neighbours (steal_seconds)",
        "`top`; then the same runs again, alone on the machine (--redo)",
    ),
    "repeats spread": FindingKind(
        f"repeats within {SPREAD:.0%} of each other",
        "other work on the machine, or caches that the first repeat found cold",
        "other users of the machine (`top`), clocks (`hpc doctor`); then repeat",
        "nodes that are not alike, ",
    ),
    "unpaired repeats": FindingKind(
        "every run in turn with its baseline's of the same repeat",
        "a repeat that was interrupted, and resumed when some of its runs were complete",
        "the repeat again: `hpc study run STUDY --redo --only repeat=N`",
    ),
    "restarted": FindingKind(
        "runs that were trained without interruption",
        "a time limit, a preemption or a fault; the time is whole, but caches were cold more than once",
        "the same points without these runs",
    ),
    "barred": FindingKind(
        "no more ranks than cores, and a machine that is not shared on purpose (HPC_SHARED)",
        "a functional test: these runs stand in no scaling figure and no table",
        "a machine with enough cores, or fewer threads per rank at every rank count",
    ),
    "few repeats": FindingKind(
        f"at least {ENOUGH_REPEATS} repeats of every point",
        "runs that are not complete yet, or a study with fewer repeats",
        "`hpc study plan STUDY`, or of its jobs `hpc status`; with fewer repeats intervals are missing or wide",
    ),
}
PLACE = [*SAME, "kind", "batch", "baseline", *POINT, "layout"]
COLUMNS = ["finding", *PLACE, *stats.columns("value"), "expected", "evidence", "likely", "look"]


@tabled(
    "findings",
    "What looks wrong.",
    "finding world_size layout value expected evidence likely look",
)
def find_anomalies(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per anomaly, the most serious kind first; an empty frame if there is none.

    `finding` is one of `FINDINGS`:
    "super-linear": an efficiency whose interval is wholly above 1;
    "throughput falls" as ranks are added, "efficiency rises" again with more ranks, by more than the interval of
    their ratio (of single runs: more than `SPREAD`), each rank count by its best layout;
    "faster with a group": one rank with a process group than without, by more than the interval of their ratio;
    "outside load" on the cores of some runs, by more than `LOAD`; "repeats spread" by more than `SPREAD`;
    "unpaired repeats": runs that are not in a ratio of turns, as none of the baseline took turns with them; "restarted": runs continued from a checkpoint; "barred" from scaling figures; "few repeats".

    Columns: finding; those of `SAME`; kind, batch and baseline of the curve it is seen on, if any; those of `POINT`, layout;
    value, value_low, value_high (an efficiency, a ratio of throughputs, a load, a spread, or a count); expected, evidence, likely
    (cause), look (what to look at): in words.
    """
    sound = usable(runs).set_index("run_id", drop=False).rename_axis(None)
    sound["load"] = points.outside_load(sound, sound.threads_per_rank).fillna(0.0)
    curve_points = curves(sound)
    configurations = gather(sound)
    measured = headline(gains(against_one(curve_points)))
    single = configurations[configurations.world_size == 1]
    is_plain = single.parallel == "none"
    alike = [*SAME, "global_batch", "steps_per_epoch"]
    grouped = compare(single[~is_plain], single[is_plain], alike, over={"value": "throughput"})
    rows = [
        *_too_fast("super-linear", measured[measured.world_size > 1], "efficiency", sound),
        *_falling(curve_points),
        *_rising(measured, sound),
        *_differing_sessions(measured),
        *_unpaired(measured),
        *_too_fast("faster with a group", grouped, "value", sound),
        *_of_configurations(configurations, sound),
        *(_row("barred", row, row["repeats"], row["runs"]) for row in gather(runs[barred(runs)]).to_dict("records")),
    ]
    rows.sort(key=lambda row: list(FINDINGS).index(row["finding"]))
    return pd.DataFrame(rows, columns=COLUMNS)


@tabled(
    "finding-counts",
    "Findings by kind.",
)
def counts(anomalies: pd.DataFrame) -> pd.DataFrame:
    """The number of anomalies of each kind: finding, count, outside (the largest outside load)."""
    outside = anomalies.value.where(anomalies.finding == "outside load").astype(float)
    kinds = anomalies.assign(outside=outside).groupby("finding", sort=False)
    return kinds.agg(count=("value", "size"), outside=("outside", "max")).reset_index()


def _too_fast(finding: str, compared: pd.DataFrame, ratio: str, runs: pd.DataFrame) -> Iterator[dict]:
    """The points whose `ratio` to their base is wholly above 1."""
    for row in compared[compared[f"{ratio}_low"] > 1].to_dict("records"):
        causes = _causes(runs, row["runs_base"], row["runs"])
        yield _row(finding, row, stats.Estimate.of(row, ratio), causes)


def _falling(curve_points: pd.DataFrame) -> Iterator[dict]:
    for before, after, gain in _neighbours(curve_points, "throughput"):
        if gain.high < 1 or (gain.repeats == 1 and gain.value < 1 - SPREAD):
            speeds = (f"{row['throughput']:,.0f} samples/s on {_ranks(row)}" for row in (before, after))
            yield _row("throughput falls", after, gain, [" then ".join(speeds)])


def _rising(measured: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    for before, after, speed in _neighbours(measured[measured.world_size > 1], "efficiency"):
        # Both have the same baseline: the ratio of efficiencies is that of the throughputs of a rank.
        gain = speed.times(before["world_size"] / after["world_size"])
        if gain.low > 1 or (gain.repeats == 1 and gain.value > 1 + SPREAD):
            efficiencies = (f"{row['efficiency']:.0%} on {_ranks(row)}" for row in (before, after))
            causes = _causes(runs, before["runs"], after["runs"])
            anomaly = _row("efficiency rises", after, after["efficiency"], causes)
            evidence = [" then ".join(efficiencies), anomaly["evidence"]]
            yield anomaly | {"evidence": "; ".join(filter(None, evidence))}


def _differing_sessions(measured: pd.DataFrame) -> Iterator[dict]:
    for row in measured.to_dict("records"):
        # The standard deviation of a session's ratio: what it is on a shared machine, 3 to 6 %, is in the interval.
        spread = row["between"] * np.sqrt(row["repeats"])
        if spread > SPREAD:
            yield _row("repeats spread", row, spread, [f"efficiency in {row['repeats']} sessions of turns"])


def _unpaired(measured: pd.DataFrame) -> Iterator[dict]:
    for row in measured[measured.rounds > 0].to_dict("records"):
        of_base = _sessions(*row["throughput_sample_base"].by_round)
        by_run = zip(row["runs"], row["throughput_sample"].by_round, strict=True)
        if alone := [run_id for run_id, rounds in by_run if not _sessions(rounds) & of_base]:
            yield _row("unpaired repeats", row, len(alone), alone)


def _sessions(*rounds: Iterable[tuple[str, int]]) -> set[str]:
    """Those of turns."""
    return {session for turns in rounds for session, _ in turns}


def _of_configurations(configurations: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    for row in configurations.to_dict("records"):
        repeats = runs.loc[[*row["runs"]]]
        lines = [f"{run.load:.0%} in {run.run_id}" for run in repeats.itertuples() if run.load > LOAD]
        if lines:
            width = (row["throughput_high"] - row["throughput_low"]) / row["throughput"]
            if width > SPREAD:
                lines.append(f"the 95 % interval of the throughput is {width:.0%} wide")
            yield _row("outside load", row, repeats.load.max(), lines)
        speeds = row["throughput_sample"]
        spread = np.ptp(speeds.values) / row["throughput"]
        if spread > SPREAD and not all(speeds.by_round):  # turns are compared within rounds
            ends = repeats.sort_values("throughput").iloc[[0, -1]].itertuples()
            lines = (f"{run.throughput:,.0f} samples/s in {run.run_id}" for run in ends)
            yield _row("repeats spread", row, spread, lines)
        restarted_ids = repeats.run_id[pd.to_numeric(repeats.restarts) > 0]
        if len(restarted_ids):
            yield _row("restarted", row, len(restarted_ids), restarted_ids)
    few = configurations[configurations.repeats < ENOUGH_REPEATS]
    for _, rows in few.groupby(number(few, SAME)):
        lines = (
            f"{row.parallel} {row.layout}, batch {row.global_batch:g}: {row.repeats}" for row in rows.itertuples()
        )
        yield _row("few repeats", rows.iloc[0][SAME].to_dict(), len(rows), lines)


def _causes(runs: pd.DataFrame, slow: Iterable[str], fast: Iterable[str]) -> dict[str, str]:
    """{cause: evidence}: differences in the records that can make the runs `slow` slower than `fast` (ids)."""
    sides = [runs.loc[[*run_ids]] for run_ids in (slow, fast)]
    causes = {}
    faults = [pd.to_numeric(side.page_faults).median() for side in sides]
    if faults[0] > max(FAULTS_RATIO * faults[1], FAULTS + faults[1]):
        causes["page faults"] = "{:,.0f} pages a step, the other {:,.0f}".format(*faults)
    peaks = [points.memory(side).peak_bytes.median() / 2**20 for side in sides]
    if peaks[0] > MEMORY_RATIO * peaks[1]:
        causes["more memory to allocate, and less of it in caches"] = "{:,.0f} MiB, the other {:,.0f}".format(*peaks)
    loads = [side.load.max() for side in sides]
    if loads[0] > LOAD:
        causes["other processes on its cores"] = "{:.0%} outside load, the other {:.0%}".format(*loads)
    hosts = [set(side.host.dropna()) for side in sides]
    if all(hosts) and not hosts[0] & hosts[1]:
        causes["other nodes"] = "on {}, the other on {}".format(*(", ".join(sorted(names)) for names in hosts))
    for column, cause in (
        ("pinned", "cores: not both were pinned to them"),
        ("ranks_per_node", "another share of the traffic crosses the link between nodes"),
        ("batch_per_device", "a smaller batch a device fits the caches better"),
    ):
        values = [side[column].iloc[0] for side in sides]
        links = column != "ranks_per_node" or sides[0].nodes.iloc[0] > 1
        if pd.notna(values).all() and values[0] != values[1] and links:
            causes[cause] = f"{column} {values[0]}, the other {values[1]}"
    return causes


def _neighbours(curve_points: pd.DataFrame, value: str) -> Iterator[tuple[dict, dict, stats.Estimate]]:
    """Neighbours on each curve (fewer ranks, more ranks), every rank count by its best layout, with their throughputs' ratio."""
    best = curve_points.loc[curve_points.groupby(["curve", "world_size"])[value].idxmax()]
    rows = best.sort_values(["curve", "world_size"]).to_dict("records")
    for before, after in itertools.pairwise(rows):
        if before["curve"] == after["curve"]:
            yield before, after, quotient(after["throughput_sample"], before["throughput_sample"]).estimate


def _row(finding: str, row: dict, value: stats.Estimate | float, evidence: Iterable[str] | dict[str, str]) -> dict:
    """A finding on the point `row`; `evidence`: lines, or {cause: line}."""
    kind = FINDINGS[finding]
    causes = ""
    if isinstance(evidence, dict):
        causes = "; ".join(evidence) or UNKNOWN
        evidence = evidence.values()
    nodes = row.get("nodes", 1)  # NA: not recorded
    likely = (kind.of_nodes if pd.notna(nodes) and nodes > 1 else "") + (kind.likely or causes)
    words = {"expected": kind.expected, "likely": likely, "look": kind.look, "evidence": "; ".join(evidence)}
    values = value.columns("value") if isinstance(value, stats.Estimate) else {"value": value}
    return row | words | {"finding": finding} | values


def _ranks(row: dict) -> str:
    return f"{counted(row['world_size'], 'rank')} ({row['layout']})"
