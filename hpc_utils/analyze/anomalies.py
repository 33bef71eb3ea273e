"""Points of a set of runs that are too good, too bad or too uncertain, with the likely cause as far as records show it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from . import stats
from .points import POINT, SAME, gather, number, oversubscribed
from .scaling import curves, gains, headline, usable

SPREAD = 0.1  # of repeats, (largest - smallest) / median throughput
ENOUGH_REPEATS = 3
FAULTS_RATIO, FAULTS = 1.5, 100.0  # page faults a step of the baseline: over the point's, and how many more
MEMORY_RATIO = 1.1  # peak memory of the baseline over the point's
MIB = 2**20
UNKNOWN = "the records show no cause"
FITS = "a smaller batch a device fits the caches better"
COLUMNS = [
    "finding", *SAME, "kind", "batch", "baseline", *POINT, "layout",
    "value", "low", "high", "expected", "evidence", "likely", "look",
]  # fmt: skip

Cause = tuple[str, str]  # cause and evidence, in words


def find(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per anomaly, the most serious kind first; an empty frame if there is none.

    `finding` is one of:
    "super-linear": an efficiency whose interval is wholly above 1;
    "throughput falls" as ranks are added, "efficiency rises" again with more ranks, by more than the interval of
    their ratio (of single runs: more than `SPREAD`), each rank count by its best layout;
    "repeats spread" by more than `SPREAD`;
    "restarted": runs continued from a checkpoint; "oversubscribed": barred from scaling figures; "few repeats".

    Columns: finding; those of `SAME`; kind, batch and baseline of the curve it is seen on, if any; those of `POINT`, layout;
    value, low, high (an efficiency, a ratio of throughputs, a spread, or a count); expected, evidence, likely (cause), look
    (what to look at): in words.
    """
    sound = usable(runs).reset_index(drop=True)
    found = curves(sound)
    measured, configurations = headline(gains(found)), gather(sound)
    rows = [
        *_super_linear(measured, found, sound),
        *_falling(found),
        *_rising(measured, sound),
        *_spread(configurations, sound),
        *_restarted(configurations, sound),
        *_oversubscribed(runs[oversubscribed(runs)]),
        *_few(configurations),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def counts(found: pd.DataFrame) -> pd.DataFrame:
    """The number of anomalies of each kind: finding, count."""
    return found.groupby("finding", sort=False).size().rename("count").reset_index()


def _super_linear(measured: pd.DataFrame, found: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    grouped = found[(found.world_size == 1) & (found.parallel != "none")].set_index("curve").step_seconds_each
    for row in measured[(measured.world_size > 1) & (measured.low > 1)].to_dict("records"):
        ddp = grouped.get(row["curve"]) if row["baseline"] == "none" else None
        causes = list(_baseline(row, runs.iloc[row["at"]], runs.iloc[row["at_one"]], ddp))
        yield _row("super-linear", row, row["efficiency"], causes) | {
            "expected": "at most 100 %: more ranks do the same work and communicate",
            "look": "the baseline first: repeat it, on the same nodes; then a profiled step of both",
        }


def _baseline(row: dict, point: pd.DataFrame, one: pd.DataFrame, ddp: np.ndarray | None) -> Iterator[Cause]:
    """Why one rank is slow: runs of the point and of one rank, and the step times (s) of DDP on one rank, if measured."""
    slower = stats.ratio(row["step_seconds_one"], ddp) if ddp is not None else stats.UNKNOWN
    if slower.low > 1 or (slower.repeats == 1 and slower.value > 1):
        none, ddp = (1e3 * np.median(own) for own in (row["step_seconds_one"], ddp))
        cause = "the baseline itself is slow: without a process group one rank should not take longer than with DDP"
        yield cause, f"it takes {none:.3g} ms a step, DDP on one rank {ddp:.3g} ms"
    ours, theirs = (pd.to_numeric(own.page_faults).median() for own in (point, one))
    if theirs > FAULTS_RATIO * ours and theirs - ours > FAULTS:
        faults = f"{theirs:,.0f} pages a step, {ours:,.0f} on {row['world_size']} ranks"
        yield "the baseline loses time to page faults", faults
    yield from _other_nodes(point, one, "the baseline")
    ours, theirs = (np.median(row[name]) for name in ("peak_bytes_each", "peak_bytes_one"))
    if theirs > MEMORY_RATIO * ours:
        peaks = f"{theirs / MIB:,.0f} MiB at its peak, {ours / MIB:,.0f} MiB on {row['world_size']} ranks"
        yield "the baseline needs more memory than a device of many: more to allocate, less of it in caches", peaks
    pinned = [" or ".join(sorted(map(str, set(own.pinned.dropna())))).lower() for own in (one, point)]
    if all(pinned) and pinned[0] != pinned[1]:
        yield "cores: not both were pinned to them", f"`pinned` is {pinned[0]} in the baseline, {pinned[1]} here"
    if row["kind"] == "strong":
        yield FITS, f"{row['batch_per_device']:g} samples a device instead of {row['global_batch']:g}"


def _other_nodes(point: pd.DataFrame, one: pd.DataFrame, name: str) -> Iterator[Cause]:
    hosts = [sorted(set(own.host.dropna())) for own in (one, point)]
    if all(hosts) and not set(hosts[0]) & set(hosts[1]):
        yield f"{name} ran on other nodes", f"on {', '.join(hosts[0])}, the other on {', '.join(hosts[1])}"


def _falling(found: pd.DataFrame) -> Iterator[dict]:
    before, after, gain = _neighbours(found, "throughput")
    falls = (gain.high < 1) | ((gain.repeats == 1) & (gain.value < 1 - SPREAD))
    for one, other, ratio in _each(falls, before, after, gain):
        cause = "the all-reduce, the input, or cores and memory that ranks of a node share"
        if other["nodes"] > one["nodes"]:
            cause = f"the link between nodes: {one['layout']} became {other['layout']}"
        elif other["batch_per_device"] < one["batch_per_device"]:
            sizes = f"{other['batch_per_device']:g} samples a device instead of {one['batch_per_device']:g}"
            cause = f"too little to compute: {sizes} no longer hide the all-reduce"
        evidence = f"{other['throughput']:,.0f} samples/s on {_ranks(other)}"
        yield _row("throughput falls", other, ratio["value"], [(cause, evidence)]) | {
            "low": ratio["low"],
            "high": ratio["high"],
            "expected": f"at least the {one['throughput']:,.0f} samples/s of {_ranks(one)}",
            "look": "comm_seconds and overlap_seconds of both in epochs.csv; the link (`hpc bench allreduce`)",
        }


def _rising(measured: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    before, after, speed = _neighbours(measured[measured.world_size > 1], "efficiency")
    # Both have the same baseline: the ratio of efficiencies is that of the throughputs of a rank.
    gain = speed[["value", "low"]].mul(before.world_size / after.world_size, axis=0)
    rises = (gain.low > 1) | ((speed.repeats == 1) & (gain.value > 1 + SPREAD))
    for one, other, _ in _each(rises, before, after, speed):
        causes = list(_slow_point(one, other, runs))
        found = _row("efficiency rises", other, other["efficiency"], causes)
        evidence = f"{other['efficiency']:.0%} on {_ranks(other)}"
        yield found | {
            "expected": f"at most the {one['efficiency']:.0%} of {_ranks(one)}",
            "evidence": "; ".join(filter(None, (evidence, found["evidence"]))),
            "look": f"the point of {_ranks(one)}: repeat it first",
        }


def _slow_point(before: dict, after: dict, runs: pd.DataFrame) -> Iterator[Cause]:
    """Why fewer ranks are less efficient than more."""
    spreads = [np.ptp(row["throughput_each"]) / row["throughput"] for row in (before, after)]
    if spreads[0] > 2 * spreads[1] and len(before["at"]) > 1:
        evidence = f"its repeats spread by {spreads[0]:.0%}, those of more ranks by {spreads[1]:.0%}"
        yield "the point with fewer ranks was disturbed", evidence
    if before["ranks_per_node"] != after["ranks_per_node"] and before["nodes"] > 1:
        layouts = f"{before['layout']}, then {after['layout']}"
        yield "fewer ranks cross the link between nodes relative to their number", layouts
    yield from _other_nodes(runs.iloc[after["at"]], runs.iloc[before["at"]], "the point with fewer ranks")
    if before["batch_per_device"] != after["batch_per_device"]:
        yield FITS, f"{before['batch_per_device']:g} samples a device, then {after['batch_per_device']:g}"


def _spread(configurations: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    spread = configurations.throughput_each.map(np.ptp) / configurations.throughput
    for row in configurations.assign(spread=spread)[spread > SPREAD].to_dict("records"):
        ordered = runs.iloc[row["at"]].sort_values("throughput")
        slow, fast = ordered.iloc[0], ordered.iloc[-1]
        cause = "something else used the machine meanwhile"
        if slow.host != fast.host:
            cause = "nodes that are not alike, or not equally busy"
        elif slow["repeat"] == 1:
            cause = "the first repeat met cold caches, or clocks that had not settled"
        evidence = ", ".join(f"{one.throughput:,.0f} samples/s in {one.run_id} on {one.host}" for one in (slow, fast))
        yield _row("repeats spread", row, row["spread"], [(cause, evidence)]) | {
            "expected": f"repeats within {SPREAD:.0%} of each other",
            "look": "other users of the machine (load, clocks, `hpc doctor`), then repeat",
        }


def _restarted(configurations: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    again = pd.to_numeric(runs.restarts).fillna(0).to_numpy() > 0
    cause = "a time limit, a preemption or a fault; the time is whole, but caches were cold more than once"
    for row in configurations.to_dict("records"):
        if names := runs.run_id.iloc[row["at"][again[row["at"]]]].tolist():
            yield _row("restarted", row, len(names), [(cause, _listed(names))]) | {
                "expected": "runs that were trained without interruption",
                "look": "the same points without these runs",
            }


def _oversubscribed(barred: pd.DataFrame) -> Iterator[dict]:
    for row in gather(barred).to_dict("records"):
        cause = "a functional test: these runs stand in no scaling figure and no table"
        yield _row("oversubscribed", row, len(row["at"]), [(cause, _listed(row["runs"]))]) | {
            "expected": "no more ranks than cores",
            "look": "a machine with enough cores, or fewer threads per rank at every rank count",
        }


def _few(configurations: pd.DataFrame) -> Iterator[dict]:
    few = configurations[configurations.repeats < ENOUGH_REPEATS]
    cause = "runs that are not complete yet, or a study with fewer repeats"
    for _, rows in few.groupby(number(few, SAME)):
        own = [f"{row.parallel} {row.layout}, batch {row.global_batch:g}: {row.repeats}" for row in rows.itertuples()]
        yield _row("few repeats", rows.iloc[0][SAME].to_dict(), len(rows), [(cause, _listed(own))]) | {
            "expected": f"at least {ENOUGH_REPEATS} repeats of every point",
            "look": "`hpc status`; with fewer repeats intervals are missing or wide",
        }


def _neighbours(found: pd.DataFrame, value: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Neighbours on each curve (fewer ranks, more ranks), every rank count by its best layout; their throughputs' ratio as
    value, low, high, repeats."""
    best = found.loc[found.groupby(["curve", "world_size"])[value].idxmax()]
    best = best.sort_values(["curve", "world_size"], ignore_index=True)
    first = np.flatnonzero(best.curve == best.curve.shift(-1))
    before, after = (best.iloc[places].reset_index(drop=True) for places in (first, first + 1))
    ratios = stats.ratios(after.throughput_each.tolist(), before.throughput_each.tolist())
    return before, after, pd.DataFrame(ratios, columns=list(stats.Estimate._fields))


def _each(chosen: pd.Series, *frames: pd.DataFrame) -> Iterator[tuple[dict, ...]]:
    return zip(*(frame[chosen].to_dict("records") for frame in frames), strict=True)


def _row(finding: str, row: dict, value: float, causes: list[Cause]) -> dict:
    words = {
        "likely": "; ".join(cause for cause, _ in causes) or UNKNOWN,
        "evidence": "; ".join(evidence for _, evidence in causes),
    }
    return {name: row[name] for name in COLUMNS if name in row} | {"finding": finding, "value": value} | words


def _ranks(row: dict) -> str:
    return f"{row['world_size']} ranks ({row['layout']})"


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
