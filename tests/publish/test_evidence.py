"""What a report's numbers rest on: of a whole set or of one study, and what is stale of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hpc_utils import records
from hpc_utils.publish import evidence, exports


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


def test_what_is_stale_is_said(exported: Path) -> None:
    shutil.rmtree(next((exported / "runs").iterdir()))
    assert any("is gone" in fault for fault in evidence.gather(exported).faults)


def test_exports_that_cannot_be_read_are_none_and_a_fault(exported: Path) -> None:
    (exported / "exports/laptop-06_paper_figures.json").write_text("{")
    found = evidence.gather(exported)
    assert not found.exported.tables
    assert "hpc chapter" in found.faults[0]


def test_an_unknown_study_is_refused(exported: Path) -> None:
    with pytest.raises(records.UnknownStudy, match="'none'"):
        evidence.gather(exported, study="none")


def test_what_was_read_is_not_read_again_to_find_what_is_stale(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    load, own = records.load, exports.read
    monkeypatch.setattr(records, "load", lambda *a, **k: read.append(("records", k.get("study"))) or load(*a, **k))
    monkeypatch.setattr(exports, "read", lambda folder: read.append(("exports", None)) or own(folder))
    evidence.gather(exported)
    assert sorted(read, key=str) == [("exports", None), ("records", "laptop"), ("records", None)]
