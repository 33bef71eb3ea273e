"""Chapter 07, executed: the planned studies' node-hours from counted operations, and the work plan, exported for the proposal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_utils import paths, provenance
from hpc_utils.publish import exports, workplan
from hpc_utils.records.folder import read_json

from .test_03 import executed  # noqa: F401

CHAPTER = "07_proposal"
COUNTED = paths.root() / "results/reference/epyc-avx512"


def test_the_plan_is_predicted_and_exported(executed, tmp_path: Path) -> None:  # noqa: F811
    text, figures = executed(COUNTED, CHAPTER)
    assert "plan-gantt" in figures
    results = tmp_path / "results"
    found = exports.read(results)
    assert found.pages[CHAPTER]["fingerprint"][: provenance.SHORT] in text
    plan = workplan.read(paths.root() / "paper/plan.toml")
    table = found.frame("plan-studies").set_index("study")
    assert table.index.tolist() == [*plan.studies, "Total"] and set(table.basis) == {"operations"}
    total = table.loc["Total"]
    assert total.node_hours == pytest.approx(table.node_hours[plan.studies].sum())
    assert total.node_hours_low < total.node_hours < total.node_hours_high
    (asked,) = found.frame("plan-request").itertuples()
    assert asked.like == "A100 40GB" and asked.request_node_hours >= total.node_hours_high * (1 + plan.contingency)
    rests_on = read_json(results / "runs" / found.tables["plan-studies"].runs[0] / "request.json")
    assert "resnet18" in json.dumps(rests_on), "only runs of the planned model count its operations"
    assert found.frame("plan-total").months.tolist() == [plan.months]
