"""An ablation's and a factorial's tables and sentences: numbers with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hpc_utils.analyze import ablation, factorial
from hpc_utils.analyze.model.step import PHASES

from .formatting import ABSENT
from .tables import MIB, Row, Writer, measured, table

MACHINE = ["hardware_id", "digest", "load", "date"]  # columns of a bench table with one value in all rows


def factor(value: float, low: float, high: float) -> str:
    """`1.34 [1.30, 1.38]`, or `1.34` without an interval."""
    if pd.isna(value):
        return ABSENT
    return f"{value:.2f}" + (f" [{low:.2f}, {high:.2f}]" if pd.notna(low) else "")


def judged_factor(row: Row, name: str) -> str:
    """`1.34 [1.30, 1.38], faster`: the factor in the column `name`, and the verdict on it."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return ABSENT if pd.isna(value) else f"{factor(value, low, high)}, {ablation.verdict(low, high)}"


def options(parameters: Mapping[str, Any]) -> str:
    """`precision=bf16`, as `hpc run -p` takes it."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in parameters.items()}
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _form(column: str, form: str, offset: float = 0) -> Writer:
    return lambda row: ABSENT if pd.isna(row[column]) else form.format(row[column] + offset)


def steps(gains: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """A row for each step: gains, costs and verdict. `gains`: `ablation.gains`; `judged`: `ablation.equivalence`."""
    verdicts = {(row["step"], row["measure"]): ablation.words(row) for row in judged.to_dict("records")}
    columns: dict[str, Writer] = {
        "step": lambda row: row["step"],
        "knob": lambda row: options(row["parameters"]),
        "alone": lambda row: judged_factor(row, "alone"),
        "after those above": lambda row: judged_factor(row, "marginal"),
        "all up to it": lambda row: judged_factor(row, "together"),
        "memory": lambda row: ABSENT if pd.isna(row["memory"]) else f"{100 * (row['memory'] - 1):+.1f} %",
        "start (s)": _form("warmup", "{:+.2f}"),
        "accuracy": lambda row: verdicts.get((row["step"], "accuracy"), ABSENT),
        "loss": lambda row: verdicts.get((row["step"], "loss"), ABSENT),
        "not applicable": lambda row: row["why"],
    }
    if not gains.why.any():
        del columns["not applicable"]
    return table(gains, columns).set_index("step")


def cumulative(speeds: pd.DataFrame) -> pd.DataFrame:
    """A row for each cumulative configuration, in absolute numbers. `speeds`: `ablation.speeds`."""
    columns: dict[str, Writer] = {
        "up to": lambda row: row["label"],
        "throughput (samples/s)": measured("throughput"),
        "step (ms)": _form("step_ms", "{:.3g}"),
        "start (s)": _form("warmup", "{:.2f}"),
        "peak memory (MiB)": lambda row: f"{row['memory_bytes'] / MIB:,.0f}",
        "repeats": lambda row: str(row["repeats"]),
    }
    return table(
        speeds.rename(columns={f"{end}": f"throughput_{end}" for end in ("low", "high")}), columns
    ).set_index("up to")


def headline(best: ablation.Best, judged: pd.DataFrame) -> str:
    """The fastest configuration in a sentence, and whether it learns as well. `judged`: its rows of `ablation.equivalence`."""
    if not best.steps:
        return "No configuration was measured to be faster than the plain loop."
    learnt = [f"{row['measure']} {ablation.words(row)}" for row in judged.to_dict("records")]
    return (
        f"**{factor(*best.gain[:3])} times** the plain loop's throughput ({ablation.verdict(*best.gain[1:3])}; pairs of runs: "
        f"{best.gain.repeats}), by {' + '.join(best.steps)}. Against the plain loop: "
        f"{'; '.join(learnt) or 'neither accuracy nor loss was recorded'}."
    )


def story(row: Row, parts: pd.DataFrame, judged: pd.DataFrame) -> str:
    """A step in Markdown: the change and its reason, the phases before and after, its gain and cost, and whether the model learns
    as well. `row`: of `ablation.gains`; `parts`: `ablation.profile`."""
    head = f"### {row['step']}\n\n{row['about']} (`{options(row['parameters'])}`)\n\n"
    if row["why"]:
        return head + f"**Not applicable here:** {row['why']}."
    profile, before = parts.set_index("step"), row["before"]
    lines = []
    if {before, row["step"]} <= set(profile.index):
        one, other = profile.loc[before], profile.loc[row["step"]]
        each = (f"{phase} {one[phase]:.3g} → {other[phase]:.3g}" for phase in PHASES if pd.notna(one[phase]))
        lines.append(f"- **profile** (ms a step): {', '.join(each)}")
    for name, against in (("marginal", before), ("together", "the plain loop")):
        same = name == "marginal" and row["marginal"] == row["together"]  # after the plain loop
        if pd.notna(row[name]) and not same:
            lines.append(f"- **throughput**, times that of {against}: {judged_factor(row, name)}")
    costs = {"memory": f"{row['memory'] - 1:+.1%}", "start": f"{row['warmup']:+.2f} s"}
    if known := [f"{name} {cost}" for name, cost in costs.items() if "nan" not in cost]:
        lines.append(f"- **cost**, against {before}: {', '.join(known)}")
    own = judged[judged.step == row["step"]].to_dict("records")
    lines += [f"- **{one['measure']}** against the plain loop: {ablation.words(one)}" for one in own]
    return head + ("\n".join(lines) or "**Not measured.**")


def chosen(best: factorial.Best, target: float) -> str:
    """A factorial's fastest point and the verdict on its target, in Markdown."""
    verdict = f"Target, at least {1 + target:.2f} times: **{best.verdict}** ({best.why})."
    if best.point == best.reference:
        return f"No point is faster than {options(best.reference)}. {verdict}"
    return (
        f"The fastest point is **{options(best.point)}**, at {factor(best.gain, best.low, best.high)} times the throughput of "
        f"{options(best.reference)}. {verdict}"
        + (" The interval holds for all points at once, as this one was chosen among them." * pd.notna(best.low))
    )


def bench(rows: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """(hardware, date and code in words, all other columns that are not empty) of a table of `make bench`."""
    shared = [name for name in MACHINE if name in rows and rows[name].notna().any()]
    values = {name.replace("_", " "): " and ".join(map(str, rows[name].dropna().unique())) for name in shared}
    about = ", ".join(f"{name} {value}" for name, value in values.items())
    return about, rows.drop(columns=shared).dropna(axis="columns", how="all")
