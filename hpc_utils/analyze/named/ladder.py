"""A ladder as named values: `ladder.optimization-cpu.gain.bf16` (in its place), `.alone.bf16`, `.together.bf16`, `.best.gain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hpc_utils.analyze import equivalence, ladder
from hpc_utils.analyze.value import Value
from hpc_utils.analyze.work import PHASES

from .naming import counted, slug, values

# Of each gain: its column in `ladder.gains`, and what it is a ratio to.
GAINS = {
    "gain": ("marginal", "that of the rung before it"),
    "alone": ("alone", "the plain loop's, this change alone"),
    "together": ("together", "the plain loop's, all changes up to it"),
}


def gains(table: pd.DataFrame, study: str) -> list[Value]:
    """`ladder.<study>.gain.<step>`, `.alone.`, `.together.`, each with `.verdict-`; `.memory.`, `.warmup.`; `table` as of `ladder.gains`."""
    found, stem = [], f"ladder.{slug(study)}"
    for name, (column, against) in GAINS.items():
        own = table[table[column].notna()]
        own = own.assign(
            repeats=own.repeats.where(own.repeats > 0, own[f"{column}_runs"].map(len) // 2).astype(int),
            verdict=[ladder.verdict(*ends) for ends in zip(own[f"{column}_low"], own[f"{column}_high"], strict=True)],
        )
        kept = {"point": ["step"], "runs": (f"{column}_runs",)}

        def of(row, against=against) -> str:
            return f"Throughput with the change {row.step} over {against}, in the study {study}"

        found += values(own, f"{stem}.{name}", column, "ratio", lambda row, of=of: f"{of(row)}.",
                        ends=(f"{column}_low", f"{column}_high"), **kept)  # fmt: skip
        found += values(own, f"{stem}.{name}-verdict", "verdict", "text", lambda row, of=of: f"What the interval tells: {of(row)}.",
                        ends=None, repeats=None, **kept)  # fmt: skip
    cumulative = table[table.marginal.notna()]
    for name, column, unit, what in (
        ("memory", "memory", "ratio", "Peak memory with the change {} over that of the rung before it"),
        ("start", "warmup", "s", "Seconds before the clock starts that the change {} adds to the rung before it"),
    ):
        found += values(
            cumulative, f"{stem}.{name}", column, unit, lambda row, what=what: f"{what.format(row.step)}, in the study {study}.",
            point=["step"], ends=None, repeats=None, runs=("marginal_runs",),
        )  # fmt: skip
    return found


def best(found: ladder.Best, learnt: pd.DataFrame, study: str) -> list[Value]:
    """`ladder.<study>.best.gain`, `.best.name`, `.best.steps`, `.best.verdict`, `.best.accuracy`, `.best.loss` (words); `learnt`: the
    rung's rows of `equivalence.table`."""
    stem, of = f"ladder.{slug(study)}.best", f"of the fastest rung of the study {study}"
    told = {
        "name": (found.name, "Name"),
        "steps": (" + ".join(found.steps) or "none", "The changes"),
        "verdict": (ladder.verdict(*found.gain[1:3]), "What the interval tells of the throughput"),
    } | {
        row["measure"]: (equivalence.words(row), f"Whether the {row['measure']} is that of the plain loop,")
        for row in learnt.to_dict("records")
    }
    return [
        Value(f"{stem}.gain", found.gain.value, "ratio", f"Throughput {of} over the plain loop's.", found.gain.low, found.gain.high,
              found.gain.repeats, found.runs),
        *(counted(f"{stem}.{name}", word, "text", f"{what} {of}.", found.runs) for name, (word, what) in told.items()),
    ]  # fmt: skip


def speeds(table: pd.DataFrame, study: str) -> list[Value]:
    """`ladder.<study>.throughput.<step>`, `.step-seconds.`, `.peak-memory.`, `.warmup.`; the plain loop is `plain`; `table` as of
    `ladder.speeds`."""
    found, stem = [], f"ladder.{slug(study)}"
    for name, column, unit, scale, ends, what in (
        ("throughput", "throughput", "samples/s", 1.0, ("low", "high"), "Training throughput"),
        ("step-seconds", "step_ms", "s", 1e-3, None, "Median time of a step"),
        ("peak-memory", "memory_bytes", "B", 1.0, None, "Median peak memory"),
        ("warmup", "warmup", "s", 1.0, None, "Median time before the clock starts, compilation included,"),
    ):
        found += values(
            table, f"{stem}.{name}", column, unit, lambda row, what=what: f"{what} {_rung(row.label)}, in the study {study}.",
            point=["label"], ends=ends, scale=scale,
        )  # fmt: skip
    return found


def phases(table: pd.DataFrame, study: str) -> list[Value]:
    """`ladder.<study>.phase.<phase>.<step>` (s); `table` as of `ladder.profile`."""
    return [
        value
        for phase in PHASES
        for value in values(
            table, f"ladder.{slug(study)}.phase.{phase}", phase, "s",
            lambda row, phase=phase: f"Part '{phase}' of a mean step {_rung(row.step)}, in the study {study}.",
            point=["step"], ends=None, scale=1e-3, repeats=None,
        )
    ]  # fmt: skip


def learnt(table: pd.DataFrame, study: str) -> list[Value]:
    """`ladder.<study>.accuracy.<step>` (in words), its `-difference`, the 90 % interval of that as `-difference-from` and `-to`, the
    means `-reached`; likewise of the loss; `table` as of `equivalence.table`. The 90 % are the test's: no 95 % interval stands there."""
    found: list[Value] = []
    for measure, rows in table.groupby("measure", sort=False):
        stem, rows = f"ladder.{slug(study)}.{measure}", rows.drop_duplicates("step")
        rows = rows.assign(said=[equivalence.words(row) for row in rows.to_dict("records")])
        unit = "share" if measure == "accuracy" else "ratio"
        apart = "points" if measure == "accuracy" else "share"
        relative = "" if measure == "accuracy" else ", relative to the plain loop's"

        def of(row, measure=measure) -> str:
            return f"the {measure} {_rung(row.step)} and that of the plain loop, paired by seed, in the study {study}"

        for name, column, own, says, repeats in (
            ("", "said", "text", "Whether {} are equal within the margin.", None),
            ("-difference", "difference", apart, "Mean difference between {}" + relative + ".", "repeats"),
            ("-difference-from", "low", apart, "Lower end of the 90 % interval of the difference between {}" + relative + ".", "repeats"),
            ("-difference-to", "high", apart, "Upper end of the 90 % interval of the difference between {}" + relative + ".", "repeats"),
            ("-reached", "changed", unit, "Mean at the end, of the first of {}.", "repeats"),
        ):  # fmt: skip
            found += values(
                rows, f"{stem}{name}", column, own, lambda row, says=says, of=of: says.format(of(row)), point=["step"], ends=None,
                repeats=repeats,
            )  # fmt: skip
        first = rows.iloc[0]
        found += [
            counted(f"{stem}-reached.plain", first.plain, unit, f"Mean {measure} of the plain loop at the end, in the study {study}.",
                    first.runs, repeats=int(first.repeats)),
            counted(f"{stem}-margin", first.margin, apart, f"Margin{relative} within which the {measure} counts as equal, said beforehand "
                    f"in the study {study}.", first.runs),
        ]  # fmt: skip
    return found


def floor(table: pd.DataFrame, study: str) -> list[Value]:
    """`ladder.<study>.flops.<step>` (operations/s of a device), `.mfu.<step>` where a peak is known, `.flops-per-sample`; `table` as of
    `roofline.attained`, with `step`."""
    if table.empty:
        return []
    found = []
    for name, column, unit, what in (
        ("flops", "flops_per_second", "flop/s", "The model's operations a second on a device"),
        ("mfu", "mfu", "share", "Share of the device's peak that the model's operations are"),
    ):
        found += values(
            table, f"ladder.{slug(study)}.{name}", column, unit,
            lambda row, what=what: f"{what} {_rung(row.step)}, in the study {study}.",
            point=["step"], ends=(f"{column}_low", f"{column}_high"),
        )  # fmt: skip
    first: Mapping[str, Any] = table.iloc[0]
    return [*found, counted(f"ladder.{slug(study)}.flops-per-sample", float(first["flops_per_sample"]), "flop",
                            f"Operations of the model on a sample, in the study {study}.", first["runs"])]  # fmt: skip


def _rung(step: str) -> str:
    return "of the plain loop" if step in ("plain", "plain loop") else f"on the rung up to {step}"
