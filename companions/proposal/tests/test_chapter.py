"""Chapter 07 as committed (tests/test_reproduce.py executes it): node-hours of the planned studies, and the work plan."""

from __future__ import annotations

import pytest

from companions.proposal.work_plan import read_work_plan
from hpc_utils import paths, provenance
from hpc_utils.publish import exports
from tests.notebooks.chapters import said

CHAPTER = "07_proposal"
COUNTED = paths.root() / "results/reference/epyc-avx512"


def test_the_plan_is_predicted_and_exported() -> None:
    found = exports.read_exports(COUNTED)
    assert "plan-gantt" in found.figures
    assert found.pages[CHAPTER]["fingerprint"][: provenance.SHORT] in said(COUNTED / f"notebooks/{CHAPTER}.ipynb")
    plan = read_work_plan(paths.root() / "paper/plan.toml")
    table = found.frame("plan-studies").set_index("study")
    assert table.index.tolist() == [*plan.studies, "Total"] and set(table.basis) == {"operations"}
    total = table.loc["Total"]
    assert total.node_hours == pytest.approx(table.node_hours[plan.studies].sum())
    assert total.node_hours_low < total.node_hours < total.node_hours_high
    (asked,) = found.frame("plan-request").itertuples()
    assert asked.like == "A100 40GB" and asked.request_node_hours >= total.node_hours_high * (1 + plan.contingency)
    on = found.tables["plan-studies"].runs
    assert all(run.startswith("resnet18-") for run in on), "only runs of the planned model count its operations"
    assert found.frame("plan-total").months.tolist() == [plan.months]
