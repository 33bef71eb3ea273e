"""Chapter 07, executed: the planned studies' node-hours from counted operations, and the work plan, handed on for the proposal."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths, provenance
from hpc_utils.publish import ledger, workplan
from hpc_utils.records.folder import read_json

from .test_03 import executed  # noqa: F401

CHAPTER = "07_proposal"
COUNTED = paths.root() / "results/reference/epyc-avx512"


def test_the_plan_is_predicted_and_handed_on(executed, tmp_path: Path) -> None:  # noqa: F811
    text, figures = executed(COUNTED, CHAPTER)
    assert "plan-gantt" in figures
    assert "The like device is A100 40GB" in text
    results = tmp_path / "results"
    page = ledger.read(results).pages[CHAPTER]
    assert page["fingerprint"][: provenance.SHORT] in text
    values = ledger.read(results).values
    plan = workplan.read(paths.root() / "paper/plan.toml")
    table = pd.read_csv(results / "tables/plan-resources.csv")
    assert table.Study.tolist() == [*plan.studies, "Total"]
    assert set(table.Basis) == {"operations"}
    total = values["plan.node-hours"]
    assert total.value == pytest.approx(sum(values[f"plan.{study}.node-hours"].value for study in plan.studies))
    assert total.low < total.value < total.high
    assert values["plan.request.node-hours"].value >= total.high * (1 + plan.contingency)
    rests_on = read_json(results / "runs" / total.runs[0] / "request.json")
    assert "resnet18" in json.dumps(rests_on), "only runs of the planned model count its operations"
    assert values["workplan.months"].value == plan.months
