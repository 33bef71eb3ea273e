"""Strong and weak scaling as named values: `strong.efficiency.2`, `weak.variation`, `throughput.gain.bf16`, `memory.peak.2`."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from hpc_utils.analyze.points import SAME
from hpc_utils.analyze.scaling import PLACE
from hpc_utils.analyze.targets import headline
from hpc_utils.analyze.value import Value

from . import words
from .naming import counted, names, values

BOTH = ("runs", "runs_one")
KINDS = ("strong", "weak")
# Of every point of a curve, by itself: name, column, unit, what it is.
POINTS = (
    ("throughput", "throughput", "samples/s", "Training throughput of all ranks together"),
    ("step-seconds", "step_seconds", "s", "Time of a training step"),
    ("epoch-seconds", "epoch_seconds", "s", "Training time of an epoch"),
)


def efficiency(curves: pd.DataFrame) -> list[Value]:
    """`strong.efficiency.2`, `strong.speedup.2`, `strong.throughput.2`, `strong.step-seconds.2`, `strong.epoch-seconds.2`, likewise
    `weak`; `curves` as of `scaling.efficiency`."""
    found: list[Value] = []
    for kind, own in _kinds(curves):
        many = own[own.world_size > 1]
        for name, unit, low, high in (
            ("efficiency", "share", "low", "high"),
            ("speedup", "ratio", "speedup_low", "speedup_high"),
        ):
            found += values(
                many, f"{kind}.{name}", name, unit, lambda row, name=name: _against(row, name),
                point=["world_size"], ends=(low, high), runs=BOTH,
            )  # fmt: skip
        first = headline(own)
        for name, column, unit, what in POINTS:
            found += values(
                first, f"{kind}.{name}", column, unit, lambda row, what=what: _of(row, what), point=["world_size"],
                ends=(f"{column}_low", f"{column}_high"),
            )  # fmt: skip
    return found


def overhead(rows: pd.DataFrame) -> list[Value]:
    """`strong.on-one-rank.ddp`: how efficient each scheme is on one rank, against no process group; `rows` as of
    `workshop.rows`."""
    alone = rows[(rows.world_size == 1) & (rows.parallel != "none") & rows.low.notna()]
    found: list[Value] = []
    for kind, own in _kinds(alone):
        found += values(
            own, f"{kind}.on-one-rank", "efficiency", "share",
            lambda row: f"Speed of one rank with {row.parallel.upper()} over that of one process without a process group, "
            f"{words.batch(row)}: {words.of(row)}.",
            point=["parallel"], runs=BOTH,
        )  # fmt: skip
    return found


def targets(judged: pd.DataFrame) -> list[Value]:
    """`strong.target.required`, `.ranks`; for each curve `.verdict`, `.why`, `.reached` (of weak scaling `.variation`) and
    `.reached-ranks`; `judged` as of `targets.judge`."""
    found: list[Value] = []
    for kind, own in _kinds(judged):
        first = own.iloc[0]
        found += [
            counted(f"{kind}.target.required", first.required, "share", f"What the target asks for: {first.target}."),
            counted(f"{kind}.target.ranks", int(first.at_ranks), "count", f"The ranks that the target is about: {first.target}."),
        ]  # fmt: skip
        if own.scheme.isna().all():  # no curve
            found.append(
                counted(f"{kind}.target.verdict", first.verdict, "text", f"Verdict on the target: {first.target}.")
            )
            continue
        for column, what in (("verdict", "Verdict on the target"), ("why", "What was found of the target, in words")):
            found += values(
                own, f"{kind}.target.{column}", column, "text",
                lambda row, what=what: f"{what} ({row.target}), {words.batch(row)}: {words.of(row)}.", ends=None, repeats=None,
            )  # fmt: skip
        name, what = (
            ("reached", "efficiency") if kind == "strong" else ("variation", "largest variation of a step's time")
        )
        found += values(
            own, f"{kind}.target.{name}", "value", "share",
            lambda row, what=what: f"The {what} that was judged, on up to {row.ranks} ranks, {words.batch(row)}: {words.of(row)}.",
        )  # fmt: skip
        found += values(
            own, f"{kind}.target.reached-ranks", "ranks", "count",
            lambda row: f"Ranks on which the target ({row.target}) was judged: {words.of(row)}.",
            ends=None, repeats=None,
        )  # fmt: skip
    return found


def memory(table: pd.DataFrame) -> list[Value]:
    """`memory.peak.2` (B a device) and `memory.growth.2` (of the peak, over one rank's); `table` as of `scaling.memory`."""
    peak = headline(table)
    peak = peak[peak.statistic == "peak"]
    of = {"allocated": "memory in tensors on a device", "resident": "resident memory of a rank's process"}
    # A point may lie on a curve of each kind: its own memory is told once, by its own batch.
    both = peak.drop_duplicates([*SAME, *PLACE, "steps_per_epoch"]).drop(columns=["kind", "batch"])
    return [
        *values(
            both, "memory.peak", "bytes", "B", lambda row: f"Peak {of[row.memory]} on {words.ranks(row)}: {words.of(row)}.",
            point=["world_size"], ends=("bytes_low", "bytes_high"),
        ),
        *values(
            peak[peak.world_size > 1], "memory.growth", "ratio", "ratio",
            lambda row: f"Peak {of[row.memory]} on {words.ranks(row)} over that on one rank, {row.kind} scaling: {words.of(row)}.",
            point=["world_size", "kind"], runs=BOTH,
        ),
    ]  # fmt: skip


def throughput(table: pd.DataFrame) -> list[Value]:
    """`throughput.2` with what tells configurations apart; `table` as of `scaling.throughput`."""
    return values(
        table, "throughput", "throughput", "samples/s",
        lambda row: f"Training throughput of {words.ranks(row)}, {row.global_batch:g} samples a step in all: {words.of(row)}.",
        point=["world_size"],
    )  # fmt: skip


def precision(gains: pd.DataFrame) -> list[Value]:
    """`throughput.gain.bf16`: over fp32, on one device; `gains` as of `scaling.precision_gain`."""
    return values(
        gains, "throughput.gain", "gain", "ratio",
        lambda row: f"Throughput in {row.precision} over that in fp32, of one process without a process group, "
        f"{row.global_batch:g} samples a step: {words.of(row)}.",
        point=["precision"],
    )  # fmt: skip


def before_after(beside: pd.DataFrame) -> list[Value]:
    """`optimized.gain.12.bf16.batch-8`, and of both loops `optimized.epoch-seconds...`, `optimized.utilisation...`, before it
    `optimized.epoch-seconds-before...`; `beside` as of `scaling.before_after`."""
    beside = beside[beside.other].drop(columns=["settings"])
    found = []
    for name, column, unit, says in (
        ("gain", "gain", "ratio", "Throughput of the optimised loop over that of the loop before it"),
        ("throughput", "throughput", "samples/s", "Throughput of the optimised loop"),
        ("throughput-before", "throughput_before", "samples/s", "Throughput of the loop before it was optimised"),
        ("epoch-seconds", "epoch_seconds", "s", "Time of an epoch of the optimised loop"),
        ("epoch-seconds-before", "epoch_seconds_before", "s", "Time of an epoch of the loop before it was optimised"),
        ("utilisation", "utilisation", "share", "Processor time over time and cores of a device, of the optimised loop"),
        ("utilisation-before", "utilisation_before", "share", "Processor time over time and cores of a device, of the loop before it was optimised"),
    ):  # fmt: skip
        found += values(
            beside, f"optimized.{name}", column, unit,
            lambda row, says=says: f"{says}: {words.ranks(row)}, {row.global_batch:g} samples a step in all, {words.of(row)}.",
            point=["world_size"], ends=("low", "high") if name == "gain" else None,
        )  # fmt: skip
    return found


def precision_efficiency(ratios: pd.DataFrame) -> list[Value]:
    """`strong.efficiency-ratio.2.bf16`: an efficiency over that in fp32; `ratios` as of `scaling.efficiency_ratio`."""
    return [
        value
        for kind, own in _kinds(ratios)
        for value in values(
            own, f"{kind}.efficiency-ratio", "ratio", "ratio",
            lambda row: f"{row.kind.capitalize()} scaling efficiency of {words.ranks(row)} in {row.precision} over that in fp32, "
            f"{words.batch(row)}: {words.of(row)}.",
            point=["world_size", "precision"],
        )
    ]  # fmt: skip


def wrong(findings: pd.DataFrame) -> list[Value]:
    """`findings.count`, and of each kind `findings.repeats-spread`; `findings` as of `findings.findings`."""
    found = [counted("findings.count", len(findings), "count", "Points that are too good, too bad or too uncertain.")]
    for kind, own in findings.groupby("finding"):
        [name] = names(pd.DataFrame({"finding": [kind]}), "findings", ["finding"])
        found.append(counted(name, len(own), "count", f"Findings of the kind: {kind}."))
    return found


def _kinds(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for kind in KINDS:
        if len(own := frame[frame.kind == kind]):
            yield kind, own


def _against(row, name: str) -> str:
    what = "efficiency" if name == "efficiency" else "speed-up"
    base = "one process without a process group" if row.baseline == "none" else f"{row.baseline.upper()} on one rank"
    return f"{row.kind.capitalize()} scaling {what} of {words.ranks(row)} over {base}, {words.batch(row)}: {words.of(row)}."


def _of(row, what: str) -> str:
    return f"{what} of {words.ranks(row)}, {row.kind} scaling, {words.batch(row)}: {words.of(row)}."


def shares(table: pd.DataFrame) -> list[Value]:
    """`share.deviation.0-2.device-batch-512`: by how much a step on a share of a core is longer than 1/share says; of one
    rank without a group. `table` as of `shares.against_whole_cores`."""
    alone = table[(table.parallel == "none") & (table.cores < 1)]

    def says(row) -> str:
        return (
            f"Step of {row.batch_per_device:g} samples on {row.cores:g} of a core, given every {1e3 * row.period:g} ms: how "
            f"much longer than 1/share of the whole core's step, {words.of(row)}."
        )

    return values(
        alone,
        "share.deviation",
        "deviation",
        "share",
        says,
        point=["cores"],
        ends=("deviation_low", "deviation_high"),
    )
