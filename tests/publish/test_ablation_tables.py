"""An ablation in words: gains, costs and verdicts of each step."""

from __future__ import annotations

import pandas as pd

from hpc_utils.publish import ablation_tables
from tests.analyze import ladders


def test_steps_have_gains_costs_and_verdicts() -> None:
    changes = {"whole-batches": 2.3, "bf16": 1.3, "cuda-graphs": 1.1}
    study, runs, epochs = ladders.ladder(changes, barred={"cuda-graphs": "no GPU"})
    ladder = ladders.of(runs, study, epochs)
    table = ablation_tables.steps(ladder.gains, ladder.learnt).set_index("step")
    first = table.loc["whole-batches"]
    assert first.option == "whole-batches=true" and first.accuracy == "equal within 0.5 points"
    assert first["all up to it"].startswith("2.30 [2.30, 2.30]")
    assert (first.memory, first["start (s)"]) == ("+10.0 %", "+1.00")
    assert table.loc["cuda-graphs", "not applicable"] == "no GPU" and table.loc["bf16", "alone"].startswith("1.30 [")
    headline = ablation_tables.headline(ladder.best, ladder.learnt_of_best)
    assert f"{ladder.best.gain.value:.2f} [" in headline


def test_a_bench_s_table_names_its_machine_once_and_shows_no_empty_columns() -> None:
    about = {"hardware_id": ["h"] * 2, "date": ["today"] * 2}
    rows = pd.DataFrame({"case": ["a", "b"], "median": [1.0, 2.0], "note": [None, None]} | about)
    words, table = ablation_tables.bench(rows)
    assert words == "hardware id h, date today" and list(table) == ["case", "median"]
