"""The likely cause of a finding, from what the runs recorded: pairs of (cause, evidence) in words, the surest first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from . import stats

FAULTS_RATIO = 1.5  # of the baseline's page faults a step to the point's ...
FAULTS = 100.0  # ... and how many more: some tenths of a millisecond
MEMORY_RATIO = 1.1  # of the baseline's peak memory to the point's
MIB = 2**20

Cause = tuple[str, str]


def of_super_linear(row: dict, point: pd.DataFrame, one: pd.DataFrame, ddp: np.ndarray | None) -> list[Cause]:
    """Why N ranks are more than N times as fast.

    `row` as of `scaling.gains`, the runs of the point and of one rank, and DDP's step times (s) on one rank, if any.
    Threads per rank are equal on a curve, unless nobody recorded them.
    """
    if row["baseline"] != "none":
        ddp = None
    return [
        *_slow_baseline(row["step_seconds_one"], ddp),
        *_page_faults(point, one),
        *_elsewhere(point, one),
        *_memory(row),
        *_threads(row, point, one),
        *_batch(row),
    ]


def of_rising(before: dict, after: dict, runs: pd.DataFrame) -> list[Cause]:
    """Why more ranks are more efficient; both rows as of `scaling.gains`."""
    found = []
    spreads = [np.ptp(row["throughput_each"]) / row["throughput"] for row in (before, after)]
    if spreads[0] > 2 * spreads[1] and len(before["at"]) > 1:
        said = f"its repeats spread by {spreads[0]:.0%}, those of more ranks by {spreads[1]:.0%}"
        found.append(("the point with fewer ranks was disturbed", said))
    if before["ranks_per_node"] != after["ranks_per_node"] and before["nodes"] > 1:
        found.append(("fewer ranks cross the link between nodes relative to their number", _layouts(before, after)))
    found += _elsewhere(runs.iloc[after["at"]], runs.iloc[before["at"]], "the point with fewer ranks")
    if before["batch_per_device"] != after["batch_per_device"]:
        said = f"{before['batch_per_device']:g} samples a device, then {after['batch_per_device']:g}"
        found.append(("a smaller batch a device fits the caches better", said))
    return found


def of_falling(before: dict, after: dict) -> str:
    """Why more ranks do less; both rows as of `curves.curves`."""
    if after["nodes"] > before["nodes"]:
        return f"the link between nodes: {before['layout']} became {after['layout']}"
    if after["batch_per_device"] < before["batch_per_device"]:
        return (
            f"too little to compute: {after['batch_per_device']:g} samples a device instead of "
            f"{before['batch_per_device']:g} no longer cover the all-reduce"
        )
    return "the all-reduce, the input, or cores and memory that ranks of a node share"


def of_spread(runs: pd.DataFrame) -> Cause:
    """Why the repeats of a point differ."""
    ordered = runs.sort_values("throughput")
    slow, fast = ordered.iloc[0], ordered.iloc[-1]
    said = f"{slow.throughput:,.0f} samples/s in {slow.run_id} on {slow.host}, "
    said += f"{fast.throughput:,.0f} in {fast.run_id} on {fast.host}"
    if slow.host != fast.host:
        return "nodes that are not alike, or not equally busy", said
    if slow["repeat"] == 1:
        return "the first repeat met cold caches, or clocks that had not settled", said
    return "something else used the machine meanwhile", said


def _slow_baseline(none: np.ndarray, ddp: np.ndarray | None) -> Iterator[Cause]:
    if ddp is None:
        return
    slower = stats.ratio(none, ddp)
    if slower.low > 1 or (slower.repeats == 1 and slower.value > 1):
        yield (
            "the baseline itself is slow: without a process group one rank should not take longer than with DDP",
            f"it takes {np.median(none) * 1e3:.3g} ms a step, DDP on one rank {np.median(ddp) * 1e3:.3g} ms",
        )


def _page_faults(point: pd.DataFrame, one: pd.DataFrame) -> Iterator[Cause]:
    ours, theirs = (pd.to_numeric(runs.page_faults).median() for runs in (point, one))
    if theirs > FAULTS_RATIO * ours and theirs - ours > FAULTS:
        yield (
            "the baseline loses time to page faults",
            f"the kernel found it {theirs:,.0f} pages a step, {ours:,.0f} on {_ranks(point)}",
        )


def _elsewhere(point: pd.DataFrame, one: pd.DataFrame, who: str = "the baseline") -> Iterator[Cause]:
    hosts = [sorted(set(runs.host.dropna())) for runs in (one, point)]
    if all(hosts) and not set(hosts[0]) & set(hosts[1]):
        yield f"{who} ran on other nodes", f"on {', '.join(hosts[0])}, the other on {', '.join(hosts[1])}"


def _memory(row: dict) -> Iterator[Cause]:
    ours, theirs = (np.median(row[name]) for name in ("peak_bytes_each", "peak_bytes_one"))
    if theirs > MEMORY_RATIO * ours:
        yield (
            "the baseline needs more memory than a device of many: more to allocate, less of it in caches",
            f"{theirs / MIB:,.0f} MiB at its peak, {ours / MIB:,.0f} MiB on {row['world_size']} ranks",
        )


def _threads(row: dict, point: pd.DataFrame, one: pd.DataFrame) -> Iterator[Cause]:
    if pd.isna(row["threads_per_rank"]):
        yield "ranks with more threads than the baseline", "threads per rank are not recorded"
    pinned = [set(runs.pinned.dropna()) for runs in (one, point)]
    if all(pinned) and pinned[0] != pinned[1]:
        yield (
            "cores: not both were pinned to them",
            f"`pinned` is {_all(pinned[0])} in the baseline, {_all(pinned[1])} here",
        )


def _batch(row: dict) -> Iterator[Cause]:
    if row["kind"] == "strong":
        said = f"{row['batch_per_device']:g} samples a device instead of {row['global_batch']:g}"
        yield "a smaller batch a device fits the caches better", said


def _all(values: set) -> str:
    return " or ".join(sorted(str(bool(value)).lower() for value in values))


def _layouts(before: dict, after: dict) -> str:
    return f"{before['layout']}, then {after['layout']}"


def _ranks(point: pd.DataFrame) -> str:
    return f"{point.world_size.iloc[0]} ranks"
