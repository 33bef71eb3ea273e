"""A ladder's and a factorial's tables as people read them: numbers with their intervals as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hpc_utils.analyze import equivalence
from hpc_utils.analyze.ladder import PHASES

from .tables import ABSENT, MIB


def factor(value: float, low: float, high: float) -> str:
    """`1.34 (1.30 to 1.38)`; without an interval `1.34 (a single run)`."""
    if pd.isna(value):
        return ABSENT
    return f"{value:.2f}" + (f" ({low:.2f} to {high:.2f})" if pd.notna(low) else " (a single run)")


def knobs(parameters: Mapping[str, Any]) -> str:
    """`precision=bf16`, as `hpc run -p` takes it."""
    return ", ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in parameters.items()
    )


def steps(gains: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """One row a step: its gains, costs and verdict. `gains` as of `ladder.gains`, `judged` as of `equivalence.table`."""
    verdicts = {(row["step"], row["measure"]): equivalence.words(row) for row in judged.to_dict("records")}
    rows = []
    for row in gains.to_dict("records"):
        numbers = {
            name: factor(row[name], row[f"{name}_low"], row[f"{name}_high"])
            for name in ("alone", "marginal", "together")
        }
        rows.append(
            {
                "step": row["step"],
                "knob": knobs(row["parameters"]),
                "alone": numbers["alone"],
                "after those above": numbers["marginal"],
                "all up to it": numbers["together"],
                "memory": ABSENT if pd.isna(row["memory"]) else f"{row['memory'] - 1:+.1%}",
                "start (s)": ABSENT if pd.isna(row["warmup"]) else f"{row['warmup']:+.2f}",
                "accuracy": verdicts.get((row["step"], "accuracy"), ABSENT),
                "loss": verdicts.get((row["step"], "loss"), ABSENT),
                "not applicable": row["why"],
            }
        )
    table = pd.DataFrame(rows).set_index("step")
    return table if table["not applicable"].any() else table.drop(columns="not applicable")


def story(row: Mapping[str, Any], parts: pd.DataFrame, judged: pd.DataFrame, before: str) -> str:
    """A step in Markdown: what it changes and why, what its profile was before (on the rung `before`) and after, what it
    gives, what it costs, and whether the model learns as well. `row` of `ladder.gains`, `parts` of `ladder.profile`."""
    head = f"### {row['step']}\n\n{row['about']} (`{knobs(row['parameters'])}`)\n\n"
    if row["why"]:
        return head + f"**Not applicable here:** {row['why']}."
    if pd.isna(row["marginal"]):
        return head + "**Not measured.**"
    profile = parts.set_index("step")
    lines = []
    if {before, row["step"]} <= set(profile.index):
        one, other = profile.loc[before], profile.loc[row["step"]]
        each = (f"{phase} {one[phase]:.3g} → {other[phase]:.3g}" for phase in PHASES if pd.notna(one[phase]))
        lines.append(f"- **profile** (ms a step): {', '.join(each)}")
    lines.append(
        f"- **gain**: {factor(row['marginal'], row['marginal_low'], row['marginal_high'])} times the throughput"
    )
    lines.append(f"- **cost**: memory {row['memory'] - 1:+.1%}, start {row['warmup']:+.2f} s")
    own = judged[judged.step == row["step"]].to_dict("records")
    lines += [f"- **{one['measure']}** against the plain loop: {equivalence.words(one)}" for one in own]
    return head + "\n".join(lines)


def rungs(speeds: pd.DataFrame) -> pd.DataFrame:
    """One row a cumulative rung, in absolute numbers. `speeds` as of `ladder.speeds`."""
    return pd.DataFrame(
        {
            "throughput (samples/s)": [f"{row.throughput:,.0f}" + ("" if pd.isna(row.low) else f" ({row.low:,.0f} to {row.high:,.0f})")
                                       for row in speeds.itertuples()],
            "step (ms)": [f"{value:.3g}" for value in speeds.step_ms],
            "start (s)": [f"{value:.2f}" for value in speeds.warmup],
            "peak memory (MiB)": [f"{value / MIB:,.0f}" for value in speeds.memory_bytes],
            "repeats": speeds.repeats.to_list(),
        },
        index=pd.Index(speeds.label, name="up to"),
    )  # fmt: skip
