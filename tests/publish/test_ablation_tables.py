"""An ablation in words: gains, costs and verdicts of each step."""

from __future__ import annotations

import pandas as pd

from hpc_utils.publish import ablation_tables
from tests.analyze import ladders


def test_a_step_is_described_with_profile_gain_cost_and_verdict() -> None:
    changes = {"whole-batches": 2.3, "bf16": 1.3, "cuda-graphs": 1.1}
    study, runs, epochs = ladders.ladder(changes, barred={"cuda-graphs": "no GPU"})
    ladder = ladders.of(runs, study, epochs)
    gains, judged = ladder.gains, ladder.learnt
    first, _, last = (ablation_tables.story(row, ladder.phases, judged) for row in gains.to_dict("records"))
    for part in ("`whole-batches=true`", "1 → 0.435", "2.30 [2.30, 2.30]", "+10.0 %", "+1.00 s", "within 0.5 points"):
        assert part in first
    assert "no GPU" in last
    table = ablation_tables.steps(gains, judged).set_index("step")
    assert table.loc["cuda-graphs", "not applicable"] == "no GPU" and table.loc["bf16", "alone"].startswith("1.30 [")
    headline = ablation_tables.headline(ladder.best, ladder.learnt_of_best)
    assert f"{ladder.best.gain.value:.2f} [" in headline


def test_a_bench_s_table_names_its_machine_once_and_shows_no_empty_columns() -> None:
    about = {"hardware_id": ["h"] * 2, "date": ["today"] * 2}
    rows = pd.DataFrame({"case": ["a", "b"], "median": [1.0, 2.0], "note": [None, None]} | about)
    words, table = ablation_tables.bench(rows)
    assert words == "hardware id h, date today" and list(table) == ["case", "median"]
