"""An ablation's tables and sentences: numbers with their intervals."""

from __future__ import annotations

from functools import partial

import pandas as pd

from hpc_utils.analyze import ablation, stats

from .formatting import ABSENT, bracketed
from .quantities import quantity
from .tables import Row, Writer, text_table

MACHINE = ["hardware_id", "digest", "load", "date"]  # columns of a bench table with one value in all rows


def factor(row: Row, name: str) -> str:
    """`1.34 [1.30, 1.38], faster`: the factor in the column `name` with its interval, and the verdict on it."""
    ends = [row[end] for end in stats.columns(name)]
    written = bracketed(*ends, "{:.2f}".format)
    return f"{written}, {ablation.verdict(*ends[1:])}" if written else ABSENT


def _more_memory(row: Row) -> str:
    return ABSENT if pd.isna(row["memory"]) else f"{100 * (row['memory'] - 1):+.1f} %"


def _later_start(row: Row) -> str:
    return ABSENT if pd.isna(row["warmup"]) else f"{row['warmup']:+.2f}"


def steps(gains: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """A row for each step: gains, costs and verdict. `gains`: `Ladder.gains`; `judged`: `Ladder.learnt`."""
    verdicts = {(row["step"], row["measure"]): row["words"] for row in judged.to_dict("records")}
    columns: dict[str, Writer] = {
        "step": lambda row: row["step"],
        "option": lambda row: row["parameters"],
        "alone": partial(factor, name="alone"),
        "after those above": partial(factor, name="marginal"),
        "all up to it": partial(factor, name="together"),
        "memory": _more_memory,
        "start (s)": _later_start,
        "accuracy": lambda row: verdicts.get((row["step"], "accuracy"), ABSENT),
        "loss": lambda row: verdicts.get((row["step"], "loss"), ABSENT),
        "not applicable": lambda row: row["why"],
    }
    return text_table(gains, columns)


def headline(best: ablation.Best, judged: pd.DataFrame) -> str:
    """The fastest configuration in a sentence, and whether it learns as well. `judged`: its rows of `Ladder.learnt`."""
    if not best.steps:
        return "No configuration was measured to be faster than the plain loop."
    learnt = "; ".join(f"{row['measure']} {row['words']}" for row in judged.to_dict("records"))
    return (
        f"**{' + '.join(best.steps)}**: throughput over the plain loop's {factor(best.gain.columns('gain'), 'gain')} "
        f"(pairs of runs: {best.gain.repeats}). Against the plain loop: {learnt or 'neither accuracy nor loss was recorded'}."
    )


def story(row: Row, parts: pd.DataFrame, judged: pd.DataFrame) -> str:
    """A step in Markdown: the change and its reason, the phases before and after, its gain and cost, and whether the model learns
    as well. `row`: of `Ladder.gains`; `parts`: `Ladder.phases`."""
    head = f"### {row['step']}\n\n{row['about']} (`{row['parameters']}`)\n\n"
    if row["why"]:
        return head + f"**Not applicable here:** {row['why']}."
    profile = parts.set_index("step")
    before = row["before"]
    lines = []
    if {before, row["step"]} <= set(profile.index):
        phases = profile.loc[[before, row["step"]], list(ablation.PARTS)].dropna(axis="columns", how="all")
        phase_changes = (
            f"{quantity(phase).label} {' → '.join(map(_milliseconds, values))}" for phase, values in phases.items()
        )
        lines.append(f"**profile** (ms a step): {', '.join(phase_changes)}")
    for name, against in (("marginal", before), ("together", "the plain loop")):
        lines.append(f"**throughput**, times that of {against}: {factor(row, name)}")
    lines.append(f"**cost**, against {before}: memory {_more_memory(row)}, start {_later_start(row)} s")
    judgements = judged[judged.step == row["step"]].to_dict("records")
    lines += [f"**{judgement['measure']}** against the plain loop: {judgement['words']}" for judgement in judgements]
    return head + "\n".join(f"- {line}" for line in lines)


def _milliseconds(value: float) -> str:
    return ABSENT if pd.isna(value) else f"{1e3 * value:.3g}"


def bench(rows: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """(hardware, date and code in words, all other columns that are not empty) of a table of `make bench`."""
    rows = rows.dropna(axis="columns", how="all")
    shared = [name for name in MACHINE if name in rows]
    values = (f"{name.replace('_', ' ')} {' and '.join(map(str, rows[name].dropna().unique()))}" for name in shared)
    return ", ".join(values), rows.drop(columns=shared)
