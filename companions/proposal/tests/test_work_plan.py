"""The work plan: what is refused, what its tables say, and that ours fits the studies and the text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from companions.proposal import plots, work_plan
from companions.proposal.work_plan import PlanError, WorkPlan
from hpc_utils import paths

PLAN = """
months = 6
[[package]]
id = "WP1"
title = "First"
start = 1
months = 2
effort_pm = 1.5
deliverable = "D1"
studies = ["strong"]
[[package]]
id = "WP2"
title = "Second"
start = 3
months = 4
effort_pm = 2
deliverable = "D2"
[[milestone]]
id = "M1"
title = "Done"
month = 6
"""


def read_plan(tmp_path: Path, text: str) -> WorkPlan:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return work_plan.read_work_plan(path)


@pytest.mark.usefixtures("styled")
def test_months_and_effort_stand_in_the_tables(tmp_path: Path) -> None:
    plan = read_plan(tmp_path, PLAN)
    assert work_plan.total_table(plan).to_dict("records") == [{"months": 6, "packages": 2, "effort_pm": 3.5}]
    frame = work_plan.month_table(plan)
    chart = plots.gantt(plan)
    assert frame.effort_pm.tolist()[:2] == [1.5, 2] and chart.data.equals(frame)
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in chart.figure.axes[0].patches]
    assert bars == [(0, 2), (2, 6)], "month 1 begins at 0"
    assert frame[["start", "end"]].values.tolist() == [[1, 2], [3, 6], [6, 6]]
    table = work_plan.package_table(read_plan(tmp_path, PLAN))
    assert table.Months.tolist() == ["1–2", "3–6"]
    assert table.Studies.tolist() == ["strong", "none"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("months = 4", "months = 5", "WP2: later than month 6"),
        ("start = 1", "start = 0", "package.0.start"),
        ('deliverable = "D2"', 'deliverable = "D2"\nstudies = ["strong"]', "strong: a study belongs to one package"),
    ],
)
def test_a_wrong_plan_is_refused_with_file_and_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        read_plan(tmp_path, PLAN.replace(old, new, 1))
    assert str(tmp_path / "plan.toml") in str(refused.value) and said in str(refused.value)


def test_our_plan_computes_studies_that_there_are_and_the_text_names_what_it_has() -> None:
    plan = work_plan.read_work_plan(paths.root() / "paper/plan.toml")
    assert set(plan.studies) <= paths.study_files().keys()
    text = (paths.root() / "paper/proposal.md").read_text()
    assert set(re.findall(r"\bWP[0-9]+\b", text)) == {package.id for package in plan.package}
    assert set(re.findall(r"\bM[1-9]\b", text)) <= {milestone.id for milestone in plan.milestone}
