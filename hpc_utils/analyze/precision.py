"""How precise the headline ratios of a study are, which configurations need further repeats, and what the machine did meanwhile."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from hpc_utils.records import Records
from hpc_utils.records.study import StudyIndex, StudyRun

from . import scaling, stats
from .ablation import Ladder
from .compare import scaled
from .scaling import ROUNDS
from .table import tabled

COLUMNS = ["compared", *stats.columns("value"), "half_width", "repeats", *ROUNDS, "runs"]


@tabled(
    "half-widths",
    "Precision of the headline ratios.",
    "compared value half_width repeats rounds within between",
    measure="value",
)
def headline_ratios(records: Records, study: StudyIndex) -> pd.DataFrame:
    """One row per efficiency on several ranks (`scaling.headline`) and gain of an ablation, the widest interval first.

    Columns: compared (in words), value, value_low, value_high (95 %), half_width (of a ratio above 1 relative to it; NaN: no interval),
    repeats; rounds, within and between as of `scaling.efficiency`; runs (of both sides).
    """
    table = scaling.headline(scaling.efficiency(records.runs))
    efficiencies = table[table.world_size > 1]
    texts = [
        f"efficiency on {ranks} ranks ({name})"
        for ranks, name in zip(efficiencies.world_size, scaling.curve_names(efficiencies), strict=True)
    ]
    run_ids = [scaling.unique(*sides) for sides in efficiencies[scaling.BEHIND].to_numpy()]
    rows = scaled(efficiencies, "value", "efficiency").assign(compared=texts, runs=run_ids)
    if study.ablation:
        gains = Ladder(records, study).gains
        parts = [
            scaled(gains, "value", name).assign(
                compared="gain of " + gains.step + f" {name}", runs=gains[f"{name}_runs"]
            )
            for name in ("alone", "together")
        ]
        parts = pd.concat(parts).sort_index(kind="stable").dropna(subset="value")
        rows = pd.concat([rows, parts[parts.repeats > 0]])
    rows = rows.reindex(columns=COLUMNS)
    rows["half_width"] = (rows.value_high - rows.value_low) / 2 / rows.value.clip(lower=1)
    return rows.sort_values("half_width", ascending=False, na_position="first", ignore_index=True)


def further_repeats(ratios: pd.DataFrame, study: StudyIndex, precision: float, at_most: int) -> dict[str, int]:
    """{a configuration's run of repeat 1: the repeats that it needs} for each that a ratio wider than `precision` compares.

    An interval narrows with the square root of the repeats; without one, a further repeat gives it.
    """
    wide = ratios[~(ratios.half_width <= precision)]
    needed = np.ceil(wide.repeats * (wide.half_width / precision) ** 2).fillna(wide.repeats + 1).clip(upper=at_most)
    further = {}
    for _, group in itertools.groupby(sorted(study.runs, key=_configuration), _configuration):
        members = list(group)  # of each layout, if there are several
        run_ids = {run.run_id for run in members}
        number = needed[[not run_ids.isdisjoint(compared) for compared in wide.runs]].max()
        if number > max(run.repeat for run in members):
            further |= {run.run_id: int(number) for run in members if run.repeat == 1}
    return further


def sentence(ratios: pd.DataFrame, precision: float | None) -> str:
    """Whether all of `headline_ratios` have the precision that a study asks for; "" if it asks for none, or there are none."""
    if precision is None or ratios.empty:
        return ""
    widest = ratios.iloc[0]
    if widest.half_width <= precision:
        reached = f"the widest interval has {widest.half_width:.3f}"
    else:
        width = "no interval" if pd.isna(widest.half_width) else f"{widest.half_width:.3f}"
        reached = f"not reached: the {widest.compared} has {width}, and the repeats or the time of the study are over"
    return (
        f"Half-width asked for: {precision:g}; {reached}. The study repeats until then, never until a target is decided, which "
        "would favour one verdict."
    )


def machine_speed(rounds: pd.DataFrame) -> pd.DataFrame:
    """The machine's speed in each round of turns: `rounds` as of `records.load_rounds`.

    Columns: session, round, moment (s since the first), speed (mean over the runs of their own mean time of a sample over that in this
    round: 1 is the session's mean), configurations (that had a turn).
    """
    pace = rounds.samples / rounds.seconds
    by_run = rounds.groupby(["session", "run_id"])
    mean_pace = by_run.samples.transform("sum") / by_run.seconds.transform("sum")
    table = rounds.assign(logs=np.log(pace / mean_pace), moment=rounds.ended - rounds.ended.min())
    table = table[table["round"] > 0].groupby(["session", "round"])
    table = table.agg(moment=("moment", "mean"), logs=("logs", "mean"), configurations=("run_id", "nunique"))
    table = table.assign(speed=np.exp(table.logs)).drop(columns="logs").reset_index()
    return table.sort_values("moment", ignore_index=True)


def _configuration(run: StudyRun) -> tuple:
    """Equal for its repeats."""
    parameters = {name: value for name, value in run.parameters.items() if name not in ("repeat", "seed")}
    return run.series, run.ranks, repr(sorted(parameters.items()))
