"""A ladder's and a factorial's tables as people read them: numbers with their intervals as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hpc_utils.analyze import equivalence, factorial, ladder
from hpc_utils.analyze.model.step import PHASES

from .tables import ABSENT, MIB, measured

MACHINE = ["hardware_id", "digest", "load", "date"]  # of a table that `make bench` left: alike in all its rows


def factor(value: float, low: float, high: float) -> str:
    """`1.34 [1.30, 1.38]`, or without an interval `1.34`."""
    if pd.isna(value):
        return ABSENT
    return f"{value:.2f}" + (f" [{low:.2f}, {high:.2f}]" if pd.notna(low) else "")


def judged_factor(value: float, low: float, high: float) -> str:
    """`1.34 [1.30, 1.38], faster`; without an interval `1.34, a single run`."""
    return ABSENT if pd.isna(value) else f"{factor(value, low, high)}, {ladder.verdict(low, high)}"


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
            name: judged_factor(row[name], row[f"{name}_low"], row[f"{name}_high"])
            for name in ("alone", "marginal", "together")
        }
        rows.append(
            {
                "step": row["step"],
                "knob": knobs(row["parameters"]),
                "alone": numbers["alone"],
                "after those above": numbers["marginal"],
                "all up to it": numbers["together"],
                "memory": ABSENT if pd.isna(row["memory"]) else f"{100 * (row['memory'] - 1):+.1f} %",
                "start (s)": ABSENT if pd.isna(row["warmup"]) else f"{row['warmup']:+.2f}",
                "accuracy": verdicts.get((row["step"], "accuracy"), ABSENT),
                "loss": verdicts.get((row["step"], "loss"), ABSENT),
                "not applicable": row["why"],
            }
        )
    table = pd.DataFrame(rows).set_index("step")
    return table if table["not applicable"].any() else table.drop(columns="not applicable")


def headline(best: ladder.Best, judged: pd.DataFrame) -> str:
    """The fastest rung in a sentence, and whether it learns as well. `judged`: its rows of `equivalence.table`."""
    if not best.steps:
        return "No rung was measured to be faster than the plain loop."
    learnt = [f"{row['measure']} {equivalence.words(row)}" for row in judged.to_dict("records")]
    return (
        f"**{factor(*best.gain[:3])} times** the plain loop's throughput ({ladder.verdict(*best.gain[1:3])}; pairs of runs: "
        f"{best.gain.repeats}), by {' + '.join(best.steps)}. Against the plain loop: "
        f"{'; '.join(learnt) or 'neither accuracy nor loss was recorded'}."
    )


def story(row: Mapping[str, Any], parts: pd.DataFrame, judged: pd.DataFrame) -> str:
    """A step in Markdown: what it changes and why, what its profile was before (on the rung `row["before"]`) and after, what
    it gives, what it costs, and whether the model learns as well. `row` of `ladder.gains`, `parts` of `ladder.profile`."""
    head = f"### {row['step']}\n\n{row['about']} (`{knobs(row['parameters'])}`)\n\n"
    if row["why"]:
        return head + f"**Not applicable here:** {row['why']}."
    profile, before = parts.set_index("step"), row["before"]
    lines = []
    if {before, row["step"]} <= set(profile.index):
        one, other = profile.loc[before], profile.loc[row["step"]]
        each = (f"{phase} {one[phase]:.3g} → {other[phase]:.3g}" for phase in PHASES if pd.notna(one[phase]))
        lines.append(f"- **profile** (ms a step): {', '.join(each)}")
    for name, against in (("marginal", before), ("together", "the plain loop")):
        same = name == "marginal" and row["marginal"] == row["together"]  # the rung before is the plain loop
        if pd.notna(row[name]) and not same:
            told = judged_factor(row[name], row[f"{name}_low"], row[f"{name}_high"])
            lines.append(f"- **throughput**, times that of {against}: {told}")
    costs = {"memory": f"{row['memory'] - 1:+.1%}", "start": f"{row['warmup']:+.2f} s"}
    if told := [f"{name} {cost}" for name, cost in costs.items() if "nan" not in cost]:
        lines.append(f"- **cost**, against {before}: {', '.join(told)}")
    own = judged[judged.step == row["step"]].to_dict("records")
    lines += [f"- **{one['measure']}** against the plain loop: {equivalence.words(one)}" for one in own]
    return head + ("\n".join(lines) or "**Not measured.**")


def chosen(best: factorial.Best, target: float) -> str:
    """A factorial's fastest point and the verdict on its target, in Markdown."""
    verdict = f"Target, at least {1 + target:.2f} times: **{best.verdict}** ({best.why})."
    if best.point == best.reference:
        return f"No point is faster than {knobs(best.reference)}. {verdict}"
    interval = pd.notna(best.low)
    return (
        f"The fastest point is **{knobs(best.point)}**, at {factor(best.gain, best.low, best.high)} times the throughput of "
        f"{knobs(best.reference)}. {verdict}"
        + (" The interval holds for all points at once, as this one was chosen among them." if interval else "")
    )


def bench(table: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """(on which hardware, when and by which code, the rest) of a table that `make bench` left, without empty columns."""
    shared = [name for name in MACHINE if name in table and table[name].notna().any()]
    told = ", ".join(
        f"{name.replace('_', ' ')} {' and '.join(map(str, table[name].dropna().unique()))}" for name in shared
    )
    return told, table.drop(columns=shared).dropna(axis="columns", how="all")


def rungs(speeds: pd.DataFrame) -> pd.DataFrame:
    """One row a cumulative rung, in absolute numbers. `speeds` as of `ladder.speeds`."""
    named = speeds.rename(columns={"low": "throughput_low", "high": "throughput_high"})
    return pd.DataFrame(
        {
            "throughput (samples/s)": measured(named, "throughput", speeds.repeats == 1),
            "step (ms)": [f"{value:.3g}" for value in speeds.step_ms],
            "start (s)": [f"{value:.2f}" for value in speeds.warmup],
            "peak memory (MiB)": [f"{value / MIB:,.0f}" for value in speeds.memory_bytes],
            "repeats": speeds.repeats.to_list(),
        },
        index=pd.Index(speeds.label, name="up to"),
    )
