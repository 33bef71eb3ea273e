"""Loader workers and what saves memory: hand-made runs whose ratios are known."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from companions.guide import analysis
from hpc_utils.records.study import StudyIndex, StudyRun
from tests.analyze.runs import MIB, repeated


def study(series: str, *kinds: tuple[dict[str, Any], float, dict[str, Any]]) -> tuple[list[StudyIndex], pd.DataFrame]:
    """(studies, runs) of (parameters, seconds, other columns), three repeats each."""
    rows, planned = [], []
    for options, seconds, other in kinds:
        for row in repeated(1, seconds, parallel="none", settings=str(options), warmup_seconds=seconds / 10, **other):
            rows.append(row | {"run_id": f"run{len(rows)}"})
            about = {"series": series, "ranks": 1, "repeat": row["repeat"], "parameters": options}
            planned.append(StudyRun(run_id=rows[-1]["run_id"], **about))
    return [StudyIndex(name=series, runs=planned)], pd.DataFrame(rows)


def workers(*seconds: float) -> pd.DataFrame:
    kinds = [({"loader_workers": n}, one, {}) for n, one in zip((0, 1, 2, 4, 8, 16), seconds, strict=True)]
    return analysis.loader_workers(*study("loader-workers", *kinds))


@pytest.mark.parametrize(
    ("seconds", "enough", "verdict"),
    [
        ((10, 10, 5, 5.01, 5.02, 5.03), 2, "more than needed"),
        ((10, 10, 5, 6, 7, 8), 2, "too many"),
        ((10, 9, 8, 7, 5, 5.01), 8, "right"),
        ((10, 9, 8, 7, 6, 4), 16, "too few"),
    ],
)
def test_the_rule_is_judged_by_the_fewest_workers_that_are_enough(seconds, enough: int, verdict: str) -> None:
    table = workers(*seconds)
    assert table.loader_workers.tolist() == [0, 1, 2, 4, 8, 16] and (table.repeats == 3).all()
    assert table.gain.tolist() == pytest.approx([seconds[0] / one for one in seconds])
    assert table.of_best.max() == 1 and (table.gain_low[1:] < table.gain[1:]).all()
    (row,) = analysis.judge_rule(table).to_dict("records")
    assert (row["rule"], row["enough"], row["verdict"]) == (8, enough, verdict)
    assert row["of_best"] == pytest.approx(min(seconds) / seconds[4]) and len(row["runs"]) == 18


def test_memory_and_time_are_over_those_of_the_plain_step() -> None:
    kinds = [
        ({"accumulate": parts, "activation_checkpointing": kept}, seconds, {"peak_rss_bytes": size * MIB})
        for parts, kept, seconds, size in ((1, False, 10, 800), (1, True, 13, 400), (4, False, 11, 200))
    ]
    table = analysis.memory(*study("memory", *kinds)).set_index(analysis.MEMORY)
    assert table.of_peak.to_dict() == pytest.approx({(1, False): 1, (4, False): 0.25, (1, True): 0.5})
    assert table.longer.to_dict() == pytest.approx({(1, False): 1, (4, False): 1.1, (1, True): 1.3})
    assert table.longer_low[1, True] < 1.3 < table.longer_high[1, True]


def test_another_series_is_left_out() -> None:
    studies, runs = study("strong", ({"loader_workers": 0, "accumulate": 1}, 10, {}))
    table = analysis.loader_workers(studies, runs)
    assert table.empty and analysis.judge_rule(table).empty and analysis.memory(studies, runs).empty
