"""What a report's numbers rest on: of a whole set or of one study, and what is stale of it."""

from __future__ import annotations

import json
from pathlib import Path

from hpc_utils import records
from hpc_utils.publish import evidence


def test_of_a_whole_set_everything(exported: Path) -> None:
    found = evidence.gather(exported)
    assert found.wanted is None and not found.faults
    assert set(found.exported.tables) == {"laptop-efficiency", "laptop-points"}


def test_of_a_study_what_its_chapters_exported_and_the_runs_behind(exported: Path) -> None:
    index = json.loads((exported / "studies/laptop.json").read_text())
    half = index | {"name": "half", "runs": index["runs"][:2]}
    (exported / "studies/half.json").write_text(json.dumps(half))
    nothing = evidence.gather(exported, study="half")
    assert not nothing.exported.figures and not nothing.exported.tables
    assert nothing.wanted == {run["run_id"] for run in half["runs"]}
    bound = evidence.gather(exported, [exported / "notebooks/laptop/06_paper_figures.ipynb"], study="half")
    assert len(bound.exported.tables) == 2 and bound.exported.figures
    assert bound.wanted == set(records.load(exported).runs.run_id)


def test_exports_that_cannot_be_read_are_none_and_a_fault(exported: Path) -> None:
    (exported / "exports/laptop-06_paper_figures.json").write_text("{")
    found = evidence.gather(exported)
    assert not found.exported.tables
    assert "hpc chapter" in found.faults[0]
